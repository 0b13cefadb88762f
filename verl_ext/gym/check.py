"""Checking a data set that lies on disk: the splits are disjoint, and every task holds when it is run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from verl_ext.gym.splits import problems
from verl_ext.sandbox import Sandbox
from verl_ext.types import Task, Tests, Verdict

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
        _both(task, {**task.sources, **task.gold}, sandbox), _both(task, task.sources, sandbox)
    )
    for name, (fixed, broken) in {"public": (gold[0], buggy[0]), "hidden": (gold[1], buggy[1])}.items():
        if not fixed.passed:
            failed = next((c.name for c in fixed.cases if not c.passed), "no case")
            found.append(f"{task.task_id}: the repaired source fails the {name} tests ({failed})")
        if broken.passed:
            found.append(f"{task.task_id}: the bug does not show in the {name} tests")
    return found


async def _both(task: Task, sources: dict[str, str], sandbox: Sandbox) -> list[Verdict]:
    async def grade(tests: Tests) -> Verdict:
        return await sandbox.grade(sources, tests)

    return list(await asyncio.gather(grade(task.public), grade(task.hidden)))
