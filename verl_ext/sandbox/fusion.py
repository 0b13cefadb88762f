"""A sandbox on SandboxFusion servers: the worker runs there, the comparison stays here.

One request carries the workspace, this package's worker and all inputs of a grade; the program prints one answer a
line, each with the random id of its question. The server's own status is not believed: an answer that is missing, cut
or out of order is a failure. Whose failure it is: the program prints one line before it touches the policy's code. With
it the code has failed, without it the server; and whenever that is in doubt, a trivial program decides: code that stops
only its own program, twice, cannot have its session left out as a fault of the infrastructure.

The server decides how well the code is shut in; SandboxFusion's isolation ``none`` is no boundary (docs/sandbox.md).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from verl_ext.sandbox import batch, oracle, wire
from verl_ext.sandbox.base import Limits, Outcome
from verl_ext.sandbox.places import Places
from verl_ext.sandbox.slot import PolicyFault
from verl_ext.types import BadInput, InfrastructureError

_ATTEMPTS = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_HEALTHY_S = 5.0  # so long a good canary is believed
_CANARY_S = 5.0
_MARGIN_S = 15.0  # for the network and the server's queue, on top of a program's own seconds
_STATUSES = {oracle.CPU_STATUS, 128 + oracle.CPU_STATUS, -oracle.CPU_STATUS}
_PROGRAM = """
import io, json, os, sys, tempfile
given = json.loads({given!r})
answers = os.dup(1)
nowhere = os.open(os.devnull, os.O_RDWR)
for fd in range(3):
    os.dup2(nowhere, fd)
root = tempfile.mkdtemp()
for path, text in given["package"].items():
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    open(os.path.join(root, path), "w").write(text)
sys.path.insert(0, root)
from verl_ext.sandbox import worker
sys.path.remove(root)
class Channel:
    def makefile(self, *a, **k):
        return io.BytesIO(given["questions"].encode())
    def sendall(self, data):
        while data:
            data = data[os.write(answers, data):]
