"""The warm interpreter inside the jail: forks one run at a time, and sees that nothing of it is left.

It holds no test data and never imports the policy's code, so a run cannot poison it and has nothing to find in it. It
speaks with the trusted process over a packet socket: a packet with limits and a channel's descriptor starts a run,
``kill`` or ``reap`` ends it, and the answer comes when every process of the run is gone. End of file ends the template.
"""

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable

from verl_ext.sandbox import handles, lockdown, scripts, worker

_GRACE = 0.2  # seconds for a worker to end by itself, once its channel is closed

# What solutions commonly import: loaded once here, it costs a run nothing.
_WARM = (
    "abc array bisect calendar cmath collections collections.abc contextlib copy dataclasses datetime decimal enum "
    "fractions functools hashlib heapq inspect io itertools json math numbers operator random re secrets statistics "
    "string textwrap time traceback types typing unicodedata uuid"
)


def main(work: "Callable[[socket.socket, str], None] | None" = None) -> None:
    """Arguments ``CONTROL_FD jail|plain``: serves until the trusted process hangs up.

    Args:
        work: What a run does with its channel and place; by default the untrusted worker, under its limits.
    """
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    jailed = sys.argv[2] == "jail"
    for name in _WARM.split():
        __import__(name)
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]
    program = lockdown.build_filter() if lockdown.supported() else b""
    own = -1
    if jailed:
        lockdown.keep_mounts()
        own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    else:
        lockdown.adopt_orphans()
    gc.collect()
    gc.freeze()  # a collection in a run would otherwise write to, and so copy, every page of ours
    control.send(b"ready")
    os.dup2(0, 2)
    while True:
        packet, fds, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not packet:
            return
        limits = json.loads(packet)
        channel = socket.socket(fileno=fds[0])
        place = "/tmp" if jailed else tempfile.mkdtemp(prefix="run-")
        try:
            pid = lockdown.fork_into_pid_namespace(own) if jailed else os.fork()
        except OSError as error:
            channel.close()
            control.recv(64)
            control.send(f"error {error}".encode())
            continue
        if pid == 0:
            try:
                control.close()
                if jailed:
                    os.close(own)
                    _shut_in(limits, program)
                else:
                    os.setsid()
                    if work is None:
                        lockdown.set_limits(limits, processes=False)
                lockdown.end_on_cpu_signal()
                channel.sendall(b'{"id":"ready"}\n')
            except BaseException as error:  # no code of the policy is there yet: the infrastructure's fault
                with contextlib.suppress(OSError):
                    channel.sendall(json.dumps({"id": "setup", "error": str(error)}).encode() + b"\n")
                os._exit(1)
            try:
                (work or _serve)(channel, os.path.join(place, "work"))
            finally:
                os._exit(0)
        channel.close()
        order = control.recv(64)
        status = _end(pid, order == b"reap", jailed)
        if not jailed:
            shutil.rmtree(place, ignore_errors=True)
        if not order:
            return
        control.send(f"gone {status}".encode())


def _end(pid: int, patient: bool, jailed: bool) -> int:
    """Kills a run and waits until all of it is gone; its exit status (negative: signal)."""
    if patient:
        fd = os.pidfd_open(pid)
        waiter = select.poll()
        waiter.register(fd, select.POLLIN)
        waiter.poll(_GRACE * 1000)
        os.close(fd)
    if jailed:
        os.kill(pid, signal.SIGKILL)  # pid 1 of the run: the kernel kills the others, and only then is it gone
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = None
    while True:  # orphans come to us one generation at a time
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(child) for child in file.read().split()]
        if not children:
            return status or 0
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            status = code if child == pid else status


def _shut_in(limits: dict, program: bytes) -> None:
    lockdown.enter_namespaces(limits["file_bytes"])
    lockdown.first_victim()
    lockdown.set_limits(limits, processes=True)
    lockdown.drop_privileges()
    lockdown.install_filter(program)


def _serve(channel: socket.socket, place: str) -> None:
    worker.serve(channel, place, {**handles.HANDLERS, **scripts.HANDLERS})
