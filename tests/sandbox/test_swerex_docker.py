"""The swerex backend in Docker: with a stand-in for its command that runs swe-rex's real server; and for real."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from tests.attacks.suite import ACCOUNT, FUNCTION
from tests.sandbox.test_fusion import Served
from tests.sandbox.test_swerex import HONEST, LOOP, QUICK, TESTS, descendants
from verl_ext.config import SandboxConfig
from verl_ext.sandbox import check, swerex
from verl_ext.types import BadInput, Case, InfrastructureError, Tests

pytest.importorskip("swerex", reason="swe-rex is not installed: pip install 'verl_ext[swerex]'")

_DOCKER = """#!{python}
import json, os, signal, subprocess, sys
argv, here = sys.argv[1:], {here!r}
with open(os.path.join(here, "log"), "a") as log:
    log.write(json.dumps(argv) + "\\n")
if argv[0] == "run":
    port = argv[argv.index("-p") + 1].split(":")[0]
    name, label = argv[argv.index("--name") + 1], argv[argv.index("--label") + 1]
    token = argv[-1].split("--auth-token ")[1].split()[0]
    with open(os.path.join(here, name + ".container"), "w") as file:
        file.write(f"{{os.getpid()}} {{label}}")
    os.setsid()
    rex = os.path.join(os.path.dirname({python!r}), "swerex-remote")
    os.execv(rex, [rex, "--host", "127.0.0.1", "--port", port, "--auth-token", token])
names = [name[:-10] for name in os.listdir(here) if name.endswith(".container")]
if argv[0] == "ps":
    for name in names:
        if open(os.path.join(here, name + ".container")).read().split()[1] == argv[-1].removeprefix("label="):
            print(name)
if argv[0] == "kill":
    for name in argv[1:]:
        path = os.path.join(here, name + ".container")
        try:
            pid = int(open(path).read().split()[0])
            os.unlink(path)
            os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            sys.exit(1)
"""


class Stand:
    """A docker command that runs swe-rex's server as a process of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "docker"
        program.write_text(_DOCKER.format(python=sys.executable, here=str(folder)))
        program.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    @property
    def containers(self) -> list[int]:
        return [int(path.read_text().split()[0]) for path in self.folder.glob("*.container")]


