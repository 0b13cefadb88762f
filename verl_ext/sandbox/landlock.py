"""Landlock by system calls: which files a process and its descendants may open, and whom they may signal.

Source: https://docs.kernel.org/userspace-api/landlock.html and ``include/uapi/linux/landlock.h``. Runs inside the jail:
standard library only. Landlock sees opening, making, linking and removing; it does not see ``stat``, ``chmod`` and the
like, nor connecting to a UNIX socket by path, nor (in older versions) truncation and signals: see ``seccomp.py``.
"""

import ctypes
import os
import stat
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
SEES_TRUNCATION, KNOWS_TCP, KEEPS_SIGNALS = 3, 4, 6
"""Versions that brought these."""
READ = _EXECUTE | _READ_FILE | _READ_DIR
USE_DEVICE = _READ_FILE | _WRITE_FILE


def abi() -> int:
    """Version of the kernel's Landlock: 0 where it is missing or switched off; 1 came with Linux 5.13, 3 with 6.2
    (truncation), 4 with 6.7 (TCP), 6 with 6.12 (signals, abstract sockets)."""
    none, zero = ctypes.c_void_p(), ctypes.c_size_t()
    return max(0, _libc.syscall(ctypes.c_long(_CREATE_RULESET), none, zero, ctypes.c_uint(_VERSION)))


def restrict(version: int, paths: "list[tuple[int, int]]", place: str) -> None:
    """Leaves this process, for good, the given paths and everything below ``place``; needs ``no_new_privs``.

    Args:
        version: What :func:`abi` gave, or less.
        paths: Descriptors of files and directories, each with its rights: ``READ`` or ``USE_DEVICE``.
        place: Directory to read and write in; no device can be made there.
    """
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    attributes = [rights]
    if version >= KNOWS_TCP:
        attributes.append(_BIND_TCP | _CONNECT_TCP)  # without a rule: no port
    if version >= KEEPS_SIGNALS:
        attributes.append(_ABSTRACT_SOCKETS | _SIGNALS)
    text = struct.pack(f"{len(attributes)}Q", *attributes)
    ruleset = _call(_CREATE_RULESET, text, len(text), 0)
    try:
        for fd, allowed in paths:
            _allow(ruleset, fd, allowed & rights)
        here = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        _allow(ruleset, here, rights & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV))
        os.close(here)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, fd: int, rights: int) -> None:
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= _FILE_ONLY
    _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)


def _call(number: int, *arguments: "int | bytes") -> int:
    given = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result = _libc.syscall(ctypes.c_long(number), *given)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return result
