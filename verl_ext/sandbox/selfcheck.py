"""Self-check: runs small hostile programs in the sandbox and reports, for each protection, whether it held.

A protection is believed when an attempt against it failed just now on this machine, not when an option was set.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import NamedTuple

from verl_ext.sandbox import backend
from verl_ext.sandbox.base import Limits, Outcome
from verl_ext.sandbox.local import Isolation, LocalSandbox, open_sandbox
from verl_ext.types import BadInput, Case, InfrastructureError, Tests


class Check(NamedTuple):
    """One line of the self-check."""

    name: str
    ok: bool
    detail: str


_PROGRAM = """
import os, socket, time

def identity():
    return os.getuid(), os.path.exists("/proc/1/environ") and open("/proc/1/environ").read()

def connect(port):
    seen = []
    for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET, ("192.0.2.1", 9))):
        try:
            socket.create_connection(address, timeout=0.3)
            seen.append(address[0])
        except TimeoutError:
            seen.append(address[0] + " (a packet left)")
        except OSError:
            pass
    return seen

def read(path):
    try:
        return open(path).read()
    except OSError:
        return None

def daemon(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open("/proc/self/comm", "w") as file:
                file.write(name)
            time.sleep(600)
        os._exit(0)
    os.wait()
    for _ in range(200):
        if name in [open(f"/proc/{pid}/comm").read().strip() for pid in os.listdir("/proc") if pid.isdigit()]:
            return True
        time.sleep(0.01)

def memory():
    return len(bytearray(2 << 30))

def processes():
    count = 0
    try:
        while count < 500:
            if os.fork() == 0:
                time.sleep(60)
            count += 1
    except OSError:
        pass
    return count

def disk():
    total = 0
    try:
        for index in range(40):
            with open(f"/tmp/fill{index}", "wb") as file:
                total += file.write(bytes(4 << 20))
    except OSError:
        pass
    return total

def spin():
    while True:
        pass
"""


async def _probe(isolation: Isolation) -> list[Check]:
    found = backend.find_bwrap()
    if isolation == "none":
        return [Check("isolation", False, "none: asked for; untrusted code runs with your rights")]
    checks = [Check("bubblewrap", bool(found), found or "not found")]
    try:
        sandbox = await open_sandbox(isolation, workers=1)
    except BadInput as error:
        return [*checks, Check("isolation", False, str(error))]
    try:
        return [*checks, *await _attempts(sandbox)]
    except InfrastructureError as error:
        return [*checks, Check("isolation", False, str(error))]
    finally:
        await sandbox.aclose()


async def _attempts(sandbox: LocalSandbox) -> list[Check]:
    limits = Limits(cpu_seconds=0.3, call_seconds=5.0)

    async def call(name: str, *args) -> Outcome:
        tests = Tests(module="probe", cases=(Case(name, args),))
        return (await sandbox.evaluate({"probe.py": _PROGRAM}, tests, limits))[0]

    caller = f"{getpass.getuser() if os.geteuid() else 'root'} (uid {os.geteuid()})"
    uid, environ = (await call("identity")).value
    becomes = f", runs as uid {backend.NOBODY}" if backend.drops_to_nobody() else ""
    checks = [
        Check("isolation", True, f"{sandbox.isolation}: namespaces work for {caller}{becomes}"),
        Check("unprivileged user", uid != 0, f"uid {uid} inside"),
        Check(
            "environment hidden",
            not any(value and len(value) > 8 and value in (environ or "") for value in os.environ.values()),
            "the caller's environment cannot be read",
        ),
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:
        reached = (await call("connect", server.getsockname()[1])).value
    checks.append(Check("network blocked", reached == [], f"reached: {', '.join(reached or []) or 'nothing'}"))
    with tempfile.NamedTemporaryFile("w", suffix=".secret") as file:
        file.write("secret")
        file.flush()
        os.chmod(file.name, 0o644)
        leaked = [path for path in (file.name, "/etc/passwd", __file__) if (await call("read", path)).value is not None]
    checks.append(Check("host files hidden", not leaked, f"readable: {', '.join(leaked) or 'none'}"))
    name = f"left-{secrets.token_hex(4)}"
    lived = (await call("daemon", name)).value
    left = running(name)
    started = (await call("processes")).value
    checks += [
        Check("processes reaped", lived is True and not left, "a daemon is gone when the grade is"),
        Check("processes limited", started is not None and started < limits.processes, f"{started} started"),
    ]
    big, filled, spun = await call("memory"), await call("disk"), await call("spin")
    checks += [
        Check("memory limited", big.failure == "memory", big.error or "2 GiB were given"),
        Check("disk limited", filled.value is not None and filled.value <= limits.file_bytes, f"{filled.value} bytes"),
        Check("CPU limited", spun.failure == "timeout", spun.error),
    ]
    return checks


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


def probe(isolation: Isolation = "auto") -> list[Check]:
    """Checks the sandbox on this machine, in a second or two.

    Args:
        isolation: As for :func:`~verl_ext.sandbox.local.open_sandbox`.

    Returns:
        ``(name, ok, detail)`` for each protection; ``isolation`` is among them and says what is in force and why.
    """
    return asyncio.run(_probe(isolation))
