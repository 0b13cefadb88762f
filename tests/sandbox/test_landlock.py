"""The level landlock: it is taken where namespaces are forbidden, holds on old kernels too, and ends what it starts."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.attacks.test_attacks import descendants
from tests.sandbox.conftest import require
from verl_ext.sandbox import Limits, LocalSandbox, backend, local, open_sandbox, usage
from verl_ext.sandbox.attempts import Check, attempts, running
from verl_ext.sandbox.local import Script, started
from verl_ext.types import BadInput, Case, Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADD = {"solution.py": "def add(a, b):\n    return a + b\n"}
FIVE = Tests(cases=(Case("add", (2, 3), expected=5),))
QUICK = Limits(cpu_seconds=0.2, call_seconds=1.5, restarts=0)
SYSTEM = "/usr/bin/python3"

FORBIDDEN = """
import asyncio, sys
from verl_ext.sandbox import lockdown
from verl_ext.sandbox.lockdown import CLONE, CLONE3, DENIED, ENOSYS, EPERM, give, no_bit, ANY_NEW
rules = [(DENIED[name], give(EPERM)) for name in ("unshare", "mount", "umount2", "pivot_root", "setns")]
rules += [(CLONE, no_bit(0, ANY_NEW)), (CLONE3, give(ENOSYS))]
if "old" in sys.argv:  # as in a container whose runtime knows no Landlock
    rules += [((number, number), give(ENOSYS)) for number in (444, 445, 446)]
import ctypes
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
lockdown.install_filter(lockdown.assemble(rules))

from verl_ext.sandbox import open_sandbox
from verl_ext.types import Case, Tests

async def main():
    sandbox = await open_sandbox(sys.argv[1], workers=1)
    tests = Tests(cases=(Case("add", (2, 3), expected=5),))
    good = await sandbox.grade({"solution.py": "def add(a, b): return a + b"}, tests)
    bad = await sandbox.grade({"solution.py": "import os; os._exit(0)"}, tests)
    await sandbox.aclose()
    print(sandbox.isolation, good.passed, bad.passed, bad.failure)

