"""The server speaks SandboxFusion's ``run_code``: its own client and verl's grader work against it unchanged."""

import base64
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

MAIN = [sys.executable, "-m", "verl_ext.cli", "sandbox", "serve"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def url():
    port = _free_port()
    process = subprocess.Popen([*MAIN, "--port", str(port)], stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        try:
            assert httpx.get(f"{address}/v1/ping").json() == "pong"
            break
        except httpx.ConnectError:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    yield address
    process.send_signal(signal.SIGINT)
    assert process.wait(20) in (0, 130, -signal.SIGINT)


def run(url: str, code: str, **more) -> dict:
    answer = httpx.post(f"{url}/run_code", json={"code": code, "language": "python", **more}, timeout=60)
    answer.raise_for_status()
    return answer.json()


def test_a_program_its_input_and_its_files(url):
    code = "import sys, helper\nprint(helper.double(int(input())))\nopen('out.txt', 'w').write('x' * 3)\nsys.exit(3)"
    files = {"helper.py": base64.b64encode(b"def double(x): return 2 * x\n").decode()}
    answer = run(url, code, stdin="21\n", files=files, fetch_files=["out.txt", "missing"])
    assert answer["status"] == "Failed"
    assert answer["run_result"]["status"] == "Finished"
    assert answer["run_result"]["return_code"] == 3
    assert answer["run_result"]["stdout"] == "42\n"
    assert answer["files"] == {"out.txt": base64.b64encode(b"xxx").decode()}


def test_success_failure_time_and_memory(url):
    good = run(url, "print('hello')")
    assert (good["status"], good["run_result"]["stdout"]) == ("Success", "hello\n")
    bad = run(url, "raise KeyError('x')")
    assert bad["status"] == "Failed" and bad["run_result"]["return_code"] == 1
    assert "KeyError" in bad["run_result"]["stderr"]
    slow = run(url, "print('begun', flush=True)\nwhile True: pass", run_timeout=1)
    assert slow["run_result"]["status"] == "TimeLimitExceeded" and slow["run_result"]["stdout"] == "begun\n"
    assert 1 <= slow["run_result"]["execution_time"] < 5
    big = run(url, "x = bytearray(300 << 20)", memory_limit_MB=200)
    assert "MemoryError" in big["run_result"]["stderr"]


def test_long_output_is_cut_aloud(url):
    answer = run(url, "print('x' * (5 << 20))")
    assert len(answer["run_result"]["stdout"]) == 4 << 20
    assert "cut" in answer["message"]


def test_what_was_said_cannot_be_taken_back(url):
    code = "import os, shutil\nprint('said', flush=True)\ntry: os.ftruncate(1, 0)\nexcept OSError: pass\n"
    code += "shutil.rmtree(os.getcwd())\nfor _ in range(9): os.write(2, b'e' * 60000)"
    answer = run(url, code)
    assert (answer["status"], answer["run_result"]["stdout"]) == ("Success", "said\n")
    assert answer["run_result"]["stderr"] == "e" * 540000


def test_a_program_sees_neither_the_host_nor_the_program_before_it(url):
    leave = "import os\nif os.fork() == 0:\n    os.setsid()\n    import time; time.sleep(600)\nopen('/tmp/left', 'w')"
    assert run(url, leave)["status"] == "Success"
    look = "import os\nprint(os.path.exists('/tmp/left'), os.path.exists('/etc/passwd'), os.getuid() != 0)"
    assert run(url, look)["run_result"]["stdout"] == "False False True\n"


def test_what_a_program_leaves_is_fetched_only_where_it_is_a_plain_file(url):
    code = "import os\nos.mkfifo('fifo')\nos.symlink('/proc/self/environ', 'link')\nopen('out', 'w').write('x')"
    answer = run(url, code, fetch_files=["fifo", "link", "out"], run_timeout=5)
    assert answer["status"] == "Success" and list(answer["files"]) == ["out"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"code": "x", "language": "rust"}, "python only"),
        ({"code": "x", "files": {"../x": ""}}, "forbidden path"),
        ({"code": "x", "run_timeout": 0}, "greater than 0"),
        ({"code": "x", "memory_limit_MB": 1}, "address_space"),
        ({}, "Field required"),
    ],
)
def test_bad_requests_say_why(url, body, says):
    answer = httpx.post(f"{url}/run_code", json=body)
    assert answer.status_code == 422 and says in answer.text


def test_the_published_client_works_unchanged(url):
    client = pytest.importorskip("sandbox_fusion")
    client.set_sandbox_endpoint(url)
    answer = client.run_code(client.RunCodeRequest(code="print(6 * 7)", language="python"))
    assert answer.status == client.RunStatus.Success
    assert answer.run_result.stdout == "42\n"


def test_verl_s_own_grader_works_unchanged(url):
    from verl.utils.reward_score.sandbox_fusion import compute_score

    cases = {"fn_name": "add", "inputs": ["2\n3", "-7\n9"], "outputs": ["5", "2"]}
    for body, expected in (("a + b", 1.0), ("a - b", 0.0), ("a + abs(b)", 1.0), ("abs(a) + b", 0.5)):
        completion = f"```python\ndef add(a, b):\n    return {body}\n```"
        assert compute_score(f"{url}/run_code", None, 1024, completion, cases)[0] == expected


def test_a_token_is_asked_for_where_others_can_reach_it():
    environment = {**os.environ, "VERL_EXT_SANDBOX_TOKEN": ""}
    ended = subprocess.run([*MAIN, "--host", "0.0.0.0"], capture_output=True, text=True, env=environment)
    assert ended.returncode == 2 and "give a token" in ended.stderr and ended.stderr.count("\n") == 1


def test_a_wrong_token_is_refused():
    from fastapi.testclient import TestClient

    from verl_ext.sandbox.serve import app

    client = TestClient(app(1, "auto", token="secret"))  # not entered: no sandbox is needed to refuse
    for header in ({}, {"Authorization": "Bearer no"}):
        assert client.post("/run_code", json={"code": "x"}, headers=header).status_code == 401
