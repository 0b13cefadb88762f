"""The swerex backend on swe-rex's local deployment, for real."""

import asyncio
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.attacks.suite import ACCOUNT, FUNCTION
from verl_ext.config import SandboxConfig
from verl_ext.sandbox import Limits, check, open_configured, swerex
from verl_ext.types import BadInput, Case, InfrastructureError, Tests

HONEST, TESTS = FUNCTION.honest, FUNCTION.tests
QUICK = Limits(call_seconds=4.0, total_seconds=12.0, restarts=0)
LOOP = {"solution.py": "def add(a, b):\n    while True: pass"}

pytest.importorskip("swerex", reason="swe-rex is not installed: pip install 'verl_ext[swerex]'")
pytestmark = pytest.mark.filterwarnings("ignore:sandbox. swe-rex's local deployment")


def children() -> list[int]:
    """Of all threads: swe-rex starts processes in threads of the sandbox."""
    found = [int(child) for task in Path("/proc/self/task").glob("*/children") for child in task.read_text().split()]
    return [child for child in found if Path(f"/proc/{child}").exists()]


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def left() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("verl-ext-swerex-*")}


@pytest.fixture
async def local():
    """A sandbox on swe-rex's local deployment, which must leave neither process nor file."""
    before, files = set(children()), left()
    sandbox = swerex.SwerexSandbox("local", concurrency=2, limits=QUICK, isolation="none")
    yield sandbox
    await sandbox.aclose()
    assert set(children()) <= before and left() <= files


async def test_right_wrong_and_classes(local):
    assert (await local.grade(HONEST, TESTS)).passed
    verdict = await local.grade(ACCOUNT.honest, ACCOUNT.tests)
    assert verdict.passed and verdict.trust == "oracle"
    verdict = await local.grade({"solution.py": "def add(a, b): return abs(a) + b"}, TESTS)
    assert [case.passed for case in verdict.cases] == [True, False] and verdict.failure == "wrong"


@pytest.mark.parametrize(
    ("failure", "source"),
    [
        ("timeout", "def add(a, b):\n    while True: pass"),
        ("timeout", "import time\ndef add(a, b): time.sleep(60)"),
        ("died", "import os\ndef add(a, b): os._exit(0)"),
        ("died", "import os; os._exit(0)"),
        ("import", "import sys; sys.exit(0)"),
        ("protocol", "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'{}\\n')\n    except OSError: pass"),
        ("protocol", "def add(a, b): return 'x' * 3_000_000"),
        ("wrong", "print('x' * 10_000_000)\ndef add(a, b): return 0"),
        ("wrong", "class Y(int):\n    __eq__ = lambda s, o: True\ndef add(a, b): return Y(a)"),
        ("exception", "def add(a, b): raise SystemExit(0)"),
        ("memory", "def add(a, b): return 'x' * (1 << 30)"),
        ("forbidden", None),
    ],
)  # fmt: skip
async def test_the_policy_s_fault_is_not_retried(local, monkeypatch, failure, source):
    runs = []
    real = local._run
    monkeypatch.setattr(local, "_run", lambda *given: runs.append(1) or real(*given))
    sources = {"solution.py": source} if source else {**HONEST, "../x.py": ""}
    limits = dataclasses.replace(QUICK, call_seconds=2.0)
    verdict = await local.grade(sources, TESTS, limits)
    assert not verdict.passed and verdict.failure == failure, verdict
    assert len(runs) == (0 if failure == "forbidden" else 1)


async def test_after_a_death_the_other_cases_are_graded_once(local):
    source = "import os\ndef add(a, b):\n    return os._exit(0) if a == 1 else a + b"
    tests = Tests(cases=tuple(Case("add", (a, 1), expected=a + 1) for a in range(4)))
    verdict = await local.grade({"solution.py": source}, tests, dataclasses.replace(QUICK, restarts=1))
    assert [case.passed for case in verdict.cases] == [True, False, True, True]


async def test_the_worker_gets_no_sockets_and_no_secrets(local, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "73561")
    source = (
        "import os, socket\n"
        "def sockets():\n"
        "    try: socket.socket()\n"
        "    except PermissionError: return 'refused'\n"
        "def environment(): return sorted(os.environ)\n"
    )
    tests = Tests(cases=(Case("sockets"), Case("environment")))
    sockets, environment = await local.evaluate({"solution.py": source}, tests)
    assert sockets.value == "refused" and "SECRET_TOKEN" not in environment.value


async def test_daemons_end_with_the_run(local, tmp_path):
    mark = tmp_path / "alive"
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        while True:\n"
        f"            open({str(mark)!r}, 'a').write('x')\n"
        "            time.sleep(0.02)\n"
        "    os._exit(0)\n"
        "time.sleep(0.3)\n"
        "def add(a, b): return a + b\n"
    )
    verdict = await local.grade({"solution.py": source}, TESTS)
    assert verdict.passed  # rude, but right
    size = mark.stat().st_size
    await asyncio.sleep(0.3)
    assert size > 0 and mark.stat().st_size == size


