"""The fusion backend against servers that behave as SandboxFusion was seen to: whose fault is what."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
import uvicorn
from fastapi import FastAPI, Response

from tests.attacks.suite import ACCOUNT, FUNCTION
from verl_ext.sandbox import Limits, fusion
from verl_ext.sandbox.serve import app as ours
from verl_ext.types import BadInput, Case, InfrastructureError, Tests

HONEST, TESTS = FUNCTION.honest, FUNCTION.tests
REAL = os.environ.get("VERL_EXT_FUSION_URL", "")  # read here only: for tests against a server that is there
FAULTS = [
    ("timeout", "def add(a, b):\n    while True: pass"),
    ("timeout", "import time\ndef add(a, b): time.sleep(60)"),
    ("died", "import os\ndef add(a, b): os._exit(0)"),
    ("died", "import os; os._exit(0)"),
    ("import", "import sys; sys.exit(0)"),
    ("protocol", "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'{}\\n')\n    except OSError: pass"),
    ("protocol", "def add(a, b): return 'x' * 300_000"),
    ("protocol", "import os\ndef add(a, b):\n    os.write(3, b'5' * 250_000)\n    return 5"),
    ("timeout", "def add(a, b): return 'x' * 4_000_000"),
    ("wrong", "print('x' * 10_000_000)\ndef add(a, b): return 0"),
    ("exception", "def add(a, b): raise SystemExit(0)"),
    ("memory", "def add(a, b): raise MemoryError"),
]  # fmt: skip
CUT = 219_264  # bytes of standard output that SandboxFusion keeps


class Fake:
    """A server that runs programs without isolation, with one way of failing at a time."""

    def __init__(self) -> None:
        self.fault, self.left, self.seen, self.at_once, self.most = "", 0, 0, 0, 0
        self.app = FastAPI()
        self.app.post("/run_code")(self.run_code)

    def fail(self, fault: str, times: int = 10**6) -> None:
        self.fault, self.left = fault, times

    async def run_code(self, body: dict, response: Response):
        self.seen += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            return await asyncio.to_thread(self._run, body, response)
        finally:
            self.at_once -= 1

    def _run(self, body: dict, response: Response):
        fault = self.fault if self.left > 0 else ""
        self.left -= 1
        if fault in ("500", "429"):
            response.status_code = int(fault)
            return {"detail": "no"}
        if fault == "SandboxError":
            return {"status": "SandboxError", "message": "no space left on device", "files": {}}
        if fault == "not JSON":
            return Response("<html>", media_type="text/html")
        if fault == "hangs":
            time.sleep(4.0)  # longer than the client waits
        if fault == "times everything out":
            return self._answer("TimeLimitExceeded", None, "")
        time.sleep(0.05)
        argv = [sys.executable, "-I", "-c", body["code"]]
        try:
            ran = subprocess.run(argv, capture_output=True, text=True, timeout=body["run_timeout"])
        except subprocess.TimeoutExpired as late:
            return self._answer("TimeLimitExceeded", None, (late.stdout or b"").decode())
        if fault == "hidden output" and "worker" in body["code"]:
            return self._answer("Finished", 0, "")
        if len(ran.stdout) > 3_000_000:  # seen: three megabytes of output become a time-out
            return self._answer("TimeLimitExceeded", None, ran.stdout[:CUT])
        return self._answer("Finished", ran.returncode, ran.stdout[:CUT])

    def _answer(self, status: str, code: int | None, out: str) -> dict:
        result = {"status": status, "return_code": code, "stdout": out, "stderr": "", "execution_time": 0.1}
        top = "Success" if status == "Finished" and code == 0 else "Failed"
        return {"status": top, "message": "", "run_result": result, "files": {}}


class Served:
    """An application on a free port, in a thread of its own."""

    def __init__(self, application: FastAPI) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/run_code"
        self.server = uvicorn.Server(uvicorn.Config(application, port=port, log_level="error"))
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.02)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def servers():
    fakes = Fake(), Fake()
    served = [Served(fake.app) for fake in fakes]
    yield [(fake, one.url) for fake, one in zip(fakes, served, strict=True)]
    for one in served:
        one.stop()


@pytest.fixture
def fakes(servers, monkeypatch):
    monkeypatch.setattr(fusion, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(fusion, "_MARGIN_S", 1.5)
    monkeypatch.setattr(fusion, "_CANARY_S", 1.5)
    for fake, _ in servers:
        fake.fail("", 0)
        fake.seen = fake.most = 0
    return servers


async def grade(sources, tests, *urls, **limits):
    sandbox = fusion.FusionSandbox(urls)
    try:
        return await sandbox.grade(sources, tests, Limits(**{"call_seconds": 5.0, **limits}))
    finally:
        await sandbox.aclose()


async def test_right_wrong_and_classes(fakes):
    ((_, url), _) = fakes
    assert (await grade(HONEST, TESTS, url)).passed
    assert (await grade(ACCOUNT.honest, ACCOUNT.tests, url)).passed
    wrong = await grade({"solution.py": "def add(a, b): return a + abs(b)"}, TESTS, url)
    assert wrong.passed and wrong.trust == "oracle"  # both hidden cases have a positive second argument
    verdict = await grade({"solution.py": "def add(a, b): return abs(a) + b"}, TESTS, url)
    assert [case.passed for case in verdict.cases] == [True, False] and verdict.failure == "wrong"


@pytest.mark.parametrize("fault", ["500", "429", "SandboxError", "not JSON", "hangs", "times everything out"])
async def test_a_server_s_fault_is_retried_and_never_the_policy_s(fakes, fault):
    (first, url), (second, other) = fakes
    first.fail(fault, times=2)
    assert (await grade(HONEST, TESTS, url, call_seconds=0.6)).passed
    first.fail(fault)
    before = second.seen
    assert (await grade(HONEST, TESTS, url, other, call_seconds=0.6)).passed
    assert second.seen > before
    with pytest.raises(InfrastructureError, match=r"try 5 of 5"):
        await grade({"solution.py": "def add(a, b): return 0"}, TESTS, url, call_seconds=0.6)


async def test_a_server_that_is_gone(fakes):
    (_, (_, other)) = fakes
    gone = "http://127.0.0.1:9/run_code"
    assert (await grade(HONEST, TESTS, gone, other)).passed
    with pytest.raises(InfrastructureError, match="ConnectError"):
        await grade(HONEST, TESTS, gone)


@pytest.mark.parametrize(("failure", "source"), FAULTS)
async def test_the_policy_s_fault_is_not_retried(fakes, failure, source):
    ((fake, url), _) = fakes
    verdict = await grade({"solution.py": source}, TESTS, url, call_seconds=2.0, restarts=0, output_bytes=8 << 20)
    assert not verdict.passed and verdict.failure == failure, verdict
    assert fake.seen <= 2  # the program, and after a time-out the canary


async def test_code_that_takes_its_program_s_output_along_has_failed(fakes):
    """Else a policy could have its lost sessions left out of training."""
    ((fake, url), _) = fakes
    fake.fail("hidden output")
    verdict = await grade({"solution.py": "def add(a, b): return 0"}, TESTS, url, restarts=0)
    assert not verdict.passed and verdict.failure == "died"
    assert fake.seen == 4  # twice the program and a trivial one that runs


async def test_honest_code_may_print_what_it_likes(fakes):
    ((_, url), _) = fakes
    assert (await grade({"solution.py": "def add(a, b):\n    print('5' * 10**6)\n    return a + b"}, TESTS, url)).passed


async def test_after_a_death_the_other_cases_are_graded_once(fakes):
    ((fake, url), _) = fakes
    source = "import os\ndef add(a, b):\n    return os._exit(0) if a == 1 else a + b"
    tests = Tests(cases=tuple(Case("add", (a, 1), expected=a + 1) for a in range(4)))
    verdict = await grade({"solution.py": source}, tests, url)
    assert [case.passed for case in verdict.cases] == [True, False, True, True]
    assert fake.seen == 2


async def test_requests_at_a_time_are_bounded_across_sandboxes(fakes):
    """Each process of a run has its own sandbox; the places are files that all of them lock."""
    ((fake, url), _) = fakes
    sandboxes = [fusion.FusionSandbox([url], concurrency=2) for _ in range(3)]
    verdicts = await asyncio.gather(*(one.grade(HONEST, TESTS) for one in sandboxes for _ in range(4)))
    await asyncio.gather(*(one.aclose() for one in sandboxes))
    assert all(verdict.passed for verdict in verdicts)
    assert fake.most == 2


async def test_bad_settings_get_one_line():
    for words, says in (
        ({"endpoints": []}, "no endpoints"),
        ({"endpoints": ["sandbox:8080"]}, "must begin with http"),
        ({"endpoints": ["http://x/run_code"], "concurrency": 0}, "at least 1"),
    ):
        with pytest.raises(BadInput, match=says):
            fusion.FusionSandbox(**words)
    with pytest.raises(BadInput, match="backend=local"):
        await grade(HONEST, Tests(files={"test_a.py": "def test_a(): pass"}), "http://x/run_code")


@pytest.mark.e2e
async def test_attacks_fail_through_our_own_server():
    """The same attacks as on the local sandbox, over HTTP: shut in by the server, judged here."""
    served = Served(ours(workers=2))
    sandbox = fusion.FusionSandbox([served.url], concurrency=4)
    limits = Limits(cpu_seconds=0.2, call_seconds=3.0, restarts=0, output_bytes=8 << 20)
    try:
        assert await sandbox.healthy() == [served.url]
        attacks = [*FUNCTION.attacks, *ACCOUNT.attacks]
        grades = [sandbox.grade(attack.sources, attack.shape.tests, limits) for attack in attacks]
        verdicts = await asyncio.gather(*grades, sandbox.grade(HONEST, TESTS), return_exceptions=True)
    finally:
        await sandbox.aclose()
        served.stop()
    assert [(str(a), v) for a, v in zip(attacks, verdicts[:-1], strict=True) if isinstance(v, Exception)] == []
    assert verdicts.pop().passed
    assert [str(attack) for attack, verdict in zip(attacks, verdicts, strict=True) if verdict.passed] == []


@pytest.fixture
async def real():
    """A sandbox on the server whose address the environment gives, e.g. http://localhost:8080/run_code."""
    if not REAL:
        pytest.skip("no SandboxFusion server: give the address of its run_code in VERL_EXT_FUSION_URL")
    sandbox = fusion.FusionSandbox([REAL], concurrency=4, token=os.environ.get("VERL_EXT_SANDBOX_TOKEN", ""))
    assert await sandbox.healthy() == [REAL], f"{REAL} does not run a trivial program"
    yield sandbox
    await sandbox.aclose()


