"""From a program and the bugs to try in it, the tasks that hold: everything here is decided by running code in a jail.

Reference and mutants run side by side on a pool of drawn inputs, in three jails one after the other. What the reference
answers three times alike is the expected value; inputs on which its answers differ are dropped. Where a mutant fails
tells how to spread the inputs over public and hidden tests, so that each half shows the bug.

A jail for each mutant and a message for each input would be safer against code that cheats, and six times slower; the
code here is our own. Policies are graded by :meth:`~verl_ext.sandbox.Sandbox.grade`, and so are the finished tasks by
``verl-ext tasks check``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from verl_ext.gym.plan import Wish
from verl_ext.gym.program import Program
from verl_ext.sandbox import Limits, Sandbox
from verl_ext.sandbox.base import Outcome
from verl_ext.sandbox.wire import agree, encode
from verl_ext.types import Case, Task, Tests, digest

PUBLIC, HIDDEN = 4, 8
POOL = 24
"""Inputs drawn for a program."""
RUNS = 3
REASONS = ("reference", "equivalent", "weak", "hanging", "crashing", "flaky", "duplicate")
"""Why a mutant is rejected: its reference cannot be used; it passes everything; only one input shows it; it does not
end or takes all memory; it ends its worker; its runs differ; its text stands elsewhere
(found by :mod:`verl_ext.gym.build`)."""
PATH = "solution.py"
_LIMITS = Limits(cpu_seconds=0.5, call_seconds=20.0, total_seconds=120.0, restarts=8)
_DRIVER = """
import importlib


def run(name, inputs):
    module = importlib.import_module(name)
    return [answer(module, *one) for one in inputs]


def answer(module, call, args, kwargs, then):
    try:
        value = getattr(module, call)(*args, **kwargs)
        if then:
            value = tuple([getattr(value, method)(*arguments) for method, arguments in then])
    except Exception as error:
        return "raises", type(error).__name__
    return "returns", value
