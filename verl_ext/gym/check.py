"""Checking a data set that lies on disk: the splits are disjoint, and every task holds when it is run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from verl_ext.gym.splits import problems
from verl_ext.sandbox import Sandbox
from verl_ext.types import CaseResult, Task, Tests

_AT_ONCE = 16


async def check(tasks: Iterable[Task], sandbox: Sandbox, report: Callable[[], None] = lambda: None) -> list[str]:
    """One line for everything that is wrong, in the order of the tasks; an empty list when all is well.

    Args:
        tasks: The whole data set.
        sandbox: Grades the repaired and the buggy source of each task.
        report: Called after each task.

    Raises:
        InfrastructureError: The sandbox failed.
    """
    tasks = list(tasks)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(task: Task) -> list[str]:
        async with gate:
            found = await wrong(task, sandbox)
        report()
        return found

    graded = await asyncio.gather(*(one(task) for task in tasks))
    return [*problems(tasks), *(line for lines in graded for line in lines)]


async def wrong(task: Task, sandbox: Sandbox) -> list[str]:
    """What is wrong with one task: its tests overlap, its repaired source fails, or its bug does not show."""
    found = []
    inputs = [{repr((c.call, c.args, c.kwargs, c.then)) for c in tests.cases} for tests in (task.public, task.hidden)]
    if inputs[0] & inputs[1]:
        found.append(f"{task.task_id}: an input is both public and hidden")
    gold, buggy = await asyncio.gather(
        _halves(task, {**task.sources, **task.gold}, sandbox), _halves(task, task.sources, sandbox)
    )
    for name, fixed, broken in zip(("public", "hidden"), gold, buggy, strict=True):
        if failed := next((case.name for case in fixed if not case.passed), None):
            found.append(f"{task.task_id}: the repaired source fails the {name} tests ({failed})")
        if all(case.passed for case in broken):
            found.append(f"{task.task_id}: the bug does not show in the {name} tests")
    return found


async def _halves(task: Task, sources: dict[str, str], sandbox: Sandbox) -> list[Sequence[CaseResult]]:
    """Results of the public and of the hidden tests; in one jail where they are cases, at half the price."""
    public, hidden = task.public, task.hidden
    if public.files or hidden.files or public.module != hidden.module:
        verdicts = await asyncio.gather(sandbox.grade(sources, public), sandbox.grade(sources, hidden))
        return [verdict.cases for verdict in verdicts]
    verdict = await sandbox.grade(sources, Tests(public.module, public.cases + hidden.cases))
    return [verdict.cases[: len(public)], verdict.cases[len(public) :]]
