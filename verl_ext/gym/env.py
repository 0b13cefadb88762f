"""The environment: one repair session on one task, independent of any model, trainer or tokenizer.

A turn acts on exact sources, named by their *anchor* (a digest), and leads to a state whose *potential* is the share of
public tests that pass. Public tests are graded in the sandbox after every change, and a verdict is kept for
(task, digest): the sessions of a group start from one source and meet in the same states, so most grades are shared.
A failure of the sandbox is raised and never kept.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from verl_ext.gym import leaks, prompts, tools_code, tools_files, tools_ops
from verl_ext.gym.hardcode import hard_codes
from verl_ext.gym.workspace import Outcome, Workspace, refuse, useless
from verl_ext.types import Action, Observation, Task, Verdict, digest

if TYPE_CHECKING:
    from verl_ext.sandbox import Limits, Sandbox

CACHE_SIZE = 50_000
"""Verdicts kept in a process; the one longest unused goes first."""

_LOAD_DEPENDENT = ("timeout", "memory", "died")
"""Failures that a busy machine can cause: as a session's verdict they are not kept for other sessions."""

_TOOLS = {"ops": tools_ops, "ops_files": tools_files, "code": tools_code}
_TYPES = {"integer": int, "string": str}
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Verdicts:
    """Verdicts by (task id, digest), least recently used out first, one grade at a time for each key.

    Args:
        size: Verdicts kept.
        hidden: Of the hidden tests; else of the public ones.
    """

    def __init__(self, size: int = CACHE_SIZE, hidden: bool = False):
        self.size = size
        self.hidden = hidden
        self._verdicts: OrderedDict[tuple[str, str], Verdict] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str, int], asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._verdicts)

    def clear(self) -> None:
        self._verdicts.clear()

    async def grade(
        self,
        task: Task,
        sources: Mapping[str, str],
        sandbox: Sandbox,
        limits: Limits | None = None,
    ) -> tuple[Verdict, float]:
        """The verdict and the sandbox seconds it cost now: 0.0 when it was kept.

        Raises:
            InfrastructureError: The sandbox failed; nothing is kept.
        """
        key = (task.task_id, digest(sources))
        # A lock and not a shared future: whoever waits can be cancelled, and so can the one that grades.
        lock = self._locks.setdefault((*key, id(asyncio.get_running_loop())), asyncio.Lock())
        async with lock:
            if key in self._verdicts:
                self._verdicts.move_to_end(key)
                return self._verdicts[key], 0.0
            verdict = await sandbox.grade(sources, task.hidden if self.hidden else task.public, limits)
            if self.hidden and verdict.failure in _LOAD_DEPENDENT:
                return verdict, verdict.seconds
            self._verdicts[key] = verdict
            while len(self._verdicts) > self.size:
                self._verdicts.popitem(last=False)
            return verdict, verdict.seconds


public_verdicts = Verdicts()
"""Shared by all sessions of this process."""