"""
_REFERENCE = "reference"

Answers = tuple[tuple[str, Any], ...] | str
"""For each input ``("returns", value)`` or ``("raises", name)``; or the reason why there are none."""


@dataclass(frozen=True)
class Examined:
    """Valid tasks of a program, and how many mutants were rejected for which reason."""

    tasks: tuple[Task, ...] = ()
    rejected: Counter[str] = field(default_factory=Counter)


async def examine(program: Program, wishes: Sequence[Wish], sandbox: Sandbox, seed: int) -> Examined:
    """Runs a program and its mutants; the result depends on nothing but the arguments.

    Raises:
        InfrastructureError: The sandbox failed.
    """
    drawn = draw(program, seed)
    modules = {_REFERENCE: program.source, **{f"mutant_{i}": wish.mutant.source for i, wish in enumerate(wishes)}}
    runs = [await answers(modules, drawn, sandbox)]
    cases = _cases(program, drawn, runs[0][_REFERENCE])
    fates = {name: _fate(cases, runs[0][name]) for name in modules if name != _REFERENCE}
    alive = {name: text for name, text in modules.items() if not isinstance(fates.get(name), str)}
    if len(alive) > 1:
        runs += [await answers(alive, drawn, sandbox) for _ in range(RUNS - 1)]
    stable = {i: case for i, case in cases.items() if all(_right(run[_REFERENCE], i, case) for run in runs)}
    tasks, rejected = [], Counter()
    for name, wish in zip(fates, wishes, strict=True):
        fate = fates[name]
        if not isinstance(fate, str):
            fate = _verdict(stable, [run[name] for run in runs])
        if isinstance(fate, str):
            rejected[fate] += 1
        else:
            tasks.append(_task(program, wish, stable, fate, seed))
    return Examined(tuple(tasks), rejected)


async def answers(modules: Mapping[str, str], drawn: Sequence[Case], sandbox: Sandbox) -> dict[str, Answers]:
    """What each module answers to each input, all in one fresh jail (another one after a module ended it).

    Args:
        modules: Module name to source.
        drawn: The inputs; expected values are not looked at.
        sandbox: Runs them.
    """
    inputs = [(case.call, case.args, dict(case.kwargs), case.then) for case in drawn]
    files = {f"{name}.py": source for name, source in modules.items()}
    calls = Tests(module="driver", cases=tuple(Case("run", (name, inputs)) for name in modules))
    outcomes = await sandbox.evaluate({**files, "driver.py": _DRIVER}, calls, _LIMITS)
    return {name: _answers(outcome) for name, outcome in zip(modules, outcomes, strict=True)}


def _answers(outcome: Outcome) -> Answers:
    if outcome.failure in ("timeout", "memory"):
        return "hanging"
    if outcome.failure is not None or outcome.raised is not None:
        return "crashing"
    return tuple(outcome.value)


def _cases(program: Program, drawn: Sequence[Case], found: Answers) -> dict[int, Case]:
    """The usable cases by position. An exception counts as an answer only where the program speaks of it; otherwise
    the input was out of bounds."""
    if isinstance(found, str):
        return {}
    cases = {}
    for i, (case, (kind, value)) in enumerate(zip(drawn, found, strict=True)):
        if kind == "returns":
            cases[i] = replace(case, expected=value)
        elif value in program.source or value in program.issue:
            cases[i] = replace(case, raises=value)
    return cases


def _right(found: Answers, i: int, case: Case) -> bool:
    if isinstance(found, str):
        return False
    kind, value = found[i]
    if kind == "raises" or case.raises is not None:
        return kind == "raises" and value == case.raises
    return agree(value, case.expected, case.compare, case.tolerance)


def _fate(cases: Mapping[int, Case], found: Answers) -> str | dict[int, bool]:
    """Which cases a mutant passes, or why it is rejected."""
    if len(cases) < PUBLIC + HIDDEN:
        return "reference"
    if isinstance(found, str):
        return found
    passes = {i: _right(found, i, case) for i, case in cases.items()}
    wrong = list(passes.values()).count(False)
    return passes if wrong > 1 else ("weak" if wrong else "equivalent")


def _verdict(cases: Mapping[int, Case], runs: Sequence[Answers]) -> str | dict[int, bool]:
    """The same over all runs."""
    fates = [_fate(cases, found) for found in runs]
    return fates[0] if all(fate == fates[0] for fate in fates) else "flaky"


def draw(program: Program, seed: int, count: int = POOL) -> list[Case]:
    """Up to ``count`` cases with distinct inputs and no expected value."""
    rng = Random(f"{seed}/inputs/{program.name}")
    found: dict[str, Case] = {}
    for _ in range(8 * count):
        case = program.inputs(rng)
        found.setdefault(json.dumps([case.call, encode((case.args, dict(case.kwargs), case.then))]), case)
        if len(found) == count:
            break
    return [replace(case, compare=program.compare) if case.compare == "exact" else case for case in found.values()]


def spread(passes: Mapping[int, bool], rng: Random) -> tuple[list[int], list[int]]:
    """Positions of the public and the hidden cases: disjoint, each with a failing one, with passing ones if there are.

    Up to half of the public and of the hidden cases fail, more only where too few pass.

    Args:
        passes: Whether the mutant passes each case, by position; at least two are False.
        rng: Decides which.
    """
    failing = rng.sample(wrong := [i for i, ok in passes.items() if not ok], len(wrong))
    passing = rng.sample(right := [i for i, ok in passes.items() if ok], len(right))
    shown = max(1, min(PUBLIC // 2, len(failing) // 3))
    public, failing = failing[:shown], failing[shown:]
    hidden, failing = failing[: HIDDEN // 2], failing[HIDDEN // 2 :]
    # What is left goes first to the public tests: they are what makes a bug visible.
    rest = passing + failing
    public += rest[: PUBLIC - len(public)]
    rest = rest[PUBLIC - shown :]
    hidden += rest[: HIDDEN - len(hidden)]
    return sorted(public), sorted(hidden)


def _task(program: Program, wish: Wish, cases: Mapping[int, Case], passes: Mapping[int, bool], seed: int) -> Task:
    mutant = wish.mutant
    gold, buggy = {PATH: program.source}, {PATH: mutant.source}
    public, hidden = spread(passes, Random(f"{seed}/spread/{program.name}/{digest(buggy)}"))
    return Task(
        task_id=f"{program.name}-{digest(gold)[:4]}/{mutant.operator}/{digest(buggy)[:4]}",
        sources=buggy,
        editable=(PATH,),
        issue=program.issue,
        public=Tests(cases=tuple(cases[i] for i in public)),
        hidden=Tests(cases=tuple(cases[i] for i in hidden)),
        bug_type=mutant.operator,
        gold=gold,
        split=wish.split,
        provenance={
            "source": "template" if program.template else "handwritten",
            "function": program.name,
            "family": program.family,
            "template": program.template,
            "line": mutant.line,
            "repairable": wish.repair is not None,
            "repair": list(wish.repair) if wish.repair else None,
        },
    )
