"""The import proxy's middle: carries questions from the trusted test process to the jailed worker.

Both ends are slots, with a run each; limits, ids and time-outs towards the worker are those of the oracle, so a worker
that dies or stalls is the policy's fault here as there, and a test process that dies is the infrastructure's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from verl_ext.sandbox import oracle
from verl_ext.sandbox.base import Limits
from verl_ext.sandbox.slot import Channel, PolicyFault, Slot
from verl_ext.types import CaseResult, InfrastructureError, Tests

_HOST_LIMITS = Limits(output_bytes=64 << 20)
_GRACE = 20.0  # seconds of the test process's own work, on top of what the worker may take


async def grade(
    jail: Slot, host: Slot, sources: Mapping[str, str], tests: Tests, limits: Limits
) -> list[tuple[CaseResult, str | None]]:
    """Runs the pytest files against the workspace: a result and a kind of failure (None: passed) for each test."""
    refused = oracle.forbidden(sources)
    if refused:
        return [(CaseResult(name, False, error=refused), "forbidden") for name in tests.files]
    async with jail.run(limits) as (channel, end), host.run(_HOST_LIMITS) as (tester, _):
        left = limits.total_seconds
        try:
            begin = time.monotonic()
            await oracle.load(channel, sources, tests.module, limits, left)
            left -= time.monotonic() - begin
        except PolicyFault as fault:
            lost = await oracle.ended(fault, end)
            return [(CaseResult(name, False, error=lost.error), lost.failure) for name in tests.files]
        results = await _relay(channel, end, tester, sources, tests, limits, left)
        await end(patient=False)
    return [
        (CaseResult(name, bool(passed), error="" if passed else text), None if passed else kind or "wrong")
        for name, passed, kind, text in results
    ]


async def _relay(
    channel: Channel, end, tester: Channel, sources: Mapping[str, str], tests: Tests, limits: Limits, left: float
) -> list:
    tops = sorted({_module(path) for path in sources if path.endswith(".py")})
    message = {"files": dict(tests.files), "module": tests.module.partition(".")[0], "tops": tops}
    deadline = time.monotonic() + left + _GRACE
    lost = None
    try:
        while True:
            answer = await tester.exchange(message, deadline - time.monotonic())
            if "results" in answer:
                return answer["results"]
            if lost is None:
                begin = time.monotonic()
                question = {**answer["ask"], "cpu": limits.cpu_seconds}
                try:
                    message = await channel.ask(question, min(limits.call_seconds, left))
                except PolicyFault as fault:
                    lost = await oracle.ended(fault, end)
                left -= time.monotonic() - begin
            if lost is not None:
                message = {"lost": [lost.failure, lost.error]}
    except PolicyFault as fault:
        if lost is None and fault.kind == "timeout":
            return [[name, False, "timeout", "the tests did not end in time"] for name in tests.files]
        raise InfrastructureError(f"sandbox: the test process failed ({fault})") from None


def _module(path: str) -> str:
    return path.split("/", 1)[0].removesuffix(".py")