class BugFixEnv:
    """One session.

    Args:
        task: What to repair.
        sandbox: Grades; not closed here.
        tools: ``ops`` (menu of edits), ``ops_files`` (the same, file by file) or ``code`` (text edits).
        auto_test: An edit's answer ends with the number of public tests that pass, so that editing and testing take
            one turn. Default: off for ``code`` alone.
        limits: Limits of each grade; None for the sandbox's own.
        verdicts: Where public verdicts are kept.
        private: Files that a policy must never see, such as the tasks' parquet; see :func:`verl_ext.gym.leaks.check`.

    Raises:
        BadInput: ``tools`` names no tool set.
    """

    def __init__(
        self,
        task: Task,
        sandbox: Sandbox,
        tools: str = "ops",
        *,
        auto_test: bool | None = None,
        limits: Limits | None = None,
        verdicts: Verdicts = public_verdicts,
        private: Sequence[str] = (),
    ):
        prompts.check_tools(tools)
        self.task = task
        self.tools = tools
        self.auto_test = tools != "code" if auto_test is None else auto_test
        self.done = False
        self._sandbox = sandbox
        self._limits = limits
        self._verdicts = verdicts
        self._private = tuple(private)
        self._workspace = Workspace.of(task.sources, task.editable)
        self._known: set[tuple[Any, ...]] = set()
        self._public: Verdict | None = None

    def prompt(self) -> list[dict[str, str]]:
        """First messages of the session."""
        return prompts.messages(self.task, self.tools)

    @property
    def sources(self) -> dict[str, str]:
        """Path to text, as the files stand (a copy)."""
        return dict(self._workspace.sources)

    @property
    def anchor(self) -> str:
        """Digest of the sources that the next action acts on."""
        return self._workspace.anchor

    @property
    def state(self) -> str:
        """Digest of all that the next action acts on: the sources, and the file an edit would go to."""
        viewed = self._workspace.viewed
        return self.anchor if viewed is None else digest({**self._workspace.sources, "": viewed[0]})

    @property
    def public(self) -> Verdict:
        """Verdict of the public tests on the files as they stand."""
        if self._public is None:
            raise RuntimeError("await env.reset() first")
        return self._public

    @property
    def potential(self) -> float:
        """Share of public tests that pass now, in [0, 1]."""
        return self.public.share

    @property
    def public_passed(self) -> bool:
        """True when all public tests pass now."""
        return self.public.passed

    async def reset(self) -> None:
        """Back to the buggy source, with its potential known.

        Raises:
            InfrastructureError: The sandbox failed, or something would give the solution away.
        """
        await leaks.check(self.task, self._sandbox, self._private)
        self._workspace = Workspace.of(self.task.sources, self.task.editable)
        self._known = set()
        self.done = False
        await self._test()

    async def step(self, action: Action) -> Observation:
        """Does one action.

        Returns:
            The observation; a call that is not allowed is answered too (``valid=False``), never raised.

        Raises:
            InfrastructureError: The sandbox failed; the session cannot go on.
            RuntimeError: The session is over, or was not reset.
        """
        if self.done:
            raise RuntimeError("the session is over; await env.reset() first")
        _ = self.public
        state, anchor, before = self.state, self.anchor, self.sources
        outcome = self._act(action)
        text, seconds, changed = outcome.text, 0.0, self.anchor != anchor
        if changed:
            seconds = await self._test()
            if self.auto_test and action.tool != "undo":
                text = f"{text}\n{tools_ops.tally(self.public)}"
        return Observation(
            # What the policy sent may come back in it; a tokenizer refuses lone surrogates, and a session must not be
            # able to end itself that way.
            text=text.encode("utf-8", "replace").decode(),
            done=self.done,
            anchor=state,
            potential=self.potential,
            valid=outcome.valid,
            redundant=outcome.redundant,
            hard_coded=changed and action.tool != "undo" and hard_codes(before, self.sources, self.task.public.cases),
            seconds=seconds,
        )

    def forget(self) -> None:
        """The policy's context no longer holds what it was shown: being shown it again is not redundant."""
        self._known.clear()
        if (viewed := self._workspace.viewed) is not None:
            self._workspace.viewed = viewed[0], ""

    async def grade(self) -> Verdict:
        """Verdict of the hidden tests on a pristine copy plus the editable files as they stand.

        Raises:
            InfrastructureError: The sandbox failed.
        """
        return await self._sandbox.grade(submission(self.task, self.sources), self.task.hidden, self._limits)

    def _act(self, action: Action) -> Outcome:
        if action.error is not None:
            return refuse(f"error: {action.error}"[: tools_code.LINE_CHARS])
        if reason := invalid(self.tools, action):
            return refuse(reason)
        if action.tool == "submit":
            self.done = True
            return Outcome("submitted")
        if action.tool == "undo":
            return self._workspace.undo()
        if action.tool == "run_tests":
            return self._once(action, Outcome(_ADDRESS.sub("", _TOOLS[self.tools].report(self.public, self.task))))
        state = self.anchor, self._workspace.viewed
        outcome = _TOOLS[self.tools].act(self._workspace, action.tool, action.arguments)
        # A tool that only reads leaves the sources alone; reading the same twice tells nothing.
        reads = state == (self.anchor, self._workspace.viewed) and outcome.valid and not outcome.redundant
        return self._once(action, outcome) if reads else outcome

    def _once(self, action: Action, outcome: Outcome) -> Outcome:
        key = (action.tool, self.anchor, *sorted(action.arguments.items()))
        if key in self._known:
            return useless(outcome.text)
        self._known.add(key)
        return outcome

    async def _test(self) -> float:
        self._public, seconds = await self._verdicts.grade(self.task, self.sources, self._sandbox, self._limits)
        return seconds


def submission(task: Task, sources: Mapping[str, str]) -> dict[str, str]:
    """What is graded: the task's own files, with the editable ones taken from ``sources``."""
    return {**task.sources, **{path: sources[path] for path in task.editable if path in sources}}


def invalid(tools: str, action: Action) -> str | None:
    """Why ``action`` is no call of the tool set, by its schemas; None when it is one."""
    schemas = prompts.parameters(tools)
    if action.tool not in schemas:
        return f"unknown tool {action.tool[:40]!r}; tools: {', '.join(schemas)}"
    schema = schemas[action.tool]
    for name in schema["required"]:
        if name not in action.arguments:
            return f"{action.tool} needs {name}"
    for name, value in action.arguments.items():
        if name not in schema["properties"]:
            allowed = ", ".join(schema["properties"]) or "none"
            return f"{action.tool} has no argument {name[:40]!r}; arguments: {allowed}"
        kind = schema["properties"][name]["type"]
        if type(value) is not _TYPES[kind]:
            article = "an" if kind == "integer" else "a"
            return f"{action.tool}: {name} must be {article} {kind}"
    return None
