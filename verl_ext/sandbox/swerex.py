"""A sandbox on SWE-ReX deployments: the worker runs there, the comparison stays here. For code that needs an image.

A run is one command in a deployment of its own, which is stopped before anybody reads the score. In Docker that is a
fresh container; the worker in it is nobody, without capabilities, network sockets or more memory than its limits say.
swe-rex's ``local`` deployment is **no isolation**: a process with the rights of this user, for trying things out.

What comes back is the policy's word: answers count by their random ids and their values. Whose failure a lost run is:
the command prints a word before the policy's code exists. A run that says nothing is repeated when a trivial program
works in a fresh deployment; lost again, it is the code's doing, so that a policy cannot have its sessions left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from verl_ext.sandbox import backend, batch, oracle, wire
from verl_ext.sandbox.base import Limits, Outcome
from verl_ext.sandbox.places import Places
from verl_ext.sandbox.slot import PolicyFault
from verl_ext.types import BadInput, InfrastructureError

if TYPE_CHECKING:
    from swerex.runtime.abstract import CommandResponse

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
_PAUSE_S = 1.0
_HEALTHY_S = 5.0  # so long a good canary is believed
_MARGIN_S = 15.0  # for starting a process and moving texts, on top of the run's own seconds
_CPU_STATUSES = (oracle.CPU_STATUS, -oracle.CPU_STATUS)
_MOST_ANSWER = 256 << 20
_PROGRAM = """
import json, os, shutil, sys
sys.path = [path for path in sys.path if path]
root, package = {root!r}, {package!r}
for path, text in json.loads(package).items():
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "w") as file:
        file.write(text)
sys.path.insert(0, root)
from verl_ext.sandbox.remote_host import main
sys.path.remove(root)
shutil.rmtree(root)
main({ready!r}, json.loads({limits!r}), {nobody!r}, {questions!r})
"""
_FILES = ("remote_host.py",)
_CANARY = {"canary.py": "def f(): return 42"}
_CALM = Limits(cpu_seconds=10.0, total_seconds=20.0)


@dataclass(frozen=True)
class _Said:
    """What a run printed: the answers, and how it says that it ended (None: nothing, it was lost)."""

    answers: list[bytes]
    fault: str | None
    status: int | None
    lost: str = ""  # why there is no end


class SwerexSandbox(batch.CasesSandbox):
    """Grades in SWE-ReX deployments; see :class:`~verl_ext.sandbox.base.Sandbox`. Cases only, no pytest files.

    Attributes:
        isolation: ``docker``, or ``none`` for the local deployment.
    """

    backend = "swerex"

    def __init__(
        self,
        deployment: str = "docker",
        image: str = "",
        concurrency: int = 16,
        limits: Limits | None = None,
        isolation: str = "auto",
    ) -> None:
        """Starts nothing but, for Docker, a process that ends the containers should this one be killed.

        Args:
            deployment: ``docker``: a container for each run. ``local``: a process, which does not isolate.
            image: For Docker: has ``python3`` (3.10 or later, whose packages the code may import) and
                ``swerex-remote``.
            concurrency: Runs at one time from this machine, all processes together.
            limits: Default limits of a grade.
            isolation: ``none`` is asked for with ``local``, and means it.
        """
        if find_spec("swerex") is None:
            raise BadInput("sandbox backend swerex: swe-rex is not installed; pip install 'verl_ext[swerex]'")
        if deployment not in ("docker", "local"):
            raise BadInput(f"sandbox deployment={deployment!r}: must be docker or local")
        if deployment == "local" and isolation != "none":
            raise BadInput(
                "sandbox deployment=local does not isolate: code has your rights; say isolation='none' for code you "
                "trust, else use deployment=docker"
            )
        if deployment == "docker" and not image:
            raise BadInput("sandbox deployment=docker: no image; give one with python3 and swerex-remote")
        if deployment == "docker" and shutil.which("docker") is None:
            raise BadInput("sandbox deployment=docker: no docker command; install it, or use backend=local")
        if deployment == "local":
            warnings.warn("sandbox: swe-rex's local deployment runs untrusted code with your rights", stacklevel=2)
        self.isolation = "docker" if deployment == "docker" else "none"
        self.limits = limits or Limits()
        self._image = image
        self._places = Places(f"swerex\n{deployment}", concurrency)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="swerex")
        self._good = float("-inf")
        self._running: set[asyncio.Task] = set()
        self._closed = False
        self._keeper = None
        if deployment == "docker":
            from verl_ext.sandbox import swerex_runtime

            self._keeper = swerex_runtime.Keeper()

    async def _one_run(self, asked: list[dict], outcomes: list[Outcome], limits: Limits) -> Outcome | None:
        said = await self._answered(asked, limits)
        return batch.collect(said.answers, asked, outcomes, _missing(said), limits.output_bytes)

    async def check(self) -> None:
        """Raises :class:`InfrastructureError` when a trivial program does not run."""
        self._good = float("-inf")
        await self._canary()

    async def aclose(self) -> None:
        """Ends every container, and waits for the runs that are under way."""
        self._closed = True
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.close)
        await asyncio.gather(*self._running, return_exceptions=True)
        self._threads.shutdown(wait=False)

    async def _answered(self, asked: list[dict], limits: Limits) -> _Said:
        """What a run said, by as many tries as its failures deserve."""
        problem, lost = "", None
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_PAUSE_S * attempt)
            try:
                said = await self._run(asked, limits)
                if not said.lost:
                    return said
                self._good = float("-inf")
                await self._canary()
            except InfrastructureError as error:
                problem = f"{error} (try {attempt + 1} of {_ATTEMPTS})"
                logger.warning("swerex: %s", problem)
                continue
            if lost is not None:  # by mischance; a second time, it is the code's doing
                return said
            lost, problem = said, said.lost
        raise InfrastructureError(f"sandbox: {problem}")

    async def _canary(self) -> None:
        """Raises :class:`InfrastructureError` unless a trivial program runs, or did a moment ago."""
        if time.monotonic() - self._good < _HEALTHY_S:
            return
        asked = batch.questions(
            _CANARY, "canary", [{"op": "call", "call": "f", "what": wire.encode(((), {}, ()))}], _CALM
        )
        said = await self._run(asked, _CALM)
        outcomes: list[Outcome] = []
        batch.collect(said.answers, asked, outcomes, _missing(said), 1 << 16)
        if outcomes != [Outcome(value=42)]:
            why = outcomes[0].error if outcomes else said.lost or _missing(said)
            raise InfrastructureError(f"a trivial program does not run: {why}")
        self._good = time.monotonic()

    async def _run(self, asked: list[dict], limits: Limits) -> _Said:
        """One run in a deployment of its own.

        Raises:
            InfrastructureError: It failed before any code of the policy was there.
        """
        if self._closed:
            raise InfrastructureError("sandbox: it is closed")
        # A caller that is cancelled leaves at once; the run keeps its place until it is gone.
        task = asyncio.create_task(self._placed(asked, limits))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _placed(self, asked: list[dict], limits: Limits) -> _Said:
        async with self._places.one():
            work = partial(asyncio.run, self._deployed(asked, limits))
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _deployed(self, asked: list[dict], limits: Limits) -> _Said:
        """A deployment's whole life, in a thread and on an event loop of its own: swe-rex blocks it."""
        from swerex.runtime.abstract import Command, WriteFileRequest

        from verl_ext.sandbox import swerex_runtime

        seconds = limits.total_seconds + _MARGIN_S
        most = min(_MOST_ANSWER, 2 * (len(asked) + 2) * limits.output_bytes)  # twice: as JSON within JSON
        if self.isolation == "none":
            deployment, folder = swerex_runtime.local(), tempfile.mkdtemp(prefix="verl-ext-swerex-")
            argv = [backend.interpreter()[0], "-s", "-S", "-P", "-B"]
            env = {"PYTHONHASHSEED": "0", "PATH": os.defpath, "TMPDIR": folder}
        else:
            deployment, folder = swerex_runtime.docker(self._image, limits, self._keeper.label), "/tmp"
            argv, env = (
                ["python3", "-s", "-B"],
                None,
            )  # with the image's packages and environment: that is what it is for
        ready = secrets.token_hex(8)
        program = _PROGRAM.format(
            root=f"{folder}/host-{ready}",
            package=json.dumps(_package()),
            ready=ready,
            limits=json.dumps(asdict(limits)),
            nobody=self.isolation != "none",
            questions=f"{folder}/questions-{ready}",
        )
        try:
            try:
                await deployment.start()
                runtime = swerex_runtime.runtime(deployment, seconds + _MARGIN_S, most)
                texts = {"program": program, "questions": "".join(wire.dumps(question).decode() for question in asked)}
                for name, text in texts.items():
                    await runtime.write_file(WriteFileRequest(path=f"{folder}/{name}-{ready}", content=text))
            except Exception as error:  # swe-rex raises of all kinds
                raise InfrastructureError(f"swe-rex did not start: {_line(error)}") from None
            command = Command(command=[*argv, f"{folder}/program-{ready}"], timeout=seconds, env=env, cwd="/")
            try:
                response = await runtime.execute(command)
            except Exception as error:
                kind = "timeout" if isinstance(error, TimeoutError) else "died"
                return _Said([], kind, None, f"nothing came back: {type(error).__name__}")
            return _said(ready, response)
        finally:
            try:
                await swerex_runtime.stop(deployment)
            except Exception as error:
                logger.warning("swerex: a deployment did not stop (%s); it is ended on closing", _line(error))
            if self.isolation == "none":
                shutil.rmtree(folder, ignore_errors=True)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