@pytest.mark.e2e
async def test_real_server_right_wrong_and_classes(real):
    assert (await real.grade(HONEST, TESTS)).passed
    assert (await real.grade(ACCOUNT.honest, ACCOUNT.tests)).passed
    verdict = await real.grade({"solution.py": "def add(a, b): return abs(a) + b"}, TESTS)
    assert [case.passed for case in verdict.cases] == [True, False] and verdict.failure == "wrong"
    printing = {"solution.py": "def add(a, b):\n    print('5' * 10**6)\n    return a + b"}
    assert (await real.grade(printing, TESTS)).passed


@pytest.mark.e2e
@pytest.mark.parametrize(("failure", "source"), FAULTS)
async def test_real_server_the_policy_s_fault(real, failure, source):
    """A verdict, and no infrastructure failure; servers cut long output at different lengths, so not of which kind."""
    limits = Limits(call_seconds=5.0, restarts=0, output_bytes=8 << 20)
    verdict = await real.grade({"solution.py": source}, TESTS, limits)
    assert not verdict.passed
    if failure in ("import", "exception", "memory", "wrong"):
        assert verdict.failure == failure


@pytest.mark.e2e
async def test_real_server_after_a_death_the_other_cases_are_graded(real):
    source = "import os\ndef add(a, b):\n    return os._exit(0) if a == 1 else a + b"
    tests = Tests(cases=tuple(Case("add", (a, 1), expected=a + 1) for a in range(4)))
    verdict = await real.grade({"solution.py": source}, tests)
    assert [case.passed for case in verdict.cases] == [True, False, True, True]


@pytest.mark.e2e
async def test_real_server_attacks_fail_and_honest_grades_beside_them_pass(real):
    limits = Limits(cpu_seconds=0.2, call_seconds=5.0, restarts=0, output_bytes=8 << 20)
    attacks = [*FUNCTION.attacks, *ACCOUNT.attacks]
    grades = [real.grade(attack.sources, attack.shape.tests, limits) for attack in attacks]
    honest = [real.grade(HONEST, TESTS) for _ in range(8)]
    verdicts = await asyncio.gather(*grades, *honest)
    assert all(verdict.passed for verdict in verdicts[-8:])
    assert [str(attack) for attack, verdict in zip(attacks, verdicts, strict=False) if verdict.passed] == []
