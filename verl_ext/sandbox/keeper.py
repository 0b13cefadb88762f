"""Instead of a pid namespace: who ends a run's processes, and what happens when one of us is killed.

Two processes of ours stand above a run. The *template* forks it and ends it; the *keeper*, the template's parent, ends
it when the template has died. Both adopt orphans, so that nobody gets out from below. The trusted process holds the
keeper: when that is killed, the template ends the run and itself.

Two ways to end a run for certain, fork bombs included. With a user of its own: one ``kill(-1)`` as that user, which the
kernel carries out for all its processes at once. With the caller's user: no process can be made any more as soon as the
descriptor that answers the filter's questions is closed (``hostfilter.py``), so that killing comes to an end.
Runs inside the jail: standard library only.
"""

import contextlib
import os
import random
import signal
import socket
import tempfile

from verl_ext.sandbox import lockdown, usage


class Keeper:
    """Splits the process: the caller goes on in the child, the template.

    Attributes:
        uid: User of this slot alone, which :meth:`drop` changes to; None: runs have the caller's user.
        fd: A pidfd of the keeper, readable when it has died.
        place: Directory of the slot, for directories of runs; whichever of the two is left removes it.
    """

    def __init__(self, users: "list[int] | None", place: str) -> None:
        """``users``: first user id of a range and their number, of which one is taken; None to stay the same.
        ``place``: Where the slot's directory is made."""
        lockdown.die_with_parent()
        os.setsid()
        lockdown.adopt_orphans()
        self.uid, self._claim = _claim(*users) if users else (None, None)
        self.place = os.path.realpath(tempfile.mkdtemp(prefix="run-", dir=place))
        if self.uid is not None:
            os.chown(self.place, self.uid, self.uid)
        self.fd = os.pidfd_open(os.getpid())
        pid = os.fork()
        if pid != 0:
            try:
                kept = self._claim.fileno() if self._claim else 2
                os.closerange(3, kept)
                os.closerange(kept + 1, 1 << 20)
                os.dup2(0, 2)
                status = os.waitpid(pid, 0)[1]
                self._sweep()
                os._exit(max(0, os.waitstatus_to_exitcode(status)) or 1)
            finally:
                os._exit(1)
        if self._claim:
            self._claim.close()
        lockdown.adopt_orphans()

    def drop(self) -> None:
        """For the template, when all it needs is loaded: becomes the slot's user."""
        if self.uid is not None:
            lockdown.become(self.uid)

    def end_all(self) -> "dict[int, int]":
        """For the template: kills every process of the run, and returns when none is left; pid to exit status."""
        if self.uid is not None:
            _kill_all_of(self.uid)
            return _reap()
        return kill_children()

    def _sweep(self) -> None:
        """For the keeper, after the template's end, whatever it was."""
        if self.uid is None:
            kill_children()
        elif children():
            if os.fork() == 0:
                try:
                    lockdown.become(self.uid)
                    _kill_all_of(self.uid)
                finally:
                    os._exit(0)
            _reap()
        usage.remove(self.place)


def children() -> "list[int]":
    """Process ids of this process's children. Ended ones are among them, so that their numbers go to nobody else."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(child) for child in file.read().split()]


def _claim(first: int, count: int) -> "tuple[int, socket.socket]":
    """A user id that no process has and no other keeper claims: for as long as it lives, it holds a name for it."""
    for _ in range(100):
        uid = first + random.SystemRandom().randrange(count)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0verl-ext-uid-{uid}")
        except OSError:
            name.close()
            continue
        if uid not in _users_at_work():
            return uid, name
        name.close()
    raise OSError("no user id is free for a run of its own")


def _users_at_work() -> "set[int]":
    found = set()
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                found.add(os.stat(f"/proc/{entry}").st_uid)
    return found


def _kill_all_of(uid: int) -> None:
    if os.getresuid() != (uid, uid, uid) or uid == 0:
        raise RuntimeError("kill(-1) as a user that is not the run's own")
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def _reap() -> "dict[int, int]":
    ended = {}
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def kill_children() -> "dict[int, int]":
    """Kills all below this process, which adopts orphans; pid to exit status. They come one generation at a time."""
    ended = {}
    while found := children():
        for child in found:
            os.kill(child, signal.SIGKILL)
        for child in found:
            ended[child] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ended
