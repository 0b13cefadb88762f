"""Attacks from the catalogue on a repair of ``add``: each must fail, as the policy's fault, and leave the sandbox well.

Every solution below is wrong; a verdict of passed, or an infrastructure failure, is a hole.
"""

import os
import socket
import time

import pytest

from verl_ext.sandbox import Limits
from verl_ext.sandbox.selfcheck import running
from verl_ext.types import Case, Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = Limits(cpu_seconds=0.2, call_seconds=1.5, total_seconds=6.0, restarts=0)
TESTS = Tests(cases=(Case("add", (2, 3), expected=5), Case("add", (-7, 9), expected=2)))
HONEST = {"solution.py": "def add(a, b):\n    return a + b\n"}

ATTACKS = {
    "exit_at_import": ("import", "import sys; sys.exit(0)"),
    "hard_exit_at_import": ("died", "import os; os._exit(0)"),
    "hard_exit_in_call": ("died", "import os\ndef add(a, b): os._exit(0)"),
    "raise_system_exit": ("exception", "def add(a, b): raise SystemExit(0)"),
    "always_equal": (
        "wrong",
        "class Y(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef add(a, b): return Y()",
    ),
    "tolerant_float": (
        "wrong",
        "class F(float):\n    __sub__ = __abs__ = lambda *a: 0\n    __lt__ = __le__ = lambda *a: True\n"
        "def add(a, b): return F()",
    ),
    "reduce_object": (
        "wrong",
        "class R:\n    def __reduce__(self): import os; return os.system, ('true',)\ndef add(a, b): return R()",
    ),
    "write_every_fd": (
        "protocol",
        "import os\ndef add(a, b):\n    for fd in range(64):\n"
        "        try: os.write(fd, b'{\"passed\":true,\"value\":5}\\n')\n"
        "        except OSError: pass\n    return 0",
    ),
    "answer_ahead": (
        "protocol",
        "import os, json\nfor fd in range(3, 64):\n    try:\n"
        "        for _ in range(50): os.write(fd, json.dumps({'id': '0' * 16, 'value': 5}).encode() + b'\\n')\n"
        "    except OSError: pass\ndef add(a, b): return 5",
    ),
    "close_every_fd": ("died", "import os\ndef add(a, b): os.closerange(0, 64); return 5"),
    "fork_parent_exits": ("died wrong", "import os\ndef add(a, b):\n    if os.fork(): os._exit(0)\n    return 1"),
    "fork_both_answer": ("wrong", "import os\ndef add(a, b):\n    os.fork()\n    return 0"),
    "fork_bomb": ("timeout", "import os\ndef add(a, b):\n    while True:\n        try: os.fork()\n        except OSError: pass"),
    "thread_bomb": (
        "exception",
        "import threading, time\ndef add(a, b):\n"
        "    while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ),
    "disk_filler": (
        "wrong timeout",
        "def add(a, b):\n    for i in range(100):\n        try:\n"
        "            with open(f'/tmp/{i}', 'wb') as f: f.write(bytes(16 << 20))\n        except OSError: pass\n    return 0",
    ),
    "device_filler": ("exception", "def add(a, b): open('/dev/filler', 'w').write('x' * 100); return 0"),
    "memory_hog": ("memory", "def add(a, b): return len(bytearray(4 << 30))"),
    "memory_hog_slow": ("memory", "def add(a, b):\n    x = []\n    while True: x.append(bytes(16 << 20))"),
    "spin": ("timeout", "def add(a, b):\n    while True: pass"),
    "sleep": ("timeout", "import time\ndef add(a, b): time.sleep(600)"),
    "spin_at_import": ("timeout", "while True: pass"),
    "spin_ignoring_signals": (
        "timeout",
        "import signal\ndef add(a, b):\n    for s in range(1, 65):\n        try: signal.signal(s, signal.SIG_IGN)\n"
        "        except (OSError, ValueError): pass\n    while True: pass",
    ),
    "swallow_everything": (
        "timeout",
        "def add(a, b):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
    ),
    "connect_to_loopback": ("exception", "import socket\ndef add(a, b): socket.create_connection(('127.0.0.1', PORT)); return 0"),
    "abstract_socket": (
        "exception",
        "import socket\ndef add(a, b): socket.socket(socket.AF_UNIX).connect('\\0SECRET'); return 0",
    ),
    "read_host_file": ("exception", "def add(a, b): return len(open('/etc/passwd').read())"),
    "read_tests": ("exception", "import os\ndef add(a, b): return len(open(os.path.join('REPO', 'pyproject.toml')).read())"),
    "read_parent_environ": (
        "wrong",
        "import os\ndef add(a, b):\n    text = ''.join(open(f'/proc/{p}/environ').read() for p in os.listdir('/proc')"
        " if p.isdigit())\n    return text.replace('PYTHONHASHSEED=0', '').replace('PWD=/', '').strip('\\0')",
    ),
    "ptrace_parent": (
        "wrong",
        "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
        "def add(a, b): return [libc.ptrace(16, os.getppid(), 0, 0), libc.ptrace(16, 1, 0, 0)]",
    ),
    "kill_everything": (
        "wrong",
        "import os, signal\ndef add(a, b):\n    for p in range(1, 3):\n"
        "        if p != os.getpid():\n            os.kill(p, signal.SIGKILL)\n    return 0",
    ),
    "new_namespaces": ("wrong", "import ctypes\ndef add(a, b): return ctypes.CDLL(None).unshare(0x10000000)"),
    "walk_the_stack": (
        "wrong",
        "import sys, gc\ndef add(a, b):\n    f, seen = sys._getframe(), []\n    while f:\n"
        "        seen += [k for k, v in f.f_locals.items() if 'expected' in k]; f = f.f_back\n"
        "    return [seen, [o for o in gc.get_objects() if type(o).__name__ == 'Case']]",
    ),
    "huge_int": ("wrong", "def add(a, b): return 10 ** 20000"),
    "long_int_text": ("wrong", "import sys\nsys.set_int_max_str_digits(0)\ndef add(a, b): return 10 ** 5000"),
    "deep_answer": ("wrong", "def add(a, b):\n    x = []\n    for _ in range(100000): x = [x]\n    return x"),
    "deep_json": (
        "protocol",
        "import os\ndef add(a, b):\n    for fd in range(3, 64):\n        try: os.write(fd, b'[' * 90000 + b'\\n')\n"
        "        except OSError: pass\n    return 0",
    ),
    "output_bomb": ("protocol", "import os\ndef add(a, b):\n    while True:\n        for fd in range(3, 64):\n"
        "            try: os.write(fd, b'x' * 65536)\n            except OSError: pass"),
    "print_bomb": ("wrong timeout", "def add(a, b):\n    for _ in range(50): print('5 passed' * 100000)\n    return 0"),
    "big_answer": ("protocol", "def add(a, b): return 'x' * (3 << 20)"),
    "nan": ("wrong", "def add(a, b): return float('nan')"),
    "swap_modules": (
        "wrong",
        "import sys\nfrom verl_ext.sandbox import wire, worker\nwire.agree = worker.agree = lambda *a: True\n"
        "sys.modules['verl_ext.sandbox.oracle'] = sys.modules['json'] = sys.modules[__name__]\ndef add(a, b): return 0",
    ),
    "swap_builtins": (
        "wrong died",
        "import builtins\nbuiltins.len = lambda x: 5\nbuiltins.all = lambda x: True\ndef add(a, b): return 0",
    ),
    "crash": ("died", "import ctypes\ndef add(a, b): return ctypes.string_at(0)"),
    "abort": ("died", "import os\ndef add(a, b): os.abort()"),
    "recursion": ("exception", "def add(a, b): return add(a, b)"),
    "mutate_arguments": ("exception", "def add(a, b): a.append(b)"),
    "exec_other_program": ("died", "import os, sys\ndef add(a, b): os.execv(sys.executable, [sys.executable, '-c', 'pass'])"),
    "syntax_error": ("import", "def add(a, b) return"),
    "nothing": ("exception", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
async def test_attack_fails_and_the_sandbox_works_on(sandbox, name):
    kinds, text = ATTACKS[name]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0verl-ext-{os.getpid()}")
        unix.listen()
        text = text.replace("PORT", str(server.getsockname()[1])).replace("SECRET", f"verl-ext-{os.getpid()}")
        text = text.replace("REPO", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
        verdict = await sandbox.grade({"solution.py": text}, TESTS, LIMITS)
    assert not verdict.passed
    assert len(verdict.cases) == 2
    assert not any(case.passed for case in verdict.cases)
    assert verdict.failure in kinds.split(), verdict
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
    found = [p for p in ("/tmp/left", "/dev/shm/left", "/tmp/work/left", "/left", "/dev/left", "/jail/left") if os.path.exists(p)]
    return found + [m for m in sys.modules if m == "left"]
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
