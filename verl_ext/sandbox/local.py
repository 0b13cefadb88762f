"""The local sandbox: a pool of warm templates behind the sandbox protocol, at the best level that holds here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import warnings
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from verl_ext.sandbox import backend, oracle, proxy, shared
from verl_ext.sandbox.attempts import attempts
from verl_ext.sandbox.base import Limits, Outcome
from verl_ext.sandbox.slot import PolicyFault, Slot
from verl_ext.types import BadInput, Case, InfrastructureError, Tests, Verdict

Level = Literal["bubblewrap", "landlock", "none"]
Isolation = Literal["auto", "bubblewrap", "landlock", "none"]
LEVELS = {"bubblewrap": backend.start_jailed, "landlock": backend.start_landlocked, "none": backend.start_plain}
ENABLE = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces=15000, on Ubuntu also "
    "kernel.apparmor_restrict_unprivileged_userns=0, in Docker --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined) for bubblewrap, or boot with lsm=landlock,... for landlock, or set "
    "isolation='none' for code you trust"
)
_log = logging.getLogger("verl_ext")
_granted: set[str] = set()  # levels at which every attempt failed, in this process
_PROBE = Tests(module="probe", cases=(Case("f"),))


@dataclass(frozen=True)
class Script:
    """A program to run: its text, input, further files (path to base64), paths to return, seconds it may take."""

    code: str
    stdin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    fetch: tuple[str, ...] = ()
    seconds: float = 10.0


@dataclass(frozen=True)
class Ran:
    """What a program did, in its own word.

    Attributes:
        code: Exit status, negative for a signal; None when it was ended.
        out, err: Standard output and error; ``cut``: there was more.
        files: Path to base64 of the files asked for that are there.
        seconds: Its wall-clock, None when it was lost.
        failure, error: None and ``""``, or why there is no exit status.
    """

    code: int | None = None
    out: str = ""
    err: str = ""
    cut: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    failure: str | None = None
    error: str = ""


class _Slots(NamedTuple):
    """What one grade at a time needs: the jailed worker, the trusted pytest, and the jailed pytest."""

    worker: Slot
    tester: Slot
    beside: Slot


class LocalSandbox:
    """Grades on this machine; see :class:`~verl_ext.sandbox.base.Sandbox`.

    Attributes:
        isolation: The level in force: ``bubblewrap``, ``landlock``, or ``none`` when that was asked for.
    """

    def __init__(self, isolation: Level = "bubblewrap", workers: int = 2, limits: Limits | None = None) -> None:
        """Does not start anything; use :func:`open_sandbox`, which also checks that the isolation works.

        Args:
            isolation: ``bubblewrap`` or ``landlock``; ``none`` runs code with the rights of this user.
            workers: Grades at one time, each with a warm interpreter (about 10 MB).
            limits: Default limits of a grade.
        """
        if isolation not in LEVELS:
            raise BadInput(f"sandbox isolation={isolation!r}: must be auto, {', '.join(LEVELS)}")
        if workers < 1:
            raise BadInput(f"sandbox workers={workers}: must be at least 1")
        self.isolation = isolation
        self.limits = limits or Limits()
        start = LEVELS[isolation]
        # Those that run pytest files are started by the first grade that has some.
        beside = partial(start, pytest=True)
        self._slots = [_Slots(Slot(start), Slot(backend.start_tester), Slot(beside)) for _ in range(workers)]
        self._free = self._slots[::-1]  # the one used last is the warmest
        # Not a queue: a caller that asks again at once takes a queue's item before the one that was woken for it.
        self._turn = asyncio.Semaphore(workers)
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
        trust = ("shared" if tests.shared else "proxy") if tests.files else "oracle"
        return oracle.verdict(judged, trust, begin)

    async def evaluate(
        self, sources: Mapping[str, str], tests: Tests, limits: Limits | None = None
    ) -> tuple[Outcome, ...]:
        """Runs the cases without comparing; see :meth:`Sandbox.evaluate`."""
        async with self._slot() as slots:
            return tuple(await oracle.evaluate(slots.worker, sources, tests, limits or self.limits))

    async def run(self, script: Script, most_output: int, limits: Limits | None = None) -> Ran:
        """Runs a program and says what it did.

        Args:
            script: The program.
            most_output: Bytes kept of each output.
            limits: ``call_seconds`` bounds it from outside and must be longer than the script's own ``seconds``.

        Raises:
            BadInput: A path leaves the program's directory.
            InfrastructureError: The sandbox failed.
        """
        limits = limits or self.limits
        if refused := oracle.forbidden({**dict.fromkeys(script.files, ""), **dict.fromkeys(script.fetch, "")}):
            raise BadInput(refused)
        request = {
            "op": "script",
            "code": script.code,
            "stdin": script.stdin,
            "files": dict(script.files),
            "fetch": list(script.fetch),
            "seconds": script.seconds,
            "most": most_output,
        }
        async with self._slot() as slots, slots.worker.run(limits) as (channel, end):
            try:
                reply = await channel.ask(request, limits.call_seconds)
            except PolicyFault as fault:
                lost = await oracle.ended(fault, end)
                return Ran(failure=lost.failure, error=lost.error)
        match reply:
            case {"code": int() | None as code, "out": str(out), "err": str(err), "cut": bool(cut)}:
                failure = "timeout" if code is None else None
                files = {path: data for path, data in reply["files"].items() if path in script.fetch}
                return Ran(code, out, err, cut, files, float(reply["seconds"]), failure)
            case {"exc": [str(name), str(text)]}:
                return Ran(failure="exception", error=f"{name}: {text}"[:400])
        return Ran(failure="protocol", error="an answer of the wrong form")

    async def aclose(self) -> None:
        """Ends every template and run."""
        self._closed = True
        await asyncio.gather(*(slot.close() for slots in self._slots for slot in slots))

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[_Slots]:
        async with self._turn:
            if self._closed:
                raise InfrastructureError("sandbox: it is closed")
            slots = self._free.pop()
            try:
                yield slots
            finally:
                self._free.append(slots)


async def open_sandbox(isolation: Isolation = "auto", workers: int = 2, limits: Limits | None = None) -> LocalSandbox:
    """Starts a local sandbox and tries to break it, so that a machine that cannot isolate says so now.

    Use it on one event loop, in a thread that lives as long: the jails end when that thread ends.

    Args:
        isolation: A level, which must hold here, or ``auto``: ``bubblewrap``, else ``landlock``, else none at all.
        workers: Grades at one time, each with a warm interpreter (about 10 MB).
        limits: Default limits of a grade.

    Raises:
        BadInput: One line on what is missing and how to enable it.
    """
    if isolation == "none":
        warnings.warn("sandbox: isolation='none' runs untrusted code with your rights", stacklevel=2)
        return await started(LocalSandbox("none", workers, limits))
    refused = []
    for level in ("bubblewrap", "landlock") if isolation == "auto" else (isolation,):
        sandbox = LocalSandbox(level, workers, limits)
        try:
            await _grant(await started(sandbox))
        except InfrastructureError as error:
            await sandbox.aclose()
            refused.append(f"{level}: {error}")
            continue
        except BaseException:
            await sandbox.aclose()
            raise
        if refused:
            _log.warning("sandbox: isolation %s, which protects less (docs/sandbox.md); %s", level, refused[0])
        return sandbox
    raise BadInput(f"sandbox: no isolation works here: {'; '.join(refused)}; {ENABLE}")


async def started(sandbox: LocalSandbox) -> LocalSandbox:
    """Starts its interpreters and makes one run.

    Raises:
        InfrastructureError: The level does not work here.
        BadInput: It does, and the limits leave no room for a trivial program.
    """
    try:
        for slots in sandbox._slots:
            await slots.worker.open()
        outcome = (await sandbox.evaluate({"probe.py": "def f(): return 1"}, _PROBE))[0]
        if outcome != Outcome(value=1):
            raise BadInput(f"sandbox: a trivial program fails in it ({outcome.error}); raise the limits")
    except BaseException:
        await sandbox.aclose()
        raise
    return sandbox


async def _grant(sandbox: LocalSandbox) -> None:
    """Raises :class:`InfrastructureError` where an attempt at something the level must not allow works."""
    if sandbox.isolation in _granted:
        return
    broken = [check for check in await attempts(sandbox) if not check.ok]
    if broken:
        found = "; ".join(f"{check.name}: no ({check.detail})" for check in broken)
        raise InfrastructureError(f"it does not hold: {found}")
    _granted.add(sandbox.isolation)
