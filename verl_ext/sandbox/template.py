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
from verl_ext.sandbox.keeper import kill_children
from verl_ext.sandbox.landlocked import Landlocked

_GRACE = 0.2  # seconds for a worker to end by itself, once its channel is closed

# What solutions commonly import: loaded once here, it costs a run nothing.
_WARM = (
    "abc array bisect calendar cmath collections collections.abc contextlib copy dataclasses datetime decimal enum "
    "fractions functools hashlib heapq inspect io itertools json math numbers operator random re secrets statistics "
    "string textwrap time traceback types typing unicodedata uuid"
)


class Jailed:
    """Level ``bubblewrap``: the template is in the outer jail, and a run gets namespaces of its own inside it."""

    def __init__(self) -> None:
        self._program = lockdown.build_filter()
        lockdown.keep_mounts()
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def warm(self) -> None:
        """When all modules are loaded, before the first run."""

    def fork(self, limits: dict) -> "tuple[int, str]":
        """Forks a run: process id (0 in it), and its directory."""
        self._limits = limits
        return lockdown.fork_into_pid_namespace(self._own), "/tmp"

    def shut_in(self, channel: int) -> None:
        """In the run: leaves it ``channel``, and what the level allows."""
        os.close(self._own)
        lockdown.enter_namespaces(self._limits["file_bytes"])
        lockdown.first_victim()
        lockdown.set_limits(self._limits, processes=True)
        lockdown.drop_privileges()
        lockdown.install_filter(self._program)

    def begin(self, channel: socket.socket) -> None:
        """In the run, when it is set up."""

    def wait(self, control: socket.socket) -> None:
        """In the template, while the trusted side has nothing to say."""

    def end(self, pid: int, patient: bool) -> int:
        """Kills a run and waits until all of it is gone; its exit status (negative: signal)."""
        if patient:
            _await(pid)
        os.kill(pid, signal.SIGKILL)  # pid 1 of the run: the kernel kills the others, and only then is it gone
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Plain(Jailed):
    """Level ``none``: a process of its own with resource limits, which the trusted test process does without."""

    def __init__(self, limited: bool) -> None:
        self._limited = limited
        lockdown.adopt_orphans()

    def fork(self, limits: dict) -> "tuple[int, str]":
        self._limits, self._place = limits, tempfile.mkdtemp(prefix="run-")
        try:
            return os.fork(), self._place
        except OSError:
            os.rmdir(self._place)
            raise

    def shut_in(self, channel: int) -> None:
        os.setsid()
        if self._limited:
            lockdown.set_limits(self._limits, processes=False)

    def end(self, pid: int, patient: bool) -> int:
        if patient:
            _await(pid)
        status = kill_children().get(pid, 0)
        shutil.rmtree(self._place, ignore_errors=True)
        return status


def main(work: "Callable[[socket.socket, str], None] | None" = None) -> None:
    """Arguments ``CONTROL_FD jail|landlock|plain [JSON]``: serves until the trusted process hangs up.

    Args:
        work: What a run does with its channel and directory; by default the untrusted worker.
    """
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    level = _level(work)
    for name in _WARM.split():
        __import__(name)
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]
    level.warm()
    gc.collect()
    gc.freeze()  # a collection in a run would otherwise write to, and so copy, every page of ours
    control.send(b"ready")
    os.dup2(0, 2)
    while True:
        level.wait(control)
        packet, fds, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not packet:
            return
        channel = socket.socket(fileno=fds[0])
        try:
            pid, place = level.fork(json.loads(packet))
        except OSError as error:
            channel.close()
            control.recv(64)
            control.send(f"error {error}".encode())
            continue
        if pid == 0:
            try:
                control.close()
                level.shut_in(channel.fileno())
                lockdown.end_on_cpu_signal()
                channel.sendall(b'{"id":"ready"}\n')
                level.begin(channel)
            except BaseException as error:  # no code of the policy is there yet: the infrastructure's fault
                with contextlib.suppress(OSError):
                    channel.sendall(json.dumps({"id": "setup", "error": str(error)}).encode() + b"\n")
                os._exit(1)
            try:
                (work or _serve)(channel, os.path.join(place, "work"))
            finally:
                os._exit(0)
        channel.close()
        level.wait(control)
        order = control.recv(64)
        status = level.end(pid, order == b"reap")
        if not order:
            return
        control.send(f"gone {status}".encode())


def _level(work: "Callable | None") -> "Jailed | Plain | Landlocked":
    if sys.argv[2] == "landlock":
        return Landlocked(json.loads(sys.argv[3]))
    return Jailed() if sys.argv[2] == "jail" else Plain(limited=work is None)


def _await(pid: int) -> None:
    """Until a child has ended, for as long as an ending one may take."""
    fd = os.pidfd_open(pid)
    waiter = select.poll()
    waiter.register(fd, select.POLLIN)
    waiter.poll(_GRACE * 1000)
    os.close(fd)


def _serve(channel: socket.socket, place: str) -> None:
    worker.serve(channel, place, {**handles.HANDLERS, **scripts.HANDLERS})
