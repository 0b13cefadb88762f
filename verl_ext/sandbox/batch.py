"""A run whose questions go out together and whose answers come back as lines: how backends far away are read.

What runs there may have said anything. Every answer must bear the random id of its question, in order; the first that
is missing or wrong ends the reading, and whoever is lost has failed.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from verl_ext.sandbox import oracle, wire
from verl_ext.sandbox.base import Limits, Outcome
from verl_ext.sandbox.slot import PolicyFault
from verl_ext.types import BadInput, Tests, Verdict


class CasesSandbox(ABC):
    """A sandbox far away, which grades cases alone: runs are the backend's, the comparison is made here.

    Attributes:
        backend: Its name in recipes.
        limits: Default limits of a grade.
    """

    backend: str
    limits: Limits

    async def grade(self, sources: Mapping[str, str], tests: Tests, limits: Limits | None = None) -> Verdict:
        """Judges a workspace; see :meth:`Sandbox.grade`."""
        begin = time.perf_counter()
        if not len(tests):
            raise BadInput("grade: no tests; a verdict needs at least one case")
        outcomes = await self.evaluate(sources, tests, limits)
        judged = [oracle.judge(case, outcome) for case, outcome in zip(tests.cases, outcomes, strict=True)]
        return oracle.verdict(judged, "oracle", begin)

    async def evaluate(
        self, sources: Mapping[str, str], tests: Tests, limits: Limits | None = None
    ) -> tuple[Outcome, ...]:
        """Runs the cases without comparing; see :meth:`Sandbox.evaluate`."""
        if tests.files:
            raise BadInput(f"sandbox backend {self.backend} grades cases; tasks with pytest files need backend=local")
        limits = limits or self.limits

        async def run(left: Sequence[dict], outcomes: list[Outcome]) -> Outcome | None:
            asked = questions(sources, tests.module, left[len(outcomes) :], limits)
            return await self._one_run(asked, outcomes, limits)

        deadline = time.monotonic() + limits.total_seconds
        return tuple(await oracle.in_runs(run, sources, tests, limits, deadline))

    @abstractmethod
    async def _one_run(self, asked: list[dict], outcomes: list[Outcome], limits: Limits) -> Outcome | None:
        """Asks in one run and appends what the calls did; the outcome of a worker that was lost, or None."""


def questions(
    sources: Mapping[str, str], module: str, left: Sequence[Mapping[str, Any]], limits: Limits
) -> list[dict[str, Any]]:
    """The requests of one run, in order, each with an id of its own: to load the workspace, then what is left."""
    load = {"op": "load", "sources": dict(sources), "module": module}
    return [{**question, "id": secrets.token_hex(8), "cpu": limits.cpu_seconds} for question in (load, *left)]


def collect(
    lines: Sequence[bytes], asked: Sequence[Mapping[str, Any]], outcomes: list[Outcome], missing: PolicyFault, most: int
) -> Outcome | None:
    """Reads the answers to :func:`questions`.

    Args:
        lines: One answer each, without newlines.
        asked: The requests.
        outcomes: What the calls did is appended here.
        missing: Why there is no answer, where there is none.
        most: Bytes of an answer.

    Returns:
        The outcome of a worker that was lost on the way, or None.
    """

    def reply(index: int) -> dict[str, Any]:
        if index >= len(lines):
            raise missing
        if len(lines[index]) > most:
            raise PolicyFault("protocol", f"an answer of more than {most} bytes")
        try:
            found = wire.loads(lines[index], most)
        except wire.WireError as error:
            raise PolicyFault("protocol", f"the answer is {error}") from None
        if type(found) is not dict or found.pop("id", None) != asked[index]["id"]:
            raise PolicyFault("protocol", "an answer to no question")
        return found

    try:
        match reply(0):
            case {"ok": True}:
                pass
            case {"exc": [str(name), str(why)]}:
                kind = "memory" if name == "MemoryError" else "import"
                lost = Outcome(error=f"{name}: {why}"[:400], failure=kind)
                outcomes += [lost] * (len(asked) - 1)  # the same in every run
                return lost
            case _:
                raise PolicyFault("protocol", "an answer of the wrong form")
    except PolicyFault as fault:
        return Outcome(error=str(fault), failure=fault.kind)
    for index in range(1, len(asked)):
        try:
            outcomes.append(oracle.outcome_of(reply(index)))
        except PolicyFault as fault:
            outcomes.append(Outcome(error=str(fault), failure=fault.kind))
            return outcomes[-1]
    return None
