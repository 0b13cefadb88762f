"""The filter of system calls for a run without namespaces. Runs inside the jail: standard library only.

Below bubblewrap, namespaces hide everything of the host, and the filter narrows what is left of the kernel. Here it has
to close more: whatever reaches other processes, sockets or files by a way that Landlock does not see.
"""

from verl_ext.sandbox import landlock
from verl_ext.sandbox.lockdown import (
    ALLOW,
    AND,
    ANY_NEW,
    CLONE,
    CLONE3,
    DENIED,
    ENOSYS,
    EPERM,
    EQUAL,
    Step,
    argument,
    assemble,
    give,
    no_bit,
    only,
)

_ASK, _PRETEND, _EOPNOTSUPP = 0x7FC00000, 0x50000, 0x5005F
_O_TMPFILE, _O_TRUNC, _O_ACCMODE = 0x400000, 0o1000, 0o3

# Without namespaces: IPC objects of the same user, watches on files that cannot be opened, and other processes' memory
# policy. Connecting to a UNIX socket by its path is something Landlock does not see (Ray's and Docker's are such).
_DENIED_ON_HOST = {
    "connect": (42, 203),
    "bind": (49, 200),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "socket": (41, 198),
}
# Landlock does not see these, and where the code runs as the caller's own user they reach the caller's files.
_OWNERS_CALLS = {
    "chmod": (90, None),
    "chown": (92, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "futimesat": (261, None),
    "lchown": (94, None),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
}
_OWNERS_ATTRIBUTES = {
    "file_setattr": (469, 469),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
}
_ON_OTHERS = {  # the first argument is a process: 0 is the caller
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
}
_SIGNALS = {"kill": (62, 129), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "tgkill": (234, 131)}
_OTHER_SIGNALS = {"pidfd_send_signal": (424, 424), "tkill": (200, 130)}
_FORKS = {"fork": (57, None), "vfork": (58, None)}
_FORKS = {"fork": (57, None), "vfork": (58, None)}
_SOCKETPAIR, _PRCTL, _FCNTL, _IOCTL, _SETPRIORITY = (53, 199), (157, 167), (72, 25), (16, 29), (141, 140)
_OPEN, _OPENAT, _OPENAT2, _TRUNCATE = (2, None), (257, 56), (437, 437), (76, 45)
_PRCTLS = (1, 4)  # PR_SET_PDEATHSIG; PR_SET_DUMPABLE, after which the template could not count open files
_FCNTLS = (8, 10, 15, 1024, 1026)  # F_SETOWN(_EX), F_SETSIG: signals by a descriptor; F_SETLEASE, F_NOTIFY
_IOCTLS = (0x8901, 0x8902, 0x5412, 0x40086602, 0x401C5820)  # FIOSETOWN, SIOCSPGRP, TIOCSTI, FS_IOC_(FS)SET(X)FLAGS


def build_filter(abi: int, same_user: bool, pid: int) -> bytes:
    """The seccomp program of a run.

    Args:
        abi: Of Landlock: below 6 it does not keep signals in, below 3 it does not see truncation.
        same_user: The run has the caller's user. What an owner may do to his files is denied then, or without effect
            where common functions (``shutil.copy``) would fail; and each fork asks, see
            :func:`~verl_ext.sandbox.lockdown.install_asking_filter`, since the kernel counts a user's processes.
        pid: The run's first process, the only one it may signal where Landlock does not keep signals in.
    """
    rules = [(numbers, give(EPERM)) for numbers in (*DENIED.values(), *_DENIED_ON_HOST.values())]
    rules += [(numbers, only(0, 0)) for numbers in _ON_OTHERS.values()]
    fork = _ASK if same_user else ALLOW
    rules += [
        (CLONE3, give(ENOSYS)),
        (CLONE, no_bit(0, ANY_NEW, otherwise=fork)),
        *((numbers, give(fork)) for numbers in _FORKS.values()),
        (_SETPRIORITY, [*only(0, 0)[:-1], *only(1, 0)]),
        # Connected streams only: a datagram could be sent to any socket's path.
        (_SOCKETPAIR, [*only(0, 1)[:-1], argument(1), (AND, 0, 0, 15), *only(1, 1, 5)[1:]]),
        (_PRCTL, _never(0, *_PRCTLS)),
        (_FCNTL, _never(1, *_FCNTLS)),
        (_IOCTL, _never(1, *_IOCTLS)),
        (_OPENAT2, give(ENOSYS)),  # its flags, too, are behind a pointer
        (_OPEN, _no_hidden_file(1, abi)),
        (_OPENAT, _no_hidden_file(2, abi)),
    ]
    if same_user:
        rules += [(numbers, give(_PRETEND)) for numbers in _OWNERS_CALLS.values()]
        rules += [(numbers, give(_EOPNOTSUPP)) for numbers in _OWNERS_ATTRIBUTES.values()]
    if abi < landlock.SEES_TRUNCATION:
        rules.append((_TRUNCATE, give(EPERM)))
    if abi < landlock.KEEPS_SIGNALS:
        rules += [(numbers, only(0, pid)) for numbers in _SIGNALS.values()]
        rules += [(numbers, give(EPERM)) for numbers in _OTHER_SIGNALS.values()]
    return assemble(rules)


def _never(number: int, *values: int) -> "list[Step]":
    tests = [(EQUAL, len(values) - k, 0, value) for k, value in enumerate(values)]
    return [argument(number), *tests, *give(ALLOW), *give(EPERM)]


def _no_hidden_file(flags: int, abi: int) -> "list[Step]":
    """No file without a name, which a look into the directory would miss; and where Landlock does not see truncation,
    none by a descriptor that only reads."""
    steps = no_bit(flags, _O_TMPFILE, refusal=_EOPNOTSUPP)
    if abi < landlock.SEES_TRUNCATION:
        test = [argument(flags), (AND, 0, 0, _O_TRUNC | _O_ACCMODE), (EQUAL, 0, 1, _O_TRUNC)]
        steps = [*steps[:-1], *test, *give(EPERM), *give(ALLOW)]
    return steps
