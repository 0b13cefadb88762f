"""From a program and the bugs to try in it, the tasks that hold: everything here is decided by running code in a jail.

The reference runs three times on a pool of drawn inputs; what it answers is the expected value, and an input on which
two runs differ is dropped. A mutant runs once on the whole pool, which tells where it fails and lets the failing inputs
be spread over public and hidden tests; then twice more on the task's own tests. So each half of a task's tests shows
the bug, and its verdict was the same three times.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from verl_ext.gym.plan import Wish
from verl_ext.gym.program import Program
from verl_ext.sandbox import Limits, Sandbox
from verl_ext.sandbox.base import Outcome
from verl_ext.sandbox.wire import agree, encode
from verl_ext.types import Case, Task, Tests, digest

PUBLIC, HIDDEN = 4, 8
POOL = 32
"""Inputs drawn for a program."""
RUNS = 3
LIMITS = Limits(cpu_seconds=1.0, call_seconds=6.0, total_seconds=12.0, restarts=0)
REASONS = ("reference", "equivalent", "weak", "hanging", "crashing", "flaky", "duplicate")
"""Why a mutant is rejected: its reference cannot be used; it passes everything; only one input shows it; it does not
end; it kills its worker; its runs differ; its text stands elsewhere (found by :mod:`verl_ext.gym.build`)."""
PATH = "solution.py"
_CRASHES = frozenset({"memory", "died", "protocol", "forbidden", "import"})


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
    cases = await reference_cases(program, sandbox, seed)
    if len(cases) < PUBLIC + HIDDEN:
        return Examined(rejected=Counter({"reference": len(wishes)}))
    results = await asyncio.gather(*(_try(program, wish, cases, sandbox, seed) for wish in wishes))
    tasks = tuple(result for result in results if isinstance(result, Task))
    return Examined(tasks, Counter(result for result in results if isinstance(result, str)))


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


async def reference_cases(program: Program, sandbox: Sandbox, seed: int) -> list[Case]:
    """The drawn cases with what the reference answers; those it does not answer three times alike are left out."""
    drawn = draw(program, seed)
    runs = await asyncio.gather(*(_evaluate(program.source, drawn, sandbox) for _ in range(RUNS)))
    cases = []
    for case, outcomes in zip(drawn, zip(*runs, strict=True), strict=True):
        first = outcomes[0]
        if first.failure is not None or (first.raised and not _intended(program, first.raised)):
            continue
        expected = replace(case, raises=first.raised) if first.raised else replace(case, expected=first.value)
        if all(_answers(outcome, expected) for outcome in outcomes):
            cases.append(expected)
    return cases


def _intended(program: Program, exception: str) -> bool:
    """An exception counts as an answer only where the program speaks of it; otherwise the input was out of bounds."""
    return exception in program.source or exception in program.issue


def _answers(outcome: Outcome, case: Case) -> bool:
    if outcome.failure is not None:
        return False
    if case.raises is not None or outcome.raised is not None:
        return outcome.raised == case.raises
    return agree(outcome.value, case.expected, case.compare, case.tolerance)


async def _evaluate(source: str, cases: Sequence[Case], sandbox: Sandbox) -> tuple[Outcome, ...]:
    return await sandbox.evaluate({PATH: source}, Tests(cases=tuple(cases)), LIMITS)


async def _try(program: Program, wish: Wish, cases: Sequence[Case], sandbox: Sandbox, seed: int) -> Task | str:
    """The task, or the reason why there is none."""
    outcomes = await _evaluate(wish.mutant.source, cases, sandbox)
    failures = {outcome.failure for outcome in outcomes}
    if "timeout" in failures:
        return "hanging"
    if failures & _CRASHES:
        return "crashing"
    passes = [_answers(outcome, case) for outcome, case in zip(outcomes, cases, strict=True)]
    if all(passes):
        return "equivalent"
    if passes.count(False) < 2:
        return "weak"
    public, hidden = spread(passes, Random(f"{seed}/spread/{program.name}/{digest({PATH: wish.mutant.source})}"))
    chosen = [*public, *hidden]
    tests = Tests(cases=tuple(cases[i] for i in chosen))
    for _ in range(RUNS - 1):
        verdict = await sandbox.grade({PATH: wish.mutant.source}, tests, LIMITS)
        if [case.passed for case in verdict.cases] != [passes[i] for i in chosen]:
            return "flaky"
    return _task(program, wish, [cases[i] for i in public], [cases[i] for i in hidden])


def spread(passes: Sequence[bool], rng: Random) -> tuple[list[int], list[int]]:
    """Positions of the public and the hidden cases: disjoint, each with a failing one, with passing ones if there are.

    Up to half of the public and of the hidden cases fail, more only where too few pass.

    Args:
        passes: Whether the mutant passes each case; at least two are False.
        rng: Decides which.
    """
    failing = rng.sample(wrong := [i for i, ok in enumerate(passes) if not ok], len(wrong))
    passing = rng.sample(right := [i for i, ok in enumerate(passes) if ok], len(right))
    shown = max(1, min(PUBLIC // 2, len(failing) // 3))
    public, failing = failing[:shown], failing[shown:]
    hidden, failing = failing[: HIDDEN // 2], failing[HIDDEN // 2 :]
    # What is left goes first to the public tests: they are what makes a bug visible.
    rest = passing + failing
    public += rest[: PUBLIC - len(public)]
    rest = rest[PUBLIC - shown :]
    hidden += rest[: HIDDEN - len(hidden)]
    return sorted(public), sorted(hidden)


def _task(program: Program, wish: Wish, public: list[Case], hidden: list[Case]) -> Task:
    mutant = wish.mutant
    gold, buggy = {PATH: program.source}, {PATH: mutant.source}
    return Task(
        task_id=f"{program.name}-{digest(gold)[:4]}/{mutant.operator}/{digest(buggy)[:4]}",
        sources=buggy,
        editable=(PATH,),
        issue=program.issue,
        public=Tests(cases=tuple(public)),
        hidden=Tests(cases=tuple(hidden)),
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