@pytest.fixture
def stand(tmp_path, monkeypatch):
    found = Stand(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(swerex, "_PAUSE_S", 0.01)
    yield found
    assert found.containers == []


async def test_docker_is_started_shut_in_used_once_and_stopped(stand):
    sandbox = swerex.SwerexSandbox("docker", "some/image:1", concurrency=1, limits=QUICK)
    try:
        assert sandbox.isolation == "docker"
        assert (await sandbox.grade(HONEST, TESTS)).passed
        assert (await sandbox.grade({"solution.py": "def add(a, b): return 0"}, TESTS)).failure == "wrong"
        assert (await sandbox.grade(LOOP, TESTS)).failure == "timeout"
        assert stand.containers == []
    finally:
        await sandbox.aclose()
    runs = [call for call in stand.calls if call[0] == "run"]
    names = {call[call.index("--name") + 1] for call in runs}
    assert len(runs) == len(names) == 3
    assert {call[1] for call in stand.calls if call[0] == "kill"} == names
    text = " ".join(runs[0])
    for words in (
        "--rm", "--cap-drop ALL --security-opt no-new-privileges", "--cap-add SETUID --cap-add SETGID --cap-add KILL",
        "--read-only --tmpfs /tmp:rw,nosuid,nodev,size=25165824,mode=1777", "--pids-limit 48",
        "--memory 822083584 --memory-swap 822083584", "--env PYTHONHASHSEED=0", "some/image:1 /bin/sh -c",
    ):  # fmt: skip
        assert words in text, words
    for word in ("--privileged", "--volume", "-v", "--mount", "--network", "--pid", "--user"):
        assert word not in runs[0]


async def test_containers_that_die_are_infrastructure(stand, monkeypatch):
    """Killed from outside while code runs, the trivial program's, too: not the policy's fault."""
    sandbox = swerex.SwerexSandbox("docker", "image", concurrency=1, limits=QUICK)
    real, killed = swerex.SwerexSandbox._deployed, []

    async def deployed(self, asked, limits):
        async def kill():
            while not (found := [pid for pid in stand.containers if descendants(pid)]):
                await asyncio.sleep(0.01)
            killed.append(found[0])
            os.kill(found[0], signal.SIGKILL)

        killer = asyncio.create_task(asyncio.to_thread(asyncio.run, kill()))
        said = await real(self, asked, limits)
        await killer
        return said

    try:
        with monkeypatch.context() as patch:
            patch.setattr(swerex.SwerexSandbox, "_deployed", deployed)
            patch.setattr(swerex, "_ATTEMPTS", 1)
            slow = {"solution.py": "import time\ntime.sleep(3)\ndef add(a, b): return a + b"}
            with pytest.raises(InfrastructureError, match="try 1 of 1"):
                await sandbox.grade(slow, TESTS)
        assert len(killed) == 2  # the run, and the trivial program after it
        assert (await sandbox.grade(HONEST, TESTS)).passed
    finally:
        await sandbox.aclose()


def test_a_killed_process_takes_its_containers_along(stand):
    script = (
        "import asyncio\n"
        "from verl_ext.sandbox.swerex import SwerexSandbox\n"
        "from verl_ext.types import Case, Tests\n"
        "sandbox = SwerexSandbox('docker', 'image')\n"
        "asyncio.run(sandbox.grade({'solution.py': 'import time; time.sleep(60)'}, Tests(cases=(Case('f'),))))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 30
    while not stand.containers:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    (container,) = stand.containers
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while stand.containers or Path(f"/proc/{container}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_an_image_that_does_not_start_is_refused_before_the_run(stand, monkeypatch):
    (stand.folder / "docker").write_text("#!/bin/sh\necho no such image >&2\nexit 125\n")
    with pytest.raises(BadInput, match=r"backend=swerex: .*no such image.*docs/sandbox.md"):
        await check(SandboxConfig(backend="swerex", image="nowhere/none"))


def served(status: int, content: object):
    application = FastAPI()

    @application.post("/{name}")
    async def any_name(name: str):
        return JSONResponse(status_code=status, content=content)

    return Served(application)


@pytest.mark.parametrize("kind", ["exception", "long", "odd"])
async def test_a_server_that_a_policy_took_over_gets_nothing(tmp_path, kind):
    """swe-rex's own client calls whatever function the answer names: ``os.mkdir`` here, with the answer's text."""
    from swerex.exceptions import SwerexException
    from swerex.runtime.abstract import Command

    from verl_ext.sandbox import swerex_runtime

    mark = tmp_path / "mark"
    evil = {"swerexception": {"class_path": "os.mkdir", "message": str(mark), "traceback": ""}}
    status, content = {"exception": (511, evil), "long": (200, {"stdout": "x" * 5000}), "odd": (200, [1])}[kind]
    server = served(status, content)
    host, port = server.url.removesuffix("/run_code").rsplit(":", 1)
    client = swerex_runtime.Client(auth_token="t", host=host, port=int(port))
    client.seconds, client.most = 5.0, 1000
    try:
        with pytest.raises((SwerexException, TypeError)):
            await client.execute(Command(command=["true"]))
        if kind == "exception":
            from swerex.runtime.remote import RemoteRuntime

            assert not mark.exists()
            with pytest.raises(AttributeError):
                await RemoteRuntime(auth_token="t", host=host, port=int(port)).execute(Command(command=["true"]))
            assert mark.exists()  # the fault is still there: the day it is not, this class can go
    finally:
        server.stop()


def docker_works() -> str:
    if not shutil.which("docker"):
        return "no docker command here"
    asked = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=20)
    return "" if asked.returncode == 0 else "no docker daemon answers here"


@pytest.mark.e2e
async def test_docker_for_real():
    """The image of sandboxes/swerex: honest code passes, attacks fail, nothing is left, and there is no network."""
    if reason := docker_works():
        pytest.skip(reason)
    root = Path(__file__).parents[2]
    build = ["docker", "build", "-q", "-t", "verl-ext-swerex", str(root / "sandboxes/swerex")]
    subprocess.run(build, check=True, timeout=600)
    sandbox = swerex.SwerexSandbox("docker", "verl-ext-swerex", concurrency=2)
    try:
        await sandbox.check()
        attacks = [*FUNCTION.attacks[:30], *ACCOUNT.attacks]
        grades = [sandbox.grade(attack.sources, attack.shape.tests, QUICK) for attack in attacks]
        verdicts = await asyncio.gather(*grades, sandbox.grade(HONEST, TESTS))
        assert verdicts.pop().passed
        assert [str(attack) for attack, verdict in zip(attacks, verdicts, strict=True) if verdict.passed] == []
        probe = "import os, socket\ndef who():\n    try: socket.socket()\n    except OSError: return os.getuid()"
        outcome = (await sandbox.evaluate({"solution.py": probe}, Tests(cases=(Case("who"),))))[0]
        assert outcome.value == 65534
    finally:
        await sandbox.aclose()
    ps = subprocess.run(["docker", "ps", "-q", "--filter", "ancestor=verl-ext-swerex"], capture_output=True, text=True)
    assert ps.stdout == ""
