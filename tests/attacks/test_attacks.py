"""Every attack fails as the policy's fault, leaves nothing behind, and disturbs no other grade."""

import asyncio
import gc
import os
import shutil
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.attacks.suite import ATTACKS, FUNCTION, SHAPES
from tests.sandbox.conftest import LEVELS, require
from verl_ext.sandbox import Limits, open_sandbox
from verl_ext.sandbox.selfcheck import running
from verl_ext.types import Case, Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(cpu_seconds=0.2, call_seconds=1.5, total_seconds=6.0, restarts=0)
PATIENT = Limits(call_seconds=30.0, total_seconds=60.0)
"""For honest solutions beside attacks: a machine that is kept busy is slow, and slow is not wrong."""


@pytest.fixture(scope="module", autouse=True)
def own_temporary_directory():
    """Other programs that run beside these tests leave and remove things in the common one."""
    before, tempfile.tempdir = tempfile.tempdir, tempfile.mkdtemp(prefix="attacks-")
    os.chmod(tempfile.tempdir, 0o755)
    yield
    shutil.rmtree(tempfile.tempdir)
    tempfile.tempdir = before


async def opened(level):
    require(level)
    sandbox = await open_sandbox(level, workers=1)
    for shape in SHAPES:  # what is started once, at first use, is no leak
        assert (await sandbox.grade(shape.honest, shape.tests, PATIENT)).passed
    return sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LEVELS)
async def sandbox(request):
    sandbox = await opened(request.param)
    yield sandbox
    await sandbox.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def first_level():
    sandbox = await opened("bubblewrap")
    yield sandbox
    await sandbox.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def second_level():
    sandbox = await opened("landlock")
    yield sandbox
    await sandbox.aclose()


@contextmanager
def host():
    """What an attack looks for on the host: a port, an abstract socket, this checkout."""
    name = f"verl-ext-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{name}")
        unix.listen()
        yield {"PORT": server.getsockname()[1], "SECRET": name, "REPO": Path(__file__).resolve().parents[2]}


def descendants() -> set[int]:
    """Process ids below this process, whatever session or group they went to."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (ValueError, OSError):
            continue
    found, new = set(), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


async def settled(sandbox) -> tuple[int, int, int]:
    """What is left over once the next run is set up, which is one more process."""
    for slots in sandbox._slots:
        for slot in slots:
            if slot._next is not None:
                await asyncio.to_thread(slot._next[1].recv, 1, socket.MSG_PEEK)
    return left_over()


def left_over() -> tuple[int, int, int]:
    """Number of descendants, of open descriptors, and of the sandbox's own temporary directories."""
    gc.collect()
    ours = [entry for entry in os.listdir(tempfile.gettempdir()) if entry.startswith(("run-", "verl-ext-"))]
    return len(descendants()), len(os.listdir("/proc/self/fd")), len(ours)


@pytest.mark.e2e  # with the next two, two minutes and a half
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_an_attack_fails_and_leaves_nothing(first_level, attack):
    await fails_and_leaves_nothing(first_level, attack)


@pytest.mark.e2e
@pytest.mark.parametrize("attack", [a for a in ATTACKS if "timeout" not in a.kinds or "fork" in a.name], ids=str)
async def test_an_attack_fails_at_the_second_level_too(second_level, attack):
    """Those that only wait for a limit are in the test of all at a time."""
    await fails_and_leaves_nothing(second_level, attack)


async def fails_and_leaves_nothing(sandbox, attack):
    with host() as values:
        before = await settled(sandbox)
        begin = time.monotonic()
        verdict = await sandbox.grade(attack.filled(**values), attack.shape.tests, LIMITS)
        took = time.monotonic() - begin
        assert await settled(sandbox) == before
    assert not verdict.passed and verdict.cases
    assert verdict.failure in attack.kinds, verdict
    # An attack that breaks something for all calls must not be right in one of them by accident of a limit.
    assert not all(case.passed for case in verdict.cases)
    assert took < LIMITS.total_seconds + 2
    assert (await sandbox.grade(attack.shape.honest, attack.shape.tests, PATIENT)).passed


