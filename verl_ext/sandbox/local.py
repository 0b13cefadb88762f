"""The local sandbox: a pool of warm templates, each in a bubblewrap jail, behind the sandbox protocol."""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from collections.abc import AsyncIterator, Mapping
from typing import Literal, NamedTuple

from verl_ext.sandbox import backend, oracle, proxy, shared
from verl_ext.sandbox.base import Limits, Outcome
from verl_ext.sandbox.slot import Slot
from verl_ext.types import BadInput, Case, InfrastructureError, Tests, Verdict

Isolation = Literal["auto", "bubblewrap", "none"]
_ENABLE = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces=15000, on Ubuntu also "
    "kernel.apparmor_restrict_unprivileged_userns=0, in Docker --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined), or set isolation='none' for code you trust"
)
_PROBE = Tests(module="probe", cases=(Case("f"),))


class _Slots(NamedTuple):
    """What one grade at a time needs: the jailed worker, the trusted pytest, and the jailed pytest."""

    worker: Slot
    tester: Slot
    beside: Slot


class LocalSandbox:
    """Grades on this machine; see :class:`~verl_ext.sandbox.base.Sandbox`.

    Attributes:
        isolation: ``bubblewrap``, or ``none`` when that was asked for.
    """

    def __init__(self, isolation: Isolation = "auto", workers: int = 2, limits: Limits | None = None) -> None:
        """Does not start anything; use :func:`open_sandbox`, which also checks that the isolation works.

        Args:
            isolation: ``auto`` and ``bubblewrap`` isolate or refuse; ``none`` runs code with the rights of this user.
            workers: Grades at one time, each with a warm interpreter (about 10 MB).
            limits: Default limits of a grade.
        """
        if isolation not in ("auto", "bubblewrap", "none"):
            raise BadInput(f"sandbox isolation={isolation!r}: must be auto, bubblewrap or none")
        if workers < 1:
            raise BadInput(f"sandbox workers={workers}: must be at least 1")
        self.isolation = "none" if isolation == "none" else "bubblewrap"
        self.limits = limits or Limits()
        start = backend.start_plain if self.isolation == "none" else backend.start_jailed
        # Those that run pytest files are started by the first grade that has some.
        beside = backend.start_plain_pytest if self.isolation == "none" else backend.start_jailed_pytest
        self._slots = [_Slots(Slot(start), Slot(backend.start_tester), Slot(beside)) for _ in range(workers)]
        self._free: asyncio.LifoQueue[_Slots] = asyncio.LifoQueue()
        for slot in reversed(self._slots):
            self._free.put_nowait(slot)
        self._closed = False

    async def grade(self, sources: Mapping[str, str], tests: Tests, limits: Limits | None = None) -> Verdict:
        """Judges a workspace; see :meth:`Sandbox.grade`."""
        if not len(tests):
            raise BadInput("grade: no tests; a verdict needs at least one case or pytest file")
        limits = limits or self.limits
        begin = time.perf_counter()
        async with self._slot() as slots:
            judged = []
            if tests.cases:
                outcomes = await oracle.evaluate(slots.worker, sources, tests, limits)
                judged += [oracle.judge(case, outcome) for case, outcome in zip(tests.cases, outcomes, strict=True)]
            if tests.files and tests.shared:
                judged += await shared.grade(slots.beside, sources, tests, limits)
            elif tests.files:
                judged += await proxy.grade(slots.worker, slots.tester, sources, tests, limits)
        results = tuple(result for result, _ in judged)
        failure = next((kind for _, kind in judged if kind is not None), None)
        passed = bool(results) and all(result.passed for result in results)
        trust = ("shared" if tests.shared else "proxy") if tests.files else "oracle"
        return Verdict(passed, results, trust, failure, time.perf_counter() - begin)

    async def evaluate(
        self, sources: Mapping[str, str], tests: Tests, limits: Limits | None = None
    ) -> tuple[Outcome, ...]:
        """Runs the cases without comparing; see :meth:`Sandbox.evaluate`."""
        async with self._slot() as slots:
            return tuple(await oracle.evaluate(slots.worker, sources, tests, limits or self.limits))

    async def aclose(self) -> None:
        """Ends every template and run."""
        self._closed = True
        await asyncio.gather(*(slot.close() for slots in self._slots for slot in slots))

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[_Slots]:
        if self._closed:
            raise InfrastructureError("sandbox: it is closed")
        slots = await self._free.get()
        try:
            yield slots
        finally:
            self._free.put_nowait(slots)


async def open_sandbox(isolation: Isolation = "auto", workers: int = 2, limits: Limits | None = None) -> LocalSandbox:
    """Starts a local sandbox and makes one run in it, so that a machine that cannot isolate says so now.

    Use it on one event loop, in a thread that lives as long: bubblewrap ends its jail when that thread ends.

    Raises:
        BadInput: One line on what is missing and how to enable it.
    """
    sandbox = LocalSandbox(isolation, workers, limits)
    if sandbox.isolation == "none":
        warnings.warn("sandbox: isolation='none' runs untrusted code with your rights", stacklevel=2)
    try:
        for slots in sandbox._slots:
            await slots.worker.open()
        outcome = (await sandbox.evaluate({"probe.py": "def f(): return 1"}, _PROBE))[0]
    except InfrastructureError as error:
        await sandbox.aclose()
        raise BadInput(f"{error}; {_ENABLE}") from None
    if outcome != Outcome(value=1):
        await sandbox.aclose()
        raise BadInput(f"sandbox: a trivial program fails in it ({outcome.error}); raise the limits")
    return sandbox