os.write(answers, given["ready"].encode() + b"\\n")
worker.serve(Channel(), os.path.join(root, "work"))
"""
_FILES = ("wire.py", "beneath.py", "worker.py")
_PACKAGE = {
    "verl_ext/__init__.py": "",
    "verl_ext/sandbox/__init__.py": "",
    **{
        f"verl_ext/sandbox/{n}": (Path(__file__).parent / n).read_text() for n in ("wire.py", "beneath.py", "worker.py")
    },
}


@dataclass
class _Endpoint:
    """A server: when it last ran a trivial program, and until when it is left alone after failures."""

    url: str
    good: float = float("-inf")
    failures: int = 0
    rest_until: float = 0.0

    def failed(self) -> None:
        self.failures += 1
        self.good = float("-inf")
        self.rest_until = time.monotonic() + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self.failures - 1))

    def worked(self) -> None:
        self.failures, self.rest_until = 0, 0.0


class FusionSandbox(batch.CasesSandbox):
    """Grades on SandboxFusion servers; see :class:`~verl_ext.sandbox.base.Sandbox`. Cases only, no pytest files.

    Args:
        endpoints: URLs of ``run_code``, e.g. ``http://sandbox-1:8080/run_code``. A request goes to the one with the
            fewest failures, and on to the next when that one fails.
        concurrency: Requests at one time from this machine, all processes of a run together.
        limits: Default limits of a grade. Memory is left to the server: with SandboxFusion's ``memory_limit_MB``
            threads and numpy break.
        token: Sent as ``Authorization: Bearer`` when set.
    """

    backend = isolation = "fusion"

    def __init__(
        self, endpoints: Sequence[str], concurrency: int = 16, limits: Limits | None = None, token: str = ""
    ) -> None:
        if not endpoints:
            raise BadInput("sandbox backend fusion: no endpoints; give URLs such as http://HOST:8080/run_code")
        for url in endpoints:
            if not url.startswith(("http://", "https://")):
                raise BadInput(f"sandbox endpoint {url!r}: must begin with http:// or https://")
        self.limits = limits or Limits()
        self._endpoints = [_Endpoint(url) for url in endpoints]
        self._places = Places("fusion\n" + "\n".join(sorted(endpoints)), concurrency)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.AsyncClient(headers=headers, limits=httpx.Limits(max_connections=None))

    async def healthy(self) -> list[str]:
        """URLs of the endpoints that run a trivial program now."""
        works = await asyncio.gather(*(self._canary(endpoint) for endpoint in self._endpoints))
        return [endpoint.url for endpoint, good in zip(self._endpoints, works, strict=True) if good]

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _one_run(self, asked: list[dict], outcomes: list[Outcome], limits: Limits) -> Outcome | None:
        result = await self._answered(asked, limits.call_seconds)
        text = (result.get("stdout") or "").encode("utf-8", "surrogatepass")
        *lines, rest = text.split(b"\n")  # the first is the program's own
        return batch.collect(lines[1:], asked, outcomes, _missing(result, rest), limits.output_bytes)

    async def _answered(self, asked: list[dict], seconds: float) -> dict[str, Any]:
        """The program's ``run_result``, from the first endpoint that really ran it."""
        ready = secrets.token_hex(8)
        questions = "".join(wire.dumps(question).decode() for question in asked)
        given = {"package": _PACKAGE, "questions": questions, "ready": ready}
        code = _PROGRAM.format(given=json.dumps(given))
        problem, blame = "", False
        for attempt in range(_ATTEMPTS):
            endpoint = min(self._endpoints, key=lambda e: (max(e.rest_until, time.monotonic()), e.failures))
            await asyncio.sleep(max(0.0, endpoint.rest_until - time.monotonic()))
            try:
                result = await self._post(endpoint, code, seconds)
                began = (result.get("stdout") or "").startswith(ready + "\n")
                if not began or result.get("status") == "TimeLimitExceeded":
                    # A server that has had too much times out everything, or says nothing.
                    endpoint.good = endpoint.good if began else float("-inf")
                    if not await self._canary(endpoint):
                        raise InfrastructureError("it no longer runs a trivial program")
                    if not began and not blame:  # by mischance; a second time, it is the code's doing
                        blame, problem = True, f"{endpoint.url}: the program did not begin"
                        continue
                endpoint.worked()
                return result
            except InfrastructureError as error:
                endpoint.failed()
                problem = f"{endpoint.url}: {error} (try {attempt + 1} of {_ATTEMPTS})"
        raise InfrastructureError(f"sandbox: {problem}")

    async def _canary(self, endpoint: _Endpoint) -> bool:
        """True when the endpoint runs a trivial program, or did a moment ago."""
        if time.monotonic() - endpoint.good < _HEALTHY_S:
            return True
        try:
            result = await self._post(endpoint, "print(6 * 7)", _CANARY_S)
        except InfrastructureError:
            return False
        if result.get("stdout") != "42\n":
            return False
        endpoint.good = time.monotonic()
        return True

    async def _post(self, endpoint: _Endpoint, code: str, seconds: float) -> dict[str, Any]:
        """``run_result`` of one request; :class:`InfrastructureError` for everything that is not the program's."""
        body = {"code": code, "language": "python", "compile_timeout": seconds, "run_timeout": seconds}
        timeout = httpx.Timeout(_MARGIN_S, read=seconds + _MARGIN_S, pool=None)
        try:
            async with self._places.one():
                answer = await self._client.post(endpoint.url, json=body, timeout=timeout)
            answer.raise_for_status()
            reply = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise InfrastructureError(f"{type(error).__name__} {error}".strip()[:300]) from None
        match reply:
            case {"status": "Success" | "Failed", "run_result": dict(result)}:
                return result
        message = reply.get("message") if isinstance(reply, dict) else None
        raise InfrastructureError(f"no run: {message or reply!r}"[:300])


def _missing(result: Mapping[str, Any], rest: bytes) -> PolicyFault:
    """Why an answer is not there."""
    if result.get("status") == "TimeLimitExceeded":
        return PolicyFault("timeout", "no answer in time")
    if result.get("return_code") in _STATUSES:
        return PolicyFault("timeout", "out of CPU time")
    if rest:
        return PolicyFault("protocol", "an answer was cut: too long for the server, or the process ended")
    return PolicyFault("died", f"the worker ended with status {result.get('return_code')}")
