"""SWE-ReX deployments as the sandbox uses them: one for a run, with a client that does not believe its server.

swe-rex's own client takes an error of the server for an exception to raise: it imports the module and calls the name
that the answer says, with the answer's text (``RemoteRuntime._handle_transfer_exception`` in 1.4.0). Code of a policy
that gets hold of the server in its container could so run commands in the trainer. Here an answer is text, of
bounded size, and waited for no longer than it may take.

The deployments block (``docker pull`` and ``docker run`` are waited for in the event loop), so each one has a thread.
Imports swe-rex, an optional dependency.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import subprocess
import sys
from typing import Any

# Else it prints every step of every container.
os.environ.setdefault("SWE_REX_LOG_STREAM_LEVEL", "ERROR")

import aiohttp
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.docker import DockerDeployment
from swerex.deployment.local import LocalDeployment
from swerex.exceptions import CommandTimeoutError, SwerexException
from swerex.runtime.abstract import AbstractRuntime
from swerex.runtime.remote import RemoteRuntime
from swerex.utils.wait import _wait_until_alive

from verl_ext.sandbox.base import Limits

STARTUP_S = 120.0  # for a container, once its image is there
_LOGGER = logging.getLogger("verl_ext.sandbox.swerex")
_SERVER_BYTES = 256 << 20  # what swe-rex's server may use beside the code
_SERVER_PIDS = 32
_TIMED_OUT = f"{CommandTimeoutError.__module__}.{CommandTimeoutError.__name__}"
# Ends the containers of a process that was killed: it reads from a pipe that closes when that process ends.
_KEEPER = """
import subprocess, sys
sys.stdin.read()
found = subprocess.run(["docker", "ps", "-q", "--filter", "label=" + sys.argv[1]], capture_output=True, text=True)
if found.stdout.split():
    subprocess.run(["docker", "kill", *found.stdout.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


def local() -> AbstractDeployment:
    """A deployment on this machine, without isolation."""
    return LocalDeployment(logger=_LOGGER)


def docker(image: str, limits: Limits, label: str) -> AbstractDeployment:
    """A container of its own for one run, not yet started.

    Args:
        image: With ``python3`` (3.10 or later) and ``swerex-remote``.
        limits: Of the run; memory and processes of the container follow from them.
        label: ``KEY=VALUE`` by which a :class:`Keeper` finds it.
    """
    return _Docker(image=image, docker_args=docker_args(limits, label), startup_timeout=STARTUP_S, logger=_LOGGER)


def docker_args(limits: Limits, label: str) -> list[str]:
    """Options of ``docker run``: nothing to be had from the container but CPU time, a little memory and ``/tmp``.

    The three capabilities let the server's root start the worker as nobody, and end it. There is no option to take the
    network away, since the server is reached through it; the worker's system call filter does that.
    """
    memory = str(limits.address_space + limits.file_bytes + _SERVER_BYTES)
    argv = ["--label", label, "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    argv += [word for name in ("SETUID", "SETGID", "KILL") for word in ("--cap-add", name)]
    argv += ["--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.processes + _SERVER_PIDS)]
    argv += ["--read-only", "--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.file_bytes + (8 << 20)},mode=1777"]
    return [*argv, "--env", "PYTHONHASHSEED=0", "--log-driver", "none"]


def runtime(deployment: AbstractDeployment, seconds: float, most: int) -> AbstractRuntime:
    """The runtime of a started deployment, bounded and unbelieving where it is a server.

    Args:
        deployment: Started.
        seconds: Longest wait for an answer.
        most: Bytes of an answer.
    """
    if isinstance(deployment, LocalDeployment):
        return deployment.runtime
    client = Client(**deployment.runtime._config.model_dump())
    client.seconds, client.most = seconds, most
    return client


async def stop(deployment: AbstractDeployment) -> None:
    """Ends a deployment, in whatever state it is, without a word to its server: swe-rex's ``stop`` asks that to close
    first, fails when it does not answer, and leaves the container running."""
    if isinstance(deployment, DockerDeployment):
        deployment._runtime = None
    await deployment.stop()


class _Docker(DockerDeployment):
    """swe-rex's, which on a server that does not start reads what the container says until it ends, and it may not."""

    async def _wait_until_alive(self, timeout: float = 10.0) -> None:
        await _wait_until_alive(self.is_alive, timeout=timeout, function_timeout=self._runtime_timeout)


class Client(RemoteRuntime):
    """:class:`swerex.runtime.remote.RemoteRuntime` for a server that may be anybody."""

    seconds, most = 60.0, 1 << 20

    async def _request(self, endpoint: str, payload: Any, output_class: Any, num_retries: int = 0) -> Any:
        status, text = await self._post(endpoint, payload.model_dump())
        if status == 511 and _class_path(text) == _TIMED_OUT:
            raise CommandTimeoutError("the command took too long")
        if status != 200:
            raise SwerexException(f"{endpoint}: status {status}")
        return output_class(**json.loads(text))

    async def _post(self, endpoint: str, body: Any) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=self.seconds)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True)) as session,
            session.post(
                f"{self._api_url}/{endpoint}", json=body, headers=self._headers, allow_redirects=False
            ) as response,
        ):
            text = bytearray()
            async for chunk in response.content.iter_any():
                text += chunk
                if len(text) > self.most:
                    raise SwerexException(f"{endpoint}: an answer of more than {self.most} bytes")
            return response.status, bytes(text)


def _class_path(text: bytes) -> Any:
    try:
        return json.loads(text)["swerexception"]["class_path"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class Keeper:
    """Sees that no container of this process outlives it, even when it is killed.

    Attributes:
        label: For :func:`docker`.
    """

    def __init__(self) -> None:
        self.label = f"verl-ext.run={secrets.token_hex(8)}"
        argv = [sys.executable, "-I", "-S", "-c", _KEEPER, self.label]
        # A session of its own: what ends the trainer's process group must not end it first.
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def close(self) -> None:
        """Ends whatever is still running, and the keeper."""
        self._process.stdin.close()
        self._process.wait()