async def test_a_run_that_was_killed_once_is_repeated(local, monkeypatch):
    """From outside, e.g. by a machine out of memory: nobody's fault, as long as it does not happen again."""
    killed = []

    async def kill_the_first():
        while not (found := [child for child in children() if b"program-" in command(child)]):
            await asyncio.sleep(0.002)
        os.kill(found[0], signal.SIGKILL)
        killed.append(found[0])

    monkeypatch.setattr(swerex, "_PAUSE_S", 0.01)
    killer = asyncio.create_task(kill_the_first())
    slow = {"solution.py": "import time\ntime.sleep(0.5)\ndef add(a, b): return a + b"}
    verdict = await local.grade(slow, TESTS)
    await asyncio.wait_for(killer, 1)
    assert killed and verdict.passed


async def test_code_that_takes_its_host_along_has_failed(local, monkeypatch):
    """Else a policy could have its lost sessions left out of training."""
    monkeypatch.setattr(swerex, "_PAUSE_S", 0.01)
    source = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time\ntime.sleep(9)"
    verdict = await local.grade({"solution.py": source}, TESTS)
    assert not verdict.passed and verdict.failure == "died"


@pytest.mark.parametrize("what", ["start", "write_file", "interpreter"])
async def test_a_deployment_that_does_not_work_is_infrastructure(local, monkeypatch, what):
    from swerex.deployment.local import LocalDeployment
    from swerex.runtime.local import LocalRuntime

    async def broken(*given):
        raise OSError("no space left on device")

    monkeypatch.setattr(swerex, "_PAUSE_S", 0.01)
    if what == "start":
        monkeypatch.setattr(LocalDeployment, "start", broken)
    elif what == "write_file":
        monkeypatch.setattr(LocalRuntime, "write_file", broken)
    else:
        monkeypatch.setattr(swerex.backend, "interpreter", lambda: ("/bin/false", ""))
    says = "a trivial program does not run" if what == "interpreter" else "no space left"
    with pytest.raises(InfrastructureError, match=says):
        await local.grade({"solution.py": "def add(a, b): return 0"}, TESTS)
    with pytest.raises(InfrastructureError):
        await local.check()


async def test_runs_at_a_time_are_bounded_across_sandboxes(local, monkeypatch):
    now, most = 0, 0
    real = swerex.SwerexSandbox._deployed

    async def counted(self, *given):
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await real(self, *given)
        finally:
            now -= 1

    monkeypatch.setattr(swerex.SwerexSandbox, "_deployed", counted)
    other = swerex.SwerexSandbox("local", concurrency=2, limits=QUICK, isolation="none")
    verdicts = await asyncio.gather(*(one.grade(HONEST, TESTS) for one in (local, other) for _ in range(4)))
    await other.aclose()
    assert all(verdict.passed for verdict in verdicts) and most == 2


async def test_a_cancelled_grade_leaves_at_once_and_nothing_behind(local):
    grade = asyncio.create_task(local.grade(LOOP, TESTS))
    await asyncio.sleep(0.3)
    begin = time.monotonic()
    grade.cancel()
    with pytest.raises(asyncio.CancelledError):
        await grade
    assert time.monotonic() - begin < 0.2
    assert (await local.grade(HONEST, TESTS)).passed


def test_a_killed_process_takes_its_run_along():
    """With SIGKILL, as Ray ends its workers: no clean-up of ours runs then."""
    script = (
        "import asyncio\n"
        "from verl_ext.sandbox.swerex import SwerexSandbox\n"
        "from verl_ext.types import Case, Tests\n"
        "sandbox = SwerexSandbox('local', isolation='none')\n"
        "source = 'import time; time.sleep(60)'\n"
        "asyncio.run(sandbox.grade({'solution.py': source}, Tests(cases=(Case('f'),))))\n"
    )
    files = left()
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 30
        while len(started := descendants(process.pid)) < 2:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline, started
        time.sleep(0.05)
    for name in left() - files:  # a killed process cannot remove its folder
        shutil.rmtree(Path(tempfile.gettempdir(), name))


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


async def test_after_closing(local):
    await local.aclose()
    with pytest.raises(InfrastructureError, match="closed"):
        await local.grade(HONEST, TESTS)


async def test_from_a_recipe():
    config = SandboxConfig(backend="swerex", deployment="local", isolation="none", concurrency=1)
    await check(config)
    sandbox = await open_configured(config)
    assert isinstance(sandbox, swerex.SwerexSandbox) and sandbox.isolation == "none"
    await sandbox.aclose()


async def test_bad_settings_get_one_line(monkeypatch):
    for words, says in (
        ({"deployment": "local"}, "does not isolate"),
        ({"deployment": "modal"}, "must be docker or local"),
        ({"deployment": "docker"}, "no image"),
        ({"deployment": "local", "isolation": "none", "concurrency": 0}, "at least 1"),
    ):
        with pytest.raises(BadInput, match=says):
            swerex.SwerexSandbox(**words)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BadInput, match="no docker command"):
        swerex.SwerexSandbox("docker", "python:3.11")
    monkeypatch.setattr(swerex, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'verl_ext\[swerex\]'"):
        swerex.SwerexSandbox("docker", "python:3.11")


async def test_pytest_files_need_another_backend(local):
    with pytest.raises(BadInput, match="backend=local"):
        await local.grade(HONEST, Tests(files={"test_a.py": "def test_a(): pass"}))


def test_it_warns():
    with pytest.warns(UserWarning, match="untrusted code with your rights"):
        swerex.SwerexSandbox("local", isolation="none")
