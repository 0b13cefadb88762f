"""A started template as the trusted side holds it, and how it knows that nothing is left of one."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import subprocess
from dataclasses import dataclass


class First:
    """The first process of a jail's pid namespace. The kernel ends it last: when it is gone, so are all others.

    Attributes:
        tell: For bubblewrap's ``--info-fd``, where it writes the process id; the caller closes it.
        pid: On the host; 0 before :meth:`meet`.

    Source: pid_namespaces(7) (all are killed when pid 1 ends), pidfd_open(2) (readable once it has ended).
    """

    def __init__(self) -> None:
        self._told, self.tell = os.pipe()
        os.set_blocking(self._told, False)
        self.pid = self._pidfd = 0

    def meet(self) -> None:
        """Once the template has answered."""
        self.pid = int(re.search(rb'"child-pid": *(\d+)', os.read(self._told, 1 << 12))[1])
        with contextlib.suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(self.pid)

    def gone(self) -> bool:
        """True also when nobody has met it."""
        if not self._pidfd:
            return True
        waiter = select.poll()
        waiter.register(self._pidfd, select.POLLIN)
        return bool(waiter.poll(0))

    def close(self) -> None:
        """Forgets it."""
        os.close(self._told)
        if self._pidfd:
            os.close(self._pidfd)


@dataclass(frozen=True)
class Process:
    """A started template.

    Attributes:
        popen: Its process: bubblewrap's on the host, or the template itself.
        control: Our end of its control socket.
        first: Of the jail, at the level ``bubblewrap``.
    """

    popen: subprocess.Popen
    control: socket.socket
    first: First | None = None

    def gone(self) -> bool:
        """True when nothing is left of it. The socket alone would not tell: the kernel closes it before it ends a
        killed jail's processes."""
        return self.popen.poll() is not None and _hung_up(self.control) and (self.first is None or self.first.gone())

    def close(self) -> None:
        """Closes what we hold of it."""
        self.control.close()
        if self.first is not None:
            self.first.close()


def _hung_up(control: socket.socket) -> bool:
    """True when the other end of a non-blocking socket is gone; what it had still said is thrown away."""
    try:
        while control.recv(1 << 12):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
