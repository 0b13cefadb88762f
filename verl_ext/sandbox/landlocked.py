"""The template's part in the level ``landlock``: shuts a run in without namespaces, watches it, and ends it.

What bubblewrap's namespaces give has substitutes: Landlock for the mount namespace, a stricter filter for the network
and IPC ones, two guardians for the pid one (``keeper.py``), and for the size of its tmpfs and the count of processes
this watch. While the code runs, it looks fifty times a second; a run that holds too much is killed, which the trusted
side sees as any other death. Runs inside the jail: standard library only.
"""

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import tempfile
import time

from verl_ext.sandbox import hostfilter, landlock, lockdown, usage
from verl_ext.sandbox.keeper import Keeper, children

_LOOK = 0.02  # seconds between two looks
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND
_CONTINUE = 1
_GRACE = 0.2  # seconds for a worker to end by itself, once its channel is closed


class Landlocked:
    """See :class:`verl_ext.sandbox.template.Jailed` for what the template asks of a level."""

    def __init__(self, spec: dict) -> None:
        """``spec``: ``abi`` to use, ``users`` (see :class:`Keeper`), ``read`` and ``devices`` (paths that a run may
        open), ``place`` (directory in which the slot gets one), ``preload`` (modules that a run needs), ``packages``
        (directory that they come from)."""
        if sys.platform != "linux" or not lockdown.supported():
            raise SystemExit("landlock: this machine's system calls are not known")
        self._abi = min(landlock.abi(), spec["abi"])
        if self._abi < 1:
            raise SystemExit("the kernel has no Landlock, or it is switched off (Linux 5.13, lsm=landlock,...)")
        self._spec = spec
        self._keeper = Keeper(spec["users"], spec["place"])
        self._paths: list[tuple[int, int]] = []
        self._run = self._pidfd = self._asking = -1
        self._awake = False
        self._status = 0

    @property
    def _same_user(self) -> bool:
        return self._keeper.uid is None

    def warm(self) -> None:
        """When all modules are loaded: opens what runs may open, and gives up root's rights where that is possible."""
        for name in self._spec["preload"]:
            __import__(name)
        # Landlock hides what else is there, but a listing from before would make it look as if it were.
        sys.path[:] = [path for path in sys.path if path != self._spec["packages"]]
        sys.path_importer_cache.pop(self._spec["packages"], None)
        pairs = [(path, landlock.READ) for path in self._spec["read"]]
        pairs += [(path, landlock.USE_DEVICE) for path in self._spec["devices"]]
        for path, rights in pairs:
            with contextlib.suppress(FileNotFoundError):
                self._paths.append((os.open(path, os.O_PATH | os.O_CLOEXEC), rights))
        self._keeper.drop()
        # Where it depends on the run's process id, it is built again for each.
        self._program = hostfilter.build_filter(self._abi, self._same_user, 0)
        children()  # fails where the kernel cannot name them, and nothing could be ended for certain

    def fork(self, limits: dict) -> "tuple[int, str]":
        """Forks a run: process id (0 in it), and its directory."""
        self._limits = limits
        self._place = tempfile.mkdtemp(dir=self._keeper.place)
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking, self._awake = -1, False
        template = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            self._forget(theirs)
            usage.remove(self._place)
            raise
        if pid == 0:
            self._link.close()
            self._link, self._parent = theirs, template
            return 0, self._place
        theirs.close()
        self._run, self._pidfd = pid, os.pidfd_open(pid)
        return pid, self._place

    def shut_in(self, channel: int) -> None:
        """In the run: leaves it its channel, its directory and what it may read."""
        os.setsid()
        lockdown.die_with_parent()
        if os.getppid() != self._parent:
            raise OSError("the template has ended")
        lockdown.first_victim()
        os.environ["TMPDIR"] = tempfile.tempdir = self._place
        os.chdir(self._place)
        lockdown.set_limits(self._limits, processes=not self._same_user, others=1)
        lockdown.drop_privileges()
        landlock.restrict(self._abi, self._paths, self._place)
        _close_all_but(channel, self._link.fileno())
        program = self._program
        if self._abi < landlock.KEEPS_SIGNALS:
            program = hostfilter.build_filter(self._abi, self._same_user, os.getpid())
        if self._same_user:
            asking = lockdown.install_asking_filter(program)
            socket.send_fds(self._link, [b"asking"], [asking])
            os.close(asking)
        else:
            lockdown.install_filter(program)

    def begin(self, channel: socket.socket) -> None:
        """In the run, before any code of the policy: waits for the first request, and has the watch begin."""
        channel.recv(1, socket.MSG_PEEK)
        self._link.send(b"awake")
        self._link.close()

    def wait(self, control: socket.socket) -> None:
        """Until the trusted side says something: answers the run's questions, and kills it when it holds too much."""
        look = 0.0
        while True:
            waiter = select.poll()
            for fd in (control.fileno(), self._keeper.fd, self._pidfd, self._link_fd(), self._asking):
                if fd >= 0:
                    waiter.register(fd, select.POLLIN)
            ready = dict(waiter.poll(max(0.0, look - time.monotonic()) * 1000 if self._awake else None))
            if self._keeper.fd in ready:
                self._leave()
            if control.fileno() in ready:
                return
            if self._link_fd() in ready:
                self._listen()
            if self._asking in ready:
                self._answer(ready[self._asking])
            ended = self._pidfd in ready  # as in a pid namespace, nothing of a run outlives its first process
            if self._awake and not ended and time.monotonic() >= look:
                ended = self._too_much()
                look = time.monotonic() + _LOOK
            if ended:
                self._kill()

    def end(self, pid: int, patient: bool) -> int:
        """Kills a run, waits until all of it is gone, and removes its directory; its exit status."""
        if patient and self._pidfd >= 0:
            waiter = select.poll()
            waiter.register(self._pidfd, select.POLLIN)
            waiter.poll(_GRACE * 1000)
        self._kill()
        self._run = -1
        usage.remove(self._place)
        return self._status

    def _kill(self) -> None:
        """Ends every process of the run, unless that was done."""
        if self._pidfd < 0:
            return
        os.close(self._pidfd)
        self._pidfd, self._awake = -1, False
        self._forget()
        self._status = self._keeper.end_all()[self._run]

    def _forget(self, *others: socket.socket) -> None:
        """Closes what connects us to the run: from here on, its questions whether it may fork are answered with no."""
        for sock in (self._link, *others):
            sock.close()
        if self._asking >= 0:
            os.close(self._asking)
            self._asking = -1

    def _leave(self) -> None:
        """Without a keeper."""
        if self._run > 0:
            self._kill()
        with contextlib.suppress(OSError):
            usage.remove(self._keeper.place)
        os._exit(1)

    def _link_fd(self) -> int:
        return self._link.fileno() if self._run > 0 else -1

    def _listen(self) -> None:
        word, fds, _, _ = socket.recv_fds(self._link, 16, 1)
        if word == b"asking":
            (self._asking,) = fds
        elif word == b"awake":
            self._awake = True
        else:
            self._link.close()

    def _answer(self, event: int) -> None:
        """A task of the run wants to fork or to start a thread."""
        if event & select.POLLHUP:
            os.close(self._asking)
            self._asking = -1
            return
        question = bytearray(80)
        try:
            fcntl.ioctl(self._asking, _RECEIVE, question)
        except OSError:
            return  # it ended meanwhile
        (which,) = struct.unpack_from("Q", question)
        may = sum(map(len, usage.processes(children()).values())) < self._limits["processes"]
        answer = struct.pack("QqiI", which, 0, 0 if may else -errno.EAGAIN, _CONTINUE if may else 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._asking, _SEND, answer)

    def _too_much(self) -> bool:
        """Whether the run holds more than it may. Two tasks that fork at once may both have been allowed to."""
        pids = usage.processes(children())
        try:
            held = usage.held_bytes(self._place, pids)
        except usage.Uncounted:
            return True
        return held > self._limits["file_bytes"] or sum(map(len, pids.values())) > 2 * self._limits["processes"]


def _close_all_but(*kept: int) -> None:
    """Leaves the process its standard streams and these."""
    begin = 3
    for fd in sorted(kept):
        os.closerange(begin, fd)
        begin = fd + 1
    os.closerange(begin, 1 << 20)