asyncio.run(main())
"""


def forbidden(*arguments):
    """Runs a program to which the kernel gives no namespaces, as in a container with a usual seccomp profile."""
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-c", FORBIDDEN, *arguments], cwd=root, capture_output=True, text=True, timeout=60
    )


async def test_where_namespaces_are_forbidden_it_is_taken_and_says_so():
    require("landlock")
    done = forbidden("auto")
    assert done.stdout.split() == ["landlock", "True", "False", "died"], done.stderr
    assert "isolation landlock, which protects less" in done.stderr and "bubblewrap: " in done.stderr


async def test_a_level_that_was_asked_for_is_not_replaced():
    done = forbidden("bubblewrap")
    assert done.stdout == "" and done.stderr.strip().splitlines()[-1].startswith("verl_ext.types.BadInput"), done.stderr
    assert "no isolation works here: bubblewrap: " in done.stderr and "landlock: " not in done.stderr


async def test_where_neither_works_it_refuses_and_names_both_reasons():
    done = forbidden("auto", "old")
    last = done.stderr.strip().splitlines()[-1]
    assert done.stdout == "" and "bubblewrap: " in last and "landlock: " in last and "isolation='none'" in last
    assert "the kernel has no Landlock" in last


@pytest.fixture
def forgetful(monkeypatch):
    """No level has been granted yet."""
    monkeypatch.setattr(local, "_granted", set())


async def test_a_level_at_which_one_attempt_works_is_not_granted(monkeypatch, forgetful):
    tried = []

    async def broken(sandbox):
        tried.append(sandbox.isolation)
        return [Check("network blocked", sandbox.isolation != "bubblewrap", "reached: loopback")]

    monkeypatch.setattr(local, "attempts", broken)
    with pytest.raises(BadInput, match=r"bubblewrap: it does not hold: network blocked: no \(reached: loopback\)"):
        await open_sandbox("bubblewrap", workers=1)
    require("landlock")
    sandbox = await open_sandbox(workers=1)
    await sandbox.aclose()
    assert sandbox.isolation == "landlock"
    assert tried == ["bubblewrap", "bubblewrap", "landlock"]


async def test_the_attempts_can_find_what_does_not_hold():
    """Without isolation nearly all of them get what they want; a check that cannot fail would be none."""
    sandbox = await started(LocalSandbox("none", workers=1))
    try:
        broken = {check.name for check in await attempts(sandbox) if not check.ok}
    finally:
        await sandbox.aclose()
    expected = {
        *("network blocked", "host files unread", "host files unchanged", "environment hidden"),
        *("other processes untouched", "processes limited", "disk limited"),
    }
    if Path("/proc/sys/kernel/yama/ptrace_scope").exists() and os.geteuid():
        broken.discard("host memory hidden")  # it may have been hidden by Yama
    else:
        expected.add("host memory hidden")
    assert expected <= broken, expected - broken


@pytest.mark.parametrize("version", [1, 2, 3, 5])
async def test_it_holds_with_less_of_landlock_too(monkeypatch, version):
    """Older kernels do not see truncation, TCP, signals: the filter closes what they leave open."""
    require("landlock")
    monkeypatch.setattr(backend, "NEWEST_LANDLOCK", version)
    sandbox = await started(LocalSandbox("landlock", workers=1))
    try:
        assert [check for check in await attempts(sandbox) if not check.ok] == []
        ran = await sandbox.run(Script("import time; time.sleep(60)", seconds=0.3), 1 << 10)
        assert ran.failure == "timeout", ran  # its worker may not kill it on the oldest ones
    finally:
        await sandbox.aclose()


@pytest.fixture
def own_user(monkeypatch):
    """An interpreter that any user can read, so that root can give each slot a user."""
    require("landlock")
    if os.geteuid() != 0:
        pytest.skip("not root: a slot cannot have a user of its own")
    new = "import sys; sys.exit(sys.version_info < (3, 11))"
    if not os.path.exists(SYSTEM) or subprocess.run([SYSTEM, "-c", new]).returncode:
        pytest.skip("needs a system Python of at least 3.11, which every user can read")
    monkeypatch.setattr(backend, "interpreter", lambda: (os.path.realpath(SYSTEM), "/usr"))
    if backend.own_users(backend.readable()) is None:
        pytest.skip("root cannot change to other users here, or they cannot reach the temporary directory")


async def test_root_gives_each_slot_a_user(own_user):
    sandbox = await started(LocalSandbox("landlock", workers=2))
    source = {"solution.py": "import os, time\ndef add(a, b):\n    time.sleep(0.2)\n    return os.getresuid()\n"}
    tests = Tests(cases=(Case("add", (1, 2)),))
    try:
        both = await asyncio.gather(*(sandbox.evaluate(source, tests) for _ in range(2)))
        users = {uid for (outcome,) in both for uid in outcome.value}
        assert len(users) == 2 and 0 not in users
        assert [check for check in await attempts(sandbox) if not check.ok] == []
    finally:
        await sandbox.aclose()


@pytest.fixture(params=["own user", "the caller's user"])
def either_user(request):
    """Processes are counted and ended in two ways."""
    require("landlock")
    if request.param == "own user":
        request.getfixturevalue("own_user")


STORMS = """
import os, time
def relay():
    "Each forks the next one and ends, so that whoever is seen is gone."
    for _ in range(4):
        if os.fork() == 0:
            os.setsid()
            while True:
                try:
                    if os.fork():
                        os._exit(0)
                except OSError:
                    pass
    time.sleep(0.2)
def bomb():
    while True:
        try:
            os.fork()
        except OSError:
            pass
def threads():
    import threading
    try:
        while True:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        return threading.active_count()
"""


async def test_storms_of_processes_end_with_the_grade(either_user):
    ours = len(descendants()) + 3  # keeper, template and the next run
    sandbox = await started(LocalSandbox("landlock", workers=1))
    try:
        for name in ("relay", "bomb", "threads", "relay", "bomb"):
            tests = Tests(module="storms", cases=(Case(name),))
            (outcome,) = await sandbox.evaluate({"storms.py": STORMS}, tests, QUICK)
            assert len(descendants()) <= ours
            if name == "threads":
                assert outcome.value <= QUICK.processes
        assert (await sandbox.grade(ADD, FIVE)).passed
    finally:
        await sandbox.aclose()


DAEMON = """
import ctypes, os, time
def add(a, b):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"verl-orphan")
            time.sleep(600)
        os._exit(0)
    time.sleep(60)
