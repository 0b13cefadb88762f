"""What a sandbox holds: hostile programs that try, just now and on this machine, what it must not let them do.

A protection is believed when an attempt against it failed, and not when an option was set. Some leave something to be
found out here: a changed file, a stopped process, a daemon.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from verl_ext.sandbox.backend import interpreter
from verl_ext.sandbox.base import Limits, Outcome
from verl_ext.types import Case, Tests

if TYPE_CHECKING:
    from verl_ext.sandbox.local import LocalSandbox

LIMITS = Limits(cpu_seconds=2.0, call_seconds=30.0, restarts=0)
_PROGRAM = (Path(__file__).parent / "hostile.py").read_text(encoding="utf-8")


class Check(NamedTuple):
    """One line of the self-check.

    Attributes:
        name: The protection.
        ok: It held, or the level does not promise it.
        detail: What was found.
        found: One word for a table: ``holds``, ``FAILS``, or what is so at this level.
    """

    name: str
    ok: bool
    detail: str
    found: str = ""


@dataclass(frozen=True)
class _Host:
    """What there is to be reached: a process with a secret, files, sockets."""

    victim: subprocess.Popen
    secret: str
    file: Path
    aims: dict[str, Any]

    @property
    def process(self) -> tuple:
        """What others could change of the process."""
        pid = self.victim.pid
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        limits = Path(f"/proc/{pid}/limits").read_text()
        priority = os.getpriority(os.PRIO_PROCESS, pid)
        return "stopped or ended" if state in "TtZX" else "runs", priority, os.sched_getaffinity(pid), limits

    @property
    def files(self) -> tuple:
        """What others could change of the file and its directory."""
        names = sorted(os.listdir(self.file.parent))
        if self.file.name not in names:
            return (names,)
        seen = self.file.stat()
        return names, self.file.read_text(), seen.st_mode, seen.st_mtime, seen.st_nlink


async def attempts(sandbox: LocalSandbox) -> list[Check]:
    """Tries everything, in a second: a line for each protection.

    Raises:
        InfrastructureError: The sandbox failed.
    """
    async with _host() as host:
        return [*await _reach(sandbox, host), await _outlive(sandbox), *await _exceed(sandbox)]


@asynccontextmanager
async def _host() -> AsyncIterator[_Host]:
    secret = secrets.token_hex(16)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="verl-ext-check-")))
        folder.chmod(0o777)  # so that nothing but the sandbox keeps a run away
        file = folder / "secret.txt"
        file.write_text(secret)
        file.chmod(0o666)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        named, abstract = stack.enter_context(socket.socket(socket.AF_UNIX)), stack.enter_context(_unix())
        named.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        named.listen()
        datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        datagrams.bind(str(folder / "datagrams"))
        (folder / "datagrams").chmod(0o777)
        abstract.bind(f"\0{secret}")
        abstract.listen()
        victim = subprocess.Popen(["sleep", "60"], env={"CANARY": secret, "PATH": os.environ.get("PATH", os.defpath)})
        kept = ctypes.create_string_buffer(secret.encode())
        aims = {
            "pid": os.getpid(),
            "address": ctypes.addressof(kept),
            "size": len(secret),
            "victim": victim.pid,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "named": str(folder / "socket"),
            "datagrams": str(folder / "datagrams"),
            "abstract": secret,
            "files": [str(file), "/etc/passwd", *_hidden_files()],
        }
        try:
            yield _Host(victim, secret, file, aims)
        finally:
            victim.kill()
            victim.wait()


def _hidden_files() -> list[str]:
    """This file, unless it is installed where the interpreter has its library, which runs may read."""
    seen = any(Path(__file__).resolve().is_relative_to(path) for path in ("/usr", interpreter()[1]))
    return [] if seen else [__file__]


def _unix() -> socket.socket:
    return socket.socket(socket.AF_UNIX)


async def _call(sandbox: LocalSandbox, name: str, *args: Any, limits: Limits = LIMITS) -> Outcome:
    tests = Tests(module="hostile", cases=(Case(name, args),))
    return (await sandbox.evaluate({"hostile.py": _PROGRAM}, tests, limits))[0]


async def _reach(sandbox: LocalSandbox, host: _Host) -> list[Check]:
    process, files = host.process, host.files
    outcome = await _call(sandbox, "reach", host.aims)
    changed, wrote = process != host.process, files != host.files
    if outcome.failure or type(outcome.value) is not dict:
        return [Check("attempts", False, f"they did not run: {outcome.error or outcome.raised}")]
    got = outcome.value
    texts = "".join(map(str, [*got["files"].values(), *got["memory"], got["environ"]]))
    values = [value for value in os.environ.values() if len(value) > 8]
    uid, capable = got["identity"]
    ours = f"uid {uid}, {'with' if capable else 'no'} capabilities"
    network, signals, written = got["network"], got["signals"], got["written"]
    leaked = [path for path, text in got["files"].items() if text is not None]
    memory = host.secret in "".join(map(str, got["memory"]))
    environ = host.secret in got["environ"] or any(value in got["environ"] for value in values)
    names, others = got["names"], got["processes"]
    hides = sandbox.isolation == "bubblewrap"
    return [
        Check("unprivileged", not capable and (uid != 0 or not hides), ours),
        Check("network blocked", not network, f"reached: {', '.join(network) or 'nothing'}"),
        Check("host files unread", not leaked and host.secret not in texts, f"read: {', '.join(leaked) or 'none'}"),
        Check("host files unchanged", not wrote and not written, f"wrote: {', '.join(written) or 'nothing'}"),
        Check("host memory hidden", not memory, "the caller's memory was read" if memory else "read: nothing"),
        Check("environment hidden", not environ, "one was read" if environ else "read: no process's"),
        Check("other processes untouched", not changed and not signals, f"reached by: {', '.join(signals) or 'none'}"),
        _hidden("file names hidden", names, hides, "stat tells whether a path exists, and its size and times"),
        _hidden("processes hidden", others, hides, "a process id that exists can be told from one that does not"),
    ]


def _hidden(name: str, seen: bool, promised: bool, text: str) -> Check:
    if seen and not promised:
        return Check(name, True, text, "not here")
    return Check(name, not seen, "nothing of the host shows" if not seen else text)


async def _outlive(sandbox: LocalSandbox) -> Check:
    name = f"left-{secrets.token_hex(4)}"
    lived = await _call(sandbox, "outlive", name)
    left = running(name)
    detail = "a daemon is gone when the grade is" if lived.value else f"no daemon ran ({lived.error})"
    return Check("processes reaped", lived.value is True and not left, f"left: {left}" if left else detail)


async def _exceed(sandbox: LocalSandbox) -> list[Check]:
    limits = LIMITS
    most = limits.file_bytes
    big, started, opened = [await _call(sandbox, name) for name in ("memory", "processes", "descriptors")]
    spun = await _call(sandbox, "spin", limits=replace(limits, cpu_seconds=0.1))
    said = await _call(sandbox, "output", 2 * limits.output_bytes)
    filled = [await _call(sandbox, "disk", kind, most) for kind in ("named", "unlinked", "sparse")]
    return [
        Check("memory limited", big.failure == "memory", big.error or "2 GiB were given"),
        Check("processes limited", _at_most(started, limits.processes), started.error or f"{started.value} started"),
        Check("disk limited", all(_at_most(f, most) or f.failure == "died" for f in filled), _how(filled, most)),
        Check("CPU limited", spun.failure == "timeout", spun.error),
        Check("open files limited", _at_most(opened, limits.open_files), f"{opened.value} opened"),
        Check("output limited", said.failure == "protocol", said.error or "a longer answer was taken"),
    ]


def _at_most(outcome: Outcome, most: int) -> bool:
    return type(outcome.value) is int and 0 < outcome.value <= most


def _how(filled: list[Outcome], most: int) -> str:
    if all(outcome.failure == "died" for outcome in filled):
        return f"a run that holds more than {most} bytes is ended"
    return f"{max(outcome.value or 0 for outcome in filled)} bytes written"


def running(name: str) -> list[int]:
    """Process ids on this host whose command name is ``name``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == name:
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found
