"""The attacks against other ways to grade: prints who was fooled, as the table in docs/sandbox.md.

    python -m tests.attacks.compare [NAME ...]

Takes a quarter of an hour. Every grader runs as a whole in a bubblewrap jail, because the code is hostile; the verdict
is still made where the solution runs, which is what is compared here:

- ``exit code``: ``python -m pytest`` ended with 0;
- ``log``: its output says ``N passed`` and neither ``failed`` nor ``error``;
- ``report``: its JUnit file has a test, and no failure, error or skip;
- ``asserts``: the solution with asserts behind it, in one file, ended with 0 (functions and classes only);
- ``verl prime_code``: verl 0.9.1's local grader of calls says that all of them agree (functions only);
- ``verl sandbox_fusion``: verl's grader of calls on a SandboxFusion server says so, the server being `verl-ext sandbox
  serve` with this project's isolation (functions only);
- ``shared``: this sandbox's own mode of lower trust, pytest and must-fail tests in the solution's process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from tests.attacks.suite import ATTACKS, FUNCTION, SHAPES, Shape
from tests.attacks.test_attacks import LIMITS, host
from verl_ext.progress import bar
from verl_ext.sandbox import backend, open_sandbox
from verl_ext.sandbox.oracle import describe
from verl_ext.types import Tests

GRADERS = ("exit code", "log", "report", "asserts", "verl prime_code", "verl sandbox_fusion", "shared")
_SECONDS = 10
_PORT = 8792
_PRIME = """
import json, sys
sys.path.insert(0, sys.argv[1])
import prime_code
cases = json.load(open("cases.json"))
print("PRIME", prime_code.compute_score(open("solution.py").read(), cases)[0] is True)
"""


def _jailed(work: Path, argv: list[str]) -> tuple[int, str]:
    """Runs a grader with only ``work`` writable; its status and output. Status -1: it had to be killed."""
    jail = [backend.find_bwrap(), "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    jail += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    jail += ["--bind", str(work), "/tmp/work", "--chdir", "/tmp/work"]
    limits = ["prlimit", "--nproc=200", f"--as={4 << 30}", f"--fsize={16 << 20}", f"--cpu={_SECONDS}"]
    environ = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with tempfile.TemporaryFile() as output:  # a file, so that its size is limited
        where = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        while True:
            try:
                status = subprocess.run([*jail, *limits, *argv], env=environ, timeout=_SECONDS, **where).returncode
            except subprocess.TimeoutExpired:
                status = -1
            except BlockingIOError:  # a fork bomb next door has all processes of the machine, until its time is over
                time.sleep(1)
                continue
            break
        output.seek(0)
        return status, output.read().decode(errors="replace")


def graded(shape: Shape, sources: dict[str, str]) -> dict[str, bool]:
    """What each grader that runs as a program, and can grade this shape, says."""
    said = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for path, text in sources.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text, errors="surrogatepass")
        (work / "test_hidden.py").write_text(shape.pytest)
        pytest = ["-m", "pytest", "-p", "no:cacheprovider", "--junitxml=report.xml", "test_hidden.py"]
        status, log = _jailed(work, [sys.executable, *pytest])
        said["exit code"] = status == 0
        said["log"] = bool(re.search(r"\d+ passed", log)) and not re.search(r"failed|error", log, re.IGNORECASE)
        said["report"] = _report(work / "report.xml")
    if shape.tests.cases:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            asserts = "\n".join(_assert(case) for case in shape.tests.cases)
            (work / "graded.py").write_text(sources["solution.py"] + "\n" + asserts + "\n", errors="surrogatepass")
            said["asserts"] = _jailed(work, [sys.executable, "graded.py"])[0] == 0
    if shape is FUNCTION:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            (work / "cases.json").write_text(json.dumps(_calls(shape)))
            (work / "solution.py").write_text(sources["solution.py"], errors="surrogatepass")
            place = Path(find_spec("verl").submodule_search_locations[0]) / "utils" / "reward_score"
            said["verl prime_code"] = "PRIME True" in _jailed(work, [sys.executable, "-c", _PRIME, str(place)])[1]
    return said


def _calls(shape: Shape) -> dict:
    """Cases in the form that verl's graders of calls read."""
    return {
        "fn_name": "add",
        "inputs": ["\n".join(map(json.dumps, case.args)) for case in shape.tests.cases],
        "outputs": [json.dumps(case.expected) for case in shape.tests.cases],
    }


