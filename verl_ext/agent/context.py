"""Context managers: what a policy still sees of its session when the history outgrows its budget.

One small protocol. After each turn a manager is told the turn and may ask how much room there is; it says to go on with
an answer, or to start a new *segment*: a context built afresh, or one cut back to an earlier call. Whatever it says,
the loop trains each sampled token once, in the context in which it was sampled. The first messages (system prompt and
task) always stay. Here are the managers by which the environment shortens the history; those by which the policy does
are in :mod:`verl_ext.agent.folding`. No verl, no Ray.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from verl_ext.agent.settings import ContextConfig
from verl_ext.types import Action, Verdict

Message = dict[str, Any]

DROPPED = "[dropped]"
"""Stands for a tool answer that left the context."""


@dataclass(frozen=True)
class Exchange:
    """A finished turn as it may be shown again.

    Attributes:
        index: The turn's position in the session.
        tool: Its tool, ``""`` when no call could be read.
        valid: The call was allowed.
        call: The policy's message as text.
        answer: What was answered.
        summary: One line of a fixed format that may stand for the answer; see :func:`summary`.
        changed: Paths of files that it changed.
    """

    index: int
    tool: str
    valid: bool
    call: str
    answer: str
    summary: str
    changed: tuple[str, ...] = ()

    @property
    def brief(self) -> str:
        """The answer or its summary, whichever is shorter."""
        return min(self.answer, self.summary, key=len)


class Room(Protocol):
    """What a manager may ask of the context that is being filled. ``budget`` is its size in tokens."""

    budget: int
    reserve: int
    """Tokens that the next message needs."""

    def left(self, answer: str) -> int:
        """Tokens left for all that comes after ``answer``, once it is appended; negative when it is too long."""

    def size(self, messages: Sequence[Message]) -> int:
        """Tokens of a context of the first messages and these."""

    def grown(self, turn: int) -> int:
        """Tokens that this context has taken up since turn ``turn`` was called, its call excluded."""


@dataclass(frozen=True)
class GoOn:
    """Append ``answer`` to the context."""

    answer: str


@dataclass(frozen=True)
class Restart:
    """Start a segment with the first messages and these."""

    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Return:
    """Start a segment that is this context up to and with the call of turn ``turn``, answered by ``answer``."""

    turn: int
    answer: str


Move = GoOn | Restart | Return


@dataclass(frozen=True)
class Reply:
    """A manager's answer to a call of one of its own tools."""

    text: str
    valid: bool = True
    redundant: bool = False


class Context:
    """``none``: the whole history, and the base of the others. One object a session.

    Args:
        settings: See :class:`ContextConfig`.
        paths: Files of the workspace.
    """

    schemas: tuple[dict[str, Any], ...] = ()
    """Tools beside those of the environment."""
    hint: Mapping[str, str] = MappingProxyType({"ops": "", "ops_files": "", "code": ""})
    """What the first messages say of them, by tool set."""

    def __init__(self, settings: ContextConfig, paths: Sequence[str] = ()):
        self.settings = settings
        self.paths = tuple(sorted(paths))
        self.turns: list[Exchange] = []

    @property
    def branching(self) -> bool:
        """Whether the context is a branch and not the main one."""
        return False

    def act(self, action: Action) -> Reply | None:
        """Answer a call of an own tool, or refuse one that is not allowed now; None: the environment's."""
        return None

    def strays(self, turn: Exchange) -> bool:
        """Whether a turn of a branch changed a file that the branch's goal does not name."""
        return False

    def move(self, turn: Exchange, room: Room) -> Move | None:
        """What comes after ``turn``; None when there is no room and nothing helps."""
        self.turns.append(turn)
        return GoOn(turn.answer) if room.left(turn.answer) >= room.reserve else None


class DropOldest(Context):
    """``drop_oldest``: answers go, oldest first, then whole turns, until the rest fills ``drop_to`` of the budget.

    The latest turn stays whole.
    """

    def move(self, turn: Exchange, room: Room) -> Move | None:
        if whole := super().move(turn, room):
            return whole
        old, last = self.turns[:-1], shown(turn, turn.answer)

        def view(dropped: int) -> tuple[Message, ...]:
            answers, turns = min(dropped, len(old)), max(dropped - len(old), 0)
            kept = [shown(one, DROPPED if i < answers else one.answer) for i, one in enumerate(old)][turns:]
            return tuple(message for pair in (*kept, last) for message in pair)

        for limit in (self.settings.drop_to * room.budget, room.budget - room.reserve):
            if (found := _first(2 * len(old), lambda n, limit=limit: room.size(view(n)) <= limit)) is not None:
                return Restart(view(found))
        return None


class EnvSummary(Context):
    """``env_summary``: answers older than ``keep_turns`` turns become one line each, where that is shorter."""

    def move(self, turn: Exchange, room: Room) -> Move | None:
        if whole := super().move(turn, room):
            return whole
        old = len(self.turns) - self.settings.keep_turns
        pairs = [shown(one, one.brief if i < old else one.answer) for i, one in enumerate(self.turns)]
        messages = tuple(message for pair in pairs for message in pair)
        return Restart(messages) if room.size(messages) <= room.budget - room.reserve else None


def shown(turn: Exchange, answer: str) -> tuple[Message, Message]:
    """A turn as messages of a new context, with ``answer`` in place of its own."""
    return {"role": "assistant", "content": turn.call}, {"role": "tool", "content": answer}


def summary(action: Action, reply: Reply, public: Verdict) -> str:
    """``edit 3: ok, 2/4 passed``: tool, target, outcome and public tests that pass, as they were after the turn."""
    target = next((f" {action.arguments[name]}" for name in _TARGETS if name in action.arguments), "")
    outcome = "refused" if not reply.valid else "no effect" if reply.redundant else "ok"
    passed = sum(case.passed for case in public.cases)
    return f"{action.tool[:40] or 'no call'}{target[:80]}: {outcome}, {passed}/{len(public.cases)} passed"


_TARGETS = ("path", "file", "line", "pattern")


def _first(last: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest of 1..last that ``holds``, which once it does goes on to; None when none does."""
    found = bisect_left(range(1, last + 1), True, key=holds) + 1
    return found if found <= last else None
