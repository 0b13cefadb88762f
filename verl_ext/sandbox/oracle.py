"""The oracle: asks a jailed worker for one value at a time, and compares here, where no code of the policy runs.

Expected values never leave this process. An answer counts when it bears the question's random id, decodes to plain
data, and agrees by type and value; a run that ends early, answers ahead or says nothing has failed its remaining cases.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from verl_ext.sandbox import wire
from verl_ext.sandbox.base import Limits, Outcome
from verl_ext.sandbox.slot import Channel, PolicyFault, Slot
from verl_ext.types import BadInput, Case, CaseResult, Tests, Trust, Verdict

CPU_STATUS = 27  # SIGPROF, see lockdown.end_on_cpu_signal
_MOST_SOURCE = 4 << 20


async def evaluate(slot: Slot, sources: Mapping[str, str], tests: Tests, limits: Limits) -> list[Outcome]:
    """What each case's call did, in order. One jail for all cases, another one after it was lost, up to the limit."""
    deadline = time.monotonic() + limits.total_seconds

    async def run(questions: Sequence[dict], outcomes: list[Outcome]) -> Outcome | None:
        return await _one_jail(slot, sources, tests.module, questions, outcomes, limits, deadline)

    return await in_runs(run, sources, tests, limits, deadline)


async def in_runs(
    run: Callable[[Sequence[dict], list[Outcome]], Awaitable[Outcome | None]],
    sources: Mapping[str, str],
    tests: Tests,
    limits: Limits,
    deadline: float,
) -> list[Outcome]:
    """What each case's call did, by as many runs as the limits allow.

    Args:
        run: Asks the questions that have no outcome yet and appends theirs; the outcome of a lost worker, or None.
        sources, tests, limits: As for a grade.
        deadline: No further run begins after it, in ``time.monotonic`` seconds.
    """
    refused = forbidden(sources)
    if refused:
        return [Outcome(error=refused, failure="forbidden")] * len(tests.cases)
    try:
        questions = [
            {"op": "call", "call": c.call, "what": wire.encode((c.args, dict(c.kwargs), c.then))} for c in tests.cases
        ]
    except wire.WireError as error:
        raise BadInput(f"a case's arguments cannot be sent: {error}") from None
    outcomes: list[Outcome] = []
    for _ in range(limits.restarts + 1):
        lost = await run(questions, outcomes)
        if lost is None or len(outcomes) == len(questions) or time.monotonic() > deadline:
            break
    if len(outcomes) < len(questions):
        rest = Outcome(error=f"not run: {lost.error}", failure=lost.failure)
        outcomes += [rest] * (len(questions) - len(outcomes))
    return outcomes


async def load(
    channel: Channel,
    sources: Mapping[str, str],
    module: str,
    limits: Limits,
    seconds: float,
    first: dict | None = None,
) -> str:
    """Gives a worker the workspace and has it import the module; returns the id of ``first``.

    ``first`` is a question to send along, which saves a change of processes. That importing code could read it early
    gives nothing away: it holds an input, which the code is about to get, and no expected value.

    Raises:
        PolicyFault: ``import`` when that raises, or whatever befell the worker.
    """
    request = {"op": "load", "sources": dict(sources), "module": module, "cpu": limits.cpu_seconds}
    seconds = min(limits.call_seconds, seconds)
    token = await channel.put(request, seconds)
    following = await channel.put(first, seconds) if first is not None else ""
    match await channel.answer(token, seconds):
        case {"ok": True}:
            return following
        case {"exc": [str(name), str(text)]}:
            raise PolicyFault("memory" if name == "MemoryError" else "import", f"{name}: {text}"[:400])
    raise PolicyFault("protocol", "an answer of the wrong form")


async def ended(fault: PolicyFault, end: Any) -> Outcome:
    """The outcome of a lost worker: a limit's signal explains a death better than the closed channel does."""
    status = await end(patient=fault.kind == "died")
    kind, text = fault.kind, str(fault)
    if kind == "died":
        kind = "timeout" if status == CPU_STATUS else "died"
        text = "out of CPU time" if kind == "timeout" else f"the worker ended with status {status}"
    return Outcome(error=text, failure=kind)


