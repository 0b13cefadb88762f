"""Attacks from the catalogue on a repair of ``add``: each must fail, as the policy's fault, and leave the sandbox well.

Every solution below is wrong; a verdict of passed, or an infrastructure failure, is a hole.
"""

import os
import re
import socket
import time
from pathlib import Path

import pytest

from verl_ext.sandbox import Limits
from verl_ext.sandbox.selfcheck import running
from verl_ext.types import Case, Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(cpu_seconds=0.2, call_seconds=1.5, total_seconds=6.0, restarts=0)
TESTS = Tests(cases=(Case("add", (2, 3), expected=5), Case("add", (-7, 9), expected=2)))
HONEST = {"solution.py": "def add(a, b):\n    return a + b\n"}


def _read(path: Path) -> dict[str, tuple[list[str], str]]:
    """Name to (allowed kinds of failure, source)."""
    _, *sections = re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)
    attacks = {}
    for section in sections:
        head, _, source = section.partition("\n")
        name, _, kinds = head.partition(": ")
        attacks[name] = (kinds.split(), source)
    return attacks


ATTACKS = _read(Path(__file__).with_name("attacks.txt"))


@pytest.mark.parametrize("name", ATTACKS)
async def test_attack_fails_and_the_sandbox_works_on(sandbox, name):
    kinds, text = ATTACKS[name]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0verl-ext-{os.getpid()}")
        unix.listen()
        text = text.replace("PORT", str(server.getsockname()[1])).replace("SECRET", f"verl-ext-{os.getpid()}")
        text = text.replace("REPO", str(Path(__file__).resolve().parents[2]))
        verdict = await sandbox.grade({"solution.py": text}, TESTS, LIMITS)
    assert not verdict.passed
    assert len(verdict.cases) == 2
    assert not any(case.passed for case in verdict.cases)
    assert verdict.failure in kinds, verdict
    assert (await sandbox.grade(HONEST, TESTS, LIMITS)).passed


async def test_what_the_attacks_meant_to_see_is_not_there(sandbox):
    """The wrong answers of attacks that look around hold nothing but what the jail shows."""
    got = {}
    for name in ("read_parent_environ", "ptrace_parent", "new_namespaces", "walk_the_stack"):
        got[name] = (await sandbox.grade({"solution.py": ATTACKS[name][1]}, TESTS, LIMITS)).cases[0].got
    assert got == {
        "read_parent_environ": "''",
        "ptrace_parent": "[-1, -1]",
        "new_namespaces": "-1",
        "walk_the_stack": "[[], []]",
    }


async def test_a_daemon_is_gone_when_the_score_is_read(sandbox):
    daemon = """
import os, signal, time
def add(a, b):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            open("/proc/self/comm", "w").write("verl-outlives")
            time.sleep(600)
        os._exit(0)
    time.sleep(0.1)
    return "verl-outlives" in [open(f"/proc/{p}/comm").read().strip() for p in os.listdir("/proc") if p.isdigit()]
"""
    verdict = await sandbox.grade({"solution.py": daemon}, TESTS, LIMITS)
    assert verdict.cases[0].got == "True"  # it did live
    assert running("verl-outlives") == []


async def test_nothing_is_left_for_the_next_run(sandbox):
    leave = """
import os, multiprocessing, sys
def add(a, b):
    for path in ("/tmp/left", "/dev/shm/left", "/tmp/work/left", "/left", "/dev/left", "/jail/left"):
        try: open(path, "w").write("x")
        except OSError: pass
    sys.modules["left"] = os
    return 0
"""
    look = """
import os, sys
def add(a, b):
    places = ("/tmp/left", "/dev/shm/left", "/tmp/work/left", "/left", "/dev/left", "/jail/left")
    return [p for p in places if os.path.exists(p)] + [m for m in sys.modules if m == "left"]
"""
    await sandbox.grade({"solution.py": leave}, TESTS, LIMITS)
    assert (await sandbox.grade({"solution.py": look}, TESTS, LIMITS)).cases[0].got == "[]"


async def test_a_hang_costs_one_timeout(sandbox):
    tests = Tests(cases=tuple(Case("add", (i, 1), expected=i + 1) for i in range(10)))
    begin = time.monotonic()
    verdict = await sandbox.grade({"solution.py": "import time\ndef add(a, b): time.sleep(60)"}, tests, LIMITS)
    assert time.monotonic() - begin < 5
    assert [case.passed for case in verdict.cases] == [False] * 10
    assert verdict.failure == "timeout"
