"""The vocabulary shared by every part of verl_ext.

Everything here is frozen data: no verl, no Ray, no I/O. Axis names in variables: ``_G`` groups, ``_S`` sessions,
``_T`` turns, ``_R`` rows (segments), ``_L`` response tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Compare = Literal["exact", "numeric", "tolerance"]
Trust = Literal["oracle", "proxy", "shared"]


@dataclass(frozen=True)
class Case:
    """One hidden or public test: a call and what must come of it.

    Attributes:
        call: Name of a function or class in the task's module, e.g. ``"clamp"``.
        args: Positional arguments; plain values: None, bool, int, float, str, bytes, list, tuple, dict, (frozen)set.
        kwargs: Keyword arguments.
        then: For a class: the method calls made on the new instance, in order, as ``(method, args)``. The value
            compared is then the tuple of the methods' results; an exception in any of them is the case's exception.
        expected: The value that must come back; unused when ``raises`` is set.
        raises: Name of the exception type that must be raised, e.g. ``"ValueError"``; None for a value.
        compare: ``exact`` compares type and value, recursively (``2.0`` is not ``2``, a tuple is not a list);
            ``numeric`` lets int and float of equal value agree; ``tolerance`` also allows ``abs <= tolerance``.
        tolerance: Absolute tolerance for ``tolerance``.
    """

    call: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    then: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    expected: Any = None
    raises: str | None = None
    compare: Compare = "exact"
    tolerance: float = 0.0


@dataclass(frozen=True)
class Tests:
    """What a solution is checked against: cases for the oracle, pytest files for the import proxy, or both.

    Attributes:
        module: Dotted name of the module that the cases call into, e.g. ``"solution"``.
        cases: Graded by the oracle.
        files: File name to text of ordinary pytest files, graded through the import proxy.
        shared: The files need the solution in their own process; they are graded there, at lower trust.
    """

    __test__ = False  # pytest: not a test class

    module: str = "solution"
    cases: tuple[Case, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False

    def __len__(self) -> int:
        return len(self.cases) + len(self.files)


@dataclass(frozen=True)
class Task:
    """A repair task: buggy sources, an issue text, public tests as feedback, hidden tests as the verdict.

    Attributes:
        task_id: Unique and stable, e.g. ``"clamp-3f2a/strictness/0"``.
        sources: Path to text of the workspace as the policy finds it, with the bug.
        editable: Paths the policy may change; every other change is dropped before grading.
        issue: The intent in words; says what the code should do, never what is wrong with it.
        public: Feedback for the policy.
        hidden: The verdict; inputs disjoint from ``public``.
        bug_type: Name of the bug operator.
        gold: Path to text of the repaired sources (only the paths that change).
        split: ``train``, ``val``, ``heldout_types`` or ``heldout_functions``.
        provenance: Where it comes from: ``source`` (handwritten | template), ``function``, ``family``, ``line``, ...
    """

    task_id: str
    sources: Mapping[str, str]
    editable: tuple[str, ...]
    issue: str
    public: Tests
    hidden: Tests
    bug_type: str
    gold: Mapping[str, str]
    split: str
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """One tool call of the policy. ``error`` is set when the message held no call that could be read."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Observation:
    """What the environment answers to an action.

    Attributes:
        text: Bounded, deterministic text for the policy.
        done: The session is over (``submit``).
        anchor: Digest of what the action acted on: the exact sources before it, and where an edit goes to the file that
            was viewed, that file's path.
        potential: Share of public tests that pass in the state *after* the action, in [0, 1].
        valid: The call was well-formed and its tool and arguments allowed.
        redundant: The action could change or reveal nothing (test of an unchanged state, edit that changes nothing).
        hard_coded: The edit writes a public test's expected value next to a test of its input.
        seconds: Sandbox seconds the action cost.
    """

    text: str
    done: bool
    anchor: str
    potential: float
    valid: bool = True
    redundant: bool = False
    hard_coded: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Turn:
    """One policy message and the observation that follows, as estimators read it.

    Attributes:
        index: 0-based position in the session.
        start, end: Half-open span of the policy's tokens in the row's response.
        tool: Tool name, ``""`` when no call could be read.
        action: Digest of tool and arguments: turns with the same anchor and action did the same in the same state.
        reward: Reward earned on this turn beside the verdict, which the reward manager adds to the last one: minus the
            sum of ``charges``.
        charges: Process terms taken off on this turn, by name; only those that are on.
        versions: Smallest and largest version of the weights that its tokens were sampled with; empty when unknown.
        Others: see :class:`Observation`; ``potential`` is that of the state the turn *starts* from.
    """

    index: int
    start: int
    end: int
    tool: str
    action: str
    anchor: str
    potential: float
    reward: float
    valid: bool
    redundant: bool
    hard_coded: bool
    charges: Mapping[str, float] = field(default_factory=dict)
    versions: tuple[int, ...] = ()


