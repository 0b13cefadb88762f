"""Root's way into the jail: become nobody, with the interpreter still in reach.

Root must not start bubblewrap as root: the kernel exempts uid 0 from the process limit, and read-only root files stay
readable. But nobody cannot see an interpreter below a 0700 home directory. So, in a mount namespace of its own, this
script binds such paths below a fresh tmpfs that everyone may enter, becomes nobody for good, and executes bubblewrap.
Run as a script, since forking with Python code in between is unsafe in a process with threads.
"""

import ctypes
import json
import os
import sys

_NEWNS, _BIND, _REC, _PRIVATE = 0x20000, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]


def main() -> None:
    """Argument: JSON of ``uid``, ``stage`` (directory to mount on, pairs of source and name) and ``argv``."""
    spec = json.loads(sys.argv[1])
    if spec["stage"]:
        _check(_libc.unshare(_NEWNS), "a mount namespace (root needs CAP_SYS_ADMIN)")
        _mount(b"none", b"/", None, _REC | _PRIVATE)
        # Opened before the tmpfs covers the directory, which may be where they are.
        sources = [(os.open(source, os.O_PATH | os.O_CLOEXEC), name) for source, name in spec["stage"]]
        _mount(b"tmpfs", spec["directory"].encode(), b"tmpfs", 0, b"size=1m,mode=755")
        for fd, name in sources:
            target = os.path.join(spec["directory"], name)
            os.mkdir(target, 0o755)
            _mount(f"/proc/self/fd/{fd}".encode(), target.encode(), None, _BIND | _REC)
    os.setgroups([])
    os.setresgid(spec["uid"], spec["uid"], spec["uid"])
    os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    os.chdir("/")
    os.execve(spec["argv"][0], spec["argv"], {})


def _mount(source: bytes, target: bytes, kind: "bytes | None", flags: int, data: "bytes | None" = None) -> None:
    _check(_libc.mount(source, target, kind, flags, data), f"mount {target.decode()}")


def _check(result: int, what: str) -> None:
    if result != 0:
        raise SystemExit(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