async def _one_jail(
    slot: Slot,
    sources: Mapping[str, str],
    module: str,
    questions: Sequence[dict],
    outcomes: list[Outcome],
    limits: Limits,
    deadline: float,
) -> Outcome | None:
    """Runs the cases that are left, appending to ``outcomes``; the outcome of a lost worker, or None."""
    async with slot.run(limits) as (channel, end):
        left = [{**question, "cpu": limits.cpu_seconds} for question in questions[len(outcomes) :]]
        try:
            token = await load(channel, sources, module, limits, deadline - time.monotonic(), left[0])
        except PolicyFault as fault:
            lost = await ended(fault, end)
            if fault.kind in ("import", "memory"):  # the same in every jail
                outcomes += [lost] * (len(questions) - len(outcomes))
            return lost
        for index, question in enumerate(left):
            seconds = min(limits.call_seconds, deadline - time.monotonic())
            try:
                if index:
                    token = await channel.put(question, seconds)
                outcomes.append(outcome_of(await channel.answer(token, seconds)))
            except PolicyFault as fault:
                lost = await ended(fault, end)
                outcomes.append(lost)
                return lost
        await end(patient=False)  # all of the run is gone before anybody reads the score
    return None


def outcome_of(reply: dict[str, Any]) -> Outcome:
    """A worker's reply to a call, decoded; :class:`PolicyFault` when it has not the form of one."""
    match reply:
        case {"value": value}:
            try:
                return Outcome(value=wire.decode(value))
            except (wire.WireError, RecursionError) as error:
                raise PolicyFault("protocol", f"the answer is {error}") from None
        case {"exc": [str(name), str(text)]}:
            if name == "MemoryError":
                return Outcome(raised=name, error="out of memory", failure="memory")
            return Outcome(raised=name[:100], error=text[:400])
        case {"odd": str(text)}:
            return Outcome(error=text[:400], failure="wrong")
    raise PolicyFault("protocol", "an answer of the wrong form")


def judge(case: Case, outcome: Outcome) -> tuple[CaseResult, str | None]:
    """Compares an outcome with what the case expects; the result, and the kind of failure or None."""
    expected = f"raises {case.raises}" if case.raises else show(case.expected)
    name = describe(case)
    if outcome.failure and not (case.raises and outcome.raised == case.raises):
        got = f"raises {outcome.raised}" if outcome.raised else ""
        return CaseResult(name, False, expected, got, outcome.error or outcome.failure), outcome.failure
    if outcome.raised:
        passed = outcome.raised == case.raises
        error = "" if passed else f"{outcome.raised}: {outcome.error}" if outcome.error else outcome.raised
        return CaseResult(name, passed, expected, f"raises {outcome.raised}", error), None if passed else "exception"
    passed = not case.raises and wire.agree(outcome.value, case.expected, case.compare, case.tolerance)
    return CaseResult(name, passed, expected, show(outcome.value)), None if passed else "wrong"


def verdict(judged: Sequence[tuple[CaseResult, str | None]], trust: Trust, begin: float) -> Verdict:
    """All results together, of a grade that began at ``begin`` (``time.perf_counter`` seconds)."""
    results = tuple(result for result, _ in judged)
    failure = next((kind for _, kind in judged if kind is not None), None)
    passed = bool(results) and all(result.passed for result in results)
    return Verdict(passed, results, trust, failure, time.perf_counter() - begin)


def describe(case: Case) -> str:
    """Readable call, e.g. ``clamp(5, 0, hi=3)`` or ``Stack(); push(1); pop()``."""
    args = [show(a, 80) for a in case.args] + [f"{k}={show(v, 80)}" for k, v in case.kwargs.items()]
    parts = [f"{case.call}({', '.join(args)})"]
    parts += [f"{method}({', '.join(show(a, 80) for a in arguments)})" for method, arguments in case.then]
    text = "; ".join(parts)
    return text if len(text) <= 300 else text[:297] + "..."


def show(value: Any, most: int = 200) -> str:
    """``repr`` of a plain value, the same in every process (sets are ordered), cut to ``most`` characters."""
    text = _text(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _text(value: Any) -> str:
    kind = type(value)
    if kind in (set, frozenset):
        inner = "{" + ", ".join(sorted(map(_text, value))) + "}" if value else ""
        return inner if kind is set and value else f"{kind.__name__}({inner})"
    if kind is dict:
        return "{" + ", ".join(f"{_text(k)}: {_text(v)}" for k, v in value.items()) + "}"
    if kind is list:
        return "[" + ", ".join(map(_text, value)) + "]"
    if kind is tuple:
        return "(" + ", ".join(map(_text, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def forbidden(sources: Mapping[str, str]) -> str:
    """Why this workspace may not be run (a path that leaves it, or too much text), ``""`` when it may."""
    for path in sources:
        parts = path.split("/")
        if not path or "\0" in path or "\\" in path or any(part in ("", ".", "..") for part in parts):
            return f"forbidden path {path!r}"
    size = sum(map(len, sources.values()))
    return f"sources of {size} characters, the limit is {_MOST_SOURCE}" if size > _MOST_SOURCE else ""