"""


@pytest.mark.parametrize("who", ["keeper", "template"])
async def test_whichever_guardian_is_killed_nothing_is_left(either_user, who):
    sandbox = await started(LocalSandbox("landlock", workers=1))
    try:
        task = asyncio.create_task(sandbox.grade({"solution.py": DAEMON}, FIVE, Limits(call_seconds=60.0)))
        for _ in range(400):
            await asyncio.sleep(0.02)
            if running("verl-orphan"):
                break
        keeper = sandbox._slots[0].worker.pid
        slot = Path(os.readlink(f"/proc/{running('verl-orphan')[0]}/cwd")).parents[1]
        assert slot.name.startswith("run-")
        (template,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        os.kill(keeper if who == "keeper" else int(template), signal.SIGKILL)
        verdict = (await asyncio.gather(task, return_exceptions=True))[0]
        assert isinstance(verdict, Exception), verdict
        assert running("verl-orphan") == []
        assert not slot.exists()
        assert (await sandbox.grade(ADD, FIVE)).passed
    finally:
        await sandbox.aclose()


HONEST = """
import asyncio, os, shutil, subprocess, sys, tempfile, threading

def files():
    with tempfile.TemporaryDirectory() as folder:
        first, second = os.path.join(folder, "a"), os.path.join(folder, "b")
        with open(first, "w") as file:
            file.write("text")
        shutil.copy2(first, second)
        os.replace(second, first)
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
        return open(first).read(), os.listdir(folder)

def helpers():
    async def one():
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: 1)
    seen = [asyncio.run(one())]
    thread = threading.Thread(target=seen.append, args=(2,))
    thread.start()
    thread.join()
    seen.append(int(subprocess.run([sys.executable, "-c", "print(3)"], capture_output=True, text=True).stdout))
    return seen

def missing():
    try:
        import numpy
    except ImportError:
        return "not there"
"""


async def test_honest_programs_find_what_they_need(sandbox):
    names = ("files", "helpers", "missing")
    tests = Tests(module="honest", cases=tuple(Case(name) for name in names))
    outcomes = await sandbox.evaluate({"honest.py": HONEST}, tests, Limits(cpu_seconds=2.0))
    assert [outcome.value for outcome in outcomes] == [("text", ["a"]), [1, 2, 3], "not there"], outcomes


async def test_what_is_written_is_gone_with_the_run(either_user, tmp_path):
    deep = """
import os
def add(a, b):
    for _ in range(300):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
        open("f", "w").close()
    os.mkdir("closed", 0)
    return os.getcwd()[:5]
"""
    sandbox = await started(LocalSandbox("landlock", workers=1))
    try:
        await sandbox.grade({"solution.py": deep}, FIVE, QUICK)
        place = Path((await sandbox.evaluate({"solution.py": "import os\ndef add(): return os.getcwd()"},
                                             Tests(cases=(Case("add"),))))[0].value)  # fmt: skip
        run, slot = place.parents[:2]
        assert slot.name.startswith("run-") and slot.exists() and not run.exists()
        assert len(list(slot.iterdir())) <= 1  # the next run's
    finally:
        await sandbox.aclose()
    assert not slot.exists()


async def test_what_a_run_holds_is_counted_though_it_hides(tmp_path):
    place = str(tmp_path)
    me = {os.getpid(): [str(os.getpid())]}
    before = usage.held_bytes(place, me)  # what other tests left in this process: removed files that it holds open
    assert before < 1 << 18
    (tmp_path / "named").write_bytes(bytes(1 << 20))
    with open(tmp_path / "nameless", "wb", buffering=0) as file:
        os.unlink(file.name)
        file.write(bytes(2 << 20))
        assert 3 << 20 <= usage.held_bytes(place, me) - before < 4 << 20
    assert usage.held_bytes(place, me) < 2 << 20
    for index in range(usage.MOST_FILES):
        (tmp_path / str(index)).touch()
    with pytest.raises(usage.Uncounted, match="more than 2048 files"):
        usage.held_bytes(place, me)


async def test_a_directory_is_removed_whatever_is_in_it(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (place / "link").symlink_to(outside)
    (place / os.fsdecode(b"\xffremoved-1")).touch()
    here = os.open(place, os.O_RDONLY)
    for _ in range(1200):  # deeper than a path can be long, and than Python recurses
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.mkdir("closed", 0, dir_fd=here)
    os.close(here)
    begin = time.monotonic()
    usage.remove(str(place))
    assert not place.exists() and (outside / "kept").exists()
    assert time.monotonic() - begin < 5