class StopReason(StrEnum):
    """Why a session ended. One table (design, section 3) decides what becomes of it."""

    SUBMITTED = "submitted"
    MAX_TURNS = "max_turns"
    RESPONSE_BUDGET = "response_budget"
    CONTEXT_OVERFLOW = "context_overflow"
    FOLD_LIMIT = "fold_limit"
    WALL_CLOCK = "wall_clock"
    INVALID_CALLS = "invalid_calls"
    SANDBOX_ERROR = "sandbox_error"
    GRADER_ERROR = "grader_error"
    SERVER_ERROR = "server_error"
    ABORTED = "aborted"

    @property
    def infrastructure(self) -> bool:
        """True when the policy is not to blame: the session leaves no reward, no baseline entry, no loss."""
        return self in _INFRASTRUCTURE

    @property
    def truncated(self) -> bool:
        """True when a limit cut the session: ``mask``, ``zero`` or ``score`` decides what becomes of it."""
        return self in _TRUNCATED


_INFRASTRUCTURE = frozenset(
    {StopReason.SANDBOX_ERROR, StopReason.GRADER_ERROR, StopReason.SERVER_ERROR, StopReason.ABORTED}
)
_TRUNCATED = frozenset(
    {
        StopReason.RESPONSE_BUDGET,
        StopReason.CONTEXT_OVERFLOW,
        StopReason.FOLD_LIMIT,
        StopReason.WALL_CLOCK,
        StopReason.INVALID_CALLS,
    }
)


@dataclass(frozen=True)
class CaseResult:
    """Outcome of one case or one pytest test.

    Attributes:
        name: Readable and stable, e.g. ``"clamp(5, 0, 3)"`` or ``"test_clamp.py::test_low"``.
        passed: The case answered rightly.
        expected, got: Short ``repr`` texts, or ``"raises ValueError"``; ``""`` where there is none.
        error: Why there is no value (exception type and message, time-out, worker died), else ``""``.
    """

    name: str
    passed: bool
    expected: str = ""
    got: str = ""
    error: str = ""


@dataclass(frozen=True)
class Verdict:
    """The trusted side's judgement of a solution.

    Attributes:
        passed: Every expected case answered rightly (and there was at least one).
        cases: One entry for each expected case, in the order of the tests.
        trust: ``oracle`` or ``proxy``: made outside the process that runs policy code; ``shared``: made inside it.
        failure: None when passed, else the kind of the first failure, always the policy's fault:
            ``wrong``, ``exception``, ``import``, ``timeout``, ``memory``, ``died``, ``protocol``, ``forbidden``.
            Infrastructure failures are :class:`InfrastructureError`, never a verdict.
        seconds: Wall-clock of the grade.
    """

    passed: bool
    cases: tuple[CaseResult, ...]
    trust: Trust
    failure: str | None
    seconds: float

    @property
    def share(self) -> float:
        """Share of cases passed, in [0, 1]; 0.0 without cases."""
        return sum(c.passed for c in self.cases) / len(self.cases) if self.cases else 0.0


class InfrastructureError(RuntimeError):
    """A failure that is not the policy's: sandbox, grader or server. Never becomes a reward."""


class BadInput(ValueError):
    """A user's mistake, with one line that says what is wrong and how to mend it."""


def digest(sources: Mapping[str, str]) -> str:
    """Anchor of a workspace: 16 hex digits over its exact paths and texts."""
    blob = json.dumps(sorted(sources.items()), ensure_ascii=False).encode()
    return hashlib.blake2b(blob, digest_size=8).hexdigest()