@cache
def _package() -> dict[str, str]:
    """What the far side needs of this package: what a jail needs, and the program of a run."""
    jail = {path: text.decode() for path, text in backend._jail_files()}
    return jail | {f"verl_ext/sandbox/{name}": (Path(__file__).parent / name).read_text() for name in _FILES}


def _said(ready: str, response: CommandResponse) -> _Said:
    """What a command printed; :class:`InfrastructureError` when its worker did not stand."""
    *lines, rest = response.stdout.encode("utf-8", "surrogatepass").split(b"\n")
    if not lines or lines[0] != ready.encode():
        with contextlib.suppress(ValueError, TypeError, LookupError):
            raise InfrastructureError(f"a run did not start: {json.loads(lines[0])['setup']}"[:400])
        words = (response.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return _Said([], "died", None, f"the run did not begin, status {response.exit_code}: {words}"[:400])
    try:
        word, _, end = lines[-1].partition(b" ")
        found = json.loads(end) if word == ready.encode() and not rest else {}
        return _Said(lines[1:-1], found["fault"], found["status"])
    except (ValueError, TypeError, KeyError):
        return _Said(lines[1:], "died", None, f"the run was cut off, status {response.exit_code}")


def _missing(said: _Said) -> PolicyFault:
    """Why an answer is not there."""
    if said.lost:
        return PolicyFault("timeout" if said.fault == "timeout" else "died", said.lost)
    if said.fault == "timeout":
        return PolicyFault("timeout", "no answer in time")
    if said.fault == "protocol":
        return PolicyFault("protocol", "an answer is too long")
    if said.status in _CPU_STATUSES:
        return PolicyFault("timeout", "out of CPU time")
    return PolicyFault("died", f"the worker ended with status {said.status}")