@pytest.mark.e2e
@pytest.mark.parametrize("level", LEVELS)
async def test_honest_solutions_pass_while_attacks_run_beside_them(level):
    require(level)
    sandbox = await open_sandbox(level, workers=3)

    async def honest() -> list[bool]:
        return [(await sandbox.grade(shape.honest, shape.tests, PATIENT)).passed for shape in SHAPES]

    try:
        with host() as values:
            attacks = [sandbox.grade(attack.filled(**values), attack.shape.tests, LIMITS) for attack in ATTACKS]
            *verdicts, passed = await asyncio.gather(*attacks, asyncio.gather(*(honest() for _ in range(10))))
    finally:
        await sandbox.aclose()
    assert passed == [[True] * len(SHAPES)] * 10
    fooled = [str(attack) for attack, verdict in zip(ATTACKS, verdicts, strict=True) if verdict.passed]
    assert fooled == []


async def test_the_catalogue_is_large_and_its_solutions_are_all_different():
    assert len(ATTACKS) >= 80
    assert len({str(attack.sources) for attack in ATTACKS}) == len(ATTACKS)
    assert all(len(shape.attacks) >= 10 for shape in SHAPES)


async def test_what_attacks_meant_to_see_is_not_there(sandbox):
    """The wrong answers of attacks that look around hold nothing but what the jail shows."""
    sources = {attack.name: attack.sources for attack in FUNCTION.attacks}
    got = {}
    for name in ("read_parent_environ", "ptrace_parent", "new_namespaces", "walk_the_stack"):
        got[name] = (await sandbox.grade(sources[name], FUNCTION.tests, LIMITS)).cases[0].got
    assert got == {
        "read_parent_environ": "''" if sandbox.isolation == "bubblewrap" else "raises PermissionError",
        "ptrace_parent": "[-1, -1]",
        "new_namespaces": "-1",
        "walk_the_stack": "[[], []]",
    }


async def test_a_daemon_is_gone_when_the_score_is_read(sandbox):
    daemon = """
import ctypes, os, signal, time
def add(a, b):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"verl-outlives")
            os.write(writing, b"lives")
            time.sleep(600)
        os._exit(0)
    return os.read(reading, 5) == b"lives"
"""
    verdict = await sandbox.grade({"solution.py": daemon}, FUNCTION.tests, LIMITS)
    assert verdict.cases[0].got == "True"  # it did live
    assert running("verl-outlives") == []


async def test_nothing_is_left_for_the_next_run(sandbox):
    leave = """
import os, multiprocessing, sys
def add(a, b):
    for path in ("/tmp/left", "/dev/shm/left", "/tmp/work/left", "/left", "/dev/left", "/jail/left", "left", "../left"):
        try: open(path, "w").write("x")
        except OSError: pass
    sys.modules["left"] = os
    return 0
"""
    look = """
import os, sys
def add(a, b):
    places = ("/tmp/left", "/dev/shm/left", "/tmp/work/left", "/left", "/dev/left", "/jail/left", "left", "../left")
    return [p for p in places if os.path.exists(p)] + [m for m in sys.modules if m == "left"]
"""
    await sandbox.grade({"solution.py": leave}, FUNCTION.tests, LIMITS)
    assert (await sandbox.grade({"solution.py": look}, FUNCTION.tests, LIMITS)).cases[0].got == "[]"


async def test_a_hang_costs_one_timeout(sandbox):
    tests = Tests(cases=tuple(Case("add", (i, 1), expected=i + 1) for i in range(10)))
    begin = time.monotonic()
    verdict = await sandbox.grade({"solution.py": "import time\ndef add(a, b): time.sleep(60)"}, tests, LIMITS)
    assert time.monotonic() - begin < 5
    assert [case.passed for case in verdict.cases] == [False] * 10
    assert verdict.failure == "timeout"
