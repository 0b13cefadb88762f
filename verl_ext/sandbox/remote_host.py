"""The far end of a run that is started by one command: it asks a worker of its own and prints the answers.

Between the command and the worker, so that code which takes its process along, never ends, or leaves others behind
costs its own answers and nothing else. Nothing here is believed by the trusted side but as the policy's word.
Standard library only.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time

from verl_ext.sandbox import beneath, lockdown, worker

_PR_SET_PDEATHSIG = 1
_NOBODY = 65534
SETUP_S = 10.0  # seconds on top of a run's own, after which it ends itself
_GRACE_S = 0.2  # for a worker to end by itself, once its channel is closed


def main(ready: str, limits: dict, nobody: bool, questions: str) -> None:
    """Runs one worker and prints lines: ``ready``, an answer for each question, and how it ended.

    Args:
        ready: A random word that opens the first and the last line.
        limits: Fields of :class:`~verl_ext.sandbox.base.Limits`.
        nobody: Whether a root's worker becomes uid 65534.
        questions: Path of a file with one a line, read when the worker stands: it is not to find them in its memory.
    """
    deadline = time.monotonic() + limits["total_seconds"]
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGALRM, _leave)
    _die_with_parent(signal.SIGTERM)
    signal.alarm(int(limits["total_seconds"] + SETUP_S))
    lockdown.adopt_orphans()
    ours, theirs = socket.socketpair()
    pid, fault = 0, None
    try:
        pid = os.fork()
        if pid == 0:
            ours.close()
            _work(theirs, limits, nobody)
        theirs.close()
        reader = _Reader(ours, limits["output_bytes"])
        if (hello := reader.line(deadline)) != b'{"id":"ready"}\n':
            _write(json.dumps({"setup": (hello or b"it does not stand").decode("utf-8", "replace")}).encode() + b"\n")
            return
        with open(questions, "rb") as file:
            asked = file.read().splitlines(keepends=True)
        os.unlink(questions)
        _write(ready.encode() + b"\n")
        for question in asked:
            until = min(deadline, time.monotonic() + limits["call_seconds"])
            if not reader.put(question, until) or (answer := reader.line(until)) is None:
                fault = reader.fault
                break
            _write(answer)
    finally:
        ours.close()
        status = _end(pid) if pid else None
    _write(ready.encode() + b" " + json.dumps({"fault": fault, "status": status}).encode() + b"\n")


class _Reader:
    """Lines of a hostile worker, bounded in time and size; ``fault`` says why there is none."""

    def __init__(self, sock: socket.socket, most: int) -> None:
        self._sock, self._most, self._buffer = sock, most, b""
        self.fault = "died"

    def put(self, data: bytes, deadline: float) -> bool:
        self._sock.setblocking(False)
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                if not select.select([], [self._sock], [], max(0.0, deadline - time.monotonic()))[1]:
                    self.fault = "timeout"
                    return False
            except OSError:
                return True  # the read that follows finds out
        return True

    def line(self, deadline: float) -> "bytes | None":
        while b"\n" not in self._buffer:
            if len(self._buffer) > self._most:
                self.fault = "protocol"
                return None
            if not select.select([self._sock], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self.fault = "timeout"
                return None
            try:
                data = self._sock.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self.fault = "died"
                return None
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line + b"\n"


def _work(channel: socket.socket, limits: dict, nobody: bool) -> None:
    """The worker's process: shuts itself in as far as that goes without namespaces, then serves."""
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):  # what it prints would stand among the answers
            os.dup2(null, fd)
        keep = channel.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, 1 << 10)
        if nobody and os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        _die_with_parent(signal.SIGKILL)  # after the change of user, which forgets it
        os.umask(0o077)
        root = tempfile.mkdtemp(prefix="run-")
        with contextlib.suppress(OSError):
            lockdown.first_victim()
        # Not the number of processes, which would be counted over all of the user's, in other containers as well.
        lockdown.set_limits(limits, processes=False)
        lockdown.drop_privileges()
        if lockdown.supported():
            lockdown.install_filter(lockdown.build_filter())
        channel.sendall(b'{"id":"ready"}\n')
    except BaseException as error:  # no code of the policy is there yet: the infrastructure's fault
        with contextlib.suppress(OSError):
            channel.sendall(f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:300] + b"\n")
        os._exit(1)
    try:
        worker.serve(channel, os.path.join(root, "work"), {"load": _load})
    finally:
        os._exit(0)


def _load(state: dict, request: dict) -> dict:
    os.makedirs(state["root"])
    root = beneath.open_root(state["root"])
    try:
        beneath.write_tree(root, request["sources"])
    finally:
        os.close(root)
    return worker._load(state, {**request, "sources": {}})


def _end(pid: int) -> "int | None":
    """Kills all descendants and waits for them; the worker's exit status, negative for a signal."""
    process = os.pidfd_open(pid)
    select.select([process], [], [], _GRACE_S)
    os.close(process)
    status = None
    while True:  # orphans come to us one generation at a time
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(child) for child in file.read().split()]
        if not children:
            return status
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            status = code if child == pid else status


def _die_with_parent(number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _leave(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