@contextmanager
def _serving():
    """Our server for verl's grader, which says 1.0 where every call agrees."""
    from verl.utils.reward_score.sandbox_fusion import compute_score

    argv = [sys.executable, "-m", "verl_ext.cli", "sandbox", "serve", "--port", str(_PORT)]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def passes(shape: Shape, sources: dict[str, str]) -> bool:
        code = f"```python\n{sources['solution.py']}\n```"
        return compute_score(f"http://127.0.0.1:{_PORT}/run_code", None, 1024, code, _calls(shape))[0] == 1.0

    try:
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", _PORT)).close()
                break
            time.sleep(0.1)
        yield passes
    finally:
        server.terminate()
        server.wait(30)


def _assert(case) -> str:
    """A case as lines of Python."""
    made, *calls = describe(case).split("; ")
    value = f"({''.join(f'_made.{call}, ' for call in calls)})" if calls else "_made"
    if case.raises:
        return f"try:\n    _made = {made}\n    {value}\nexcept {case.raises}: pass\nelse: raise AssertionError"
    return f"_made = {made}\nassert {value} == {case.expected!r}"


def _report(path: Path) -> bool:
    try:
        suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
        bad = sum(int(suite.get(key, "0")) for suite in suites for key in ("failures", "errors", "skipped"))
        return sum(int(suite.get("tests", "0")) for suite in suites) > 0 and bad == 0
    except (OSError, ElementTree.ParseError, ValueError):
        return False


async def _ours(attacks) -> list[tuple[bool, bool]]:
    """Whether each passes here, and in shared mode."""
    sandbox = await open_sandbox(workers=2)
    try:
        with host() as values:
            ways = [lambda shape: shape.tests, lambda shape: Tests(files={"test_hidden.py": shape.pytest}, shared=True)]
            grades = [sandbox.grade(a.filled(**values), way(a.shape), LIMITS) for a in attacks for way in ways]
            passed = [verdict.passed for verdict in await asyncio.gather(*grades)]
            return list(zip(passed[::2], passed[1::2], strict=True))
    finally:
        await sandbox.aclose()


def main(names: list[str]) -> None:
    for shape in SHAPES:
        said = graded(shape, shape.honest)
        assert all(said.values()), f"the honest {shape.name} does not pass everywhere: {said}"
    attacks = [attack for attack in ATTACKS if not names or attack.name in names]
    with (
        _serving() as fusion,
        host() as values,
        ThreadPoolExecutor(2) as threads,
        bar("attacks", len(attacks)) as report,
    ):

        def one(attack) -> dict[str, bool]:
            sources = attack.filled(**values)
            said = graded(attack.shape, sources)
            return said | ({"verl sandbox_fusion": fusion(FUNCTION, sources)} if attack.shape is FUNCTION else {})

        assert fusion(FUNCTION, FUNCTION.honest)
        rows = []
        for said in threads.map(one, attacks):
            rows.append(said)
            report(len(rows), "")
    ours = []
    for row, (passed, shared) in zip(rows, asyncio.run(_ours(attacks)), strict=True):
        ours.append(passed)
        row["shared"] = shared
    print("| shape | attacks | this sandbox |", " | ".join(GRADERS), "|")
    print("|---|---|---|", "|".join("---" for _ in GRADERS), "|", sep="")
    for shape in SHAPES:
        if not (chosen := [i for i, attack in enumerate(attacks) if attack.shape is shape]):
            continue
        counts = [sum(rows[i].get(g, False) for i in chosen) if g in rows[chosen[0]] else "-" for g in GRADERS]
        print(f"| {shape.name} | {len(chosen)} | {sum(ours[i] for i in chosen)} |", " | ".join(map(str, counts)), "|")
    for grader in GRADERS:
        print(f"\n{grader}:", ", ".join(str(a) for a, said in zip(attacks, rows, strict=True) if said.get(grader)))


if __name__ == "__main__":
    main(sys.argv[1:])
