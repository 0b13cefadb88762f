"""What shuts a process in, by system calls through ctypes: namespaces, mounts, limits, capabilities, seccomp.

bubblewrap builds the outer jail once. Each run gets a pid, mount, IPC and user namespace of its own inside it (the last
one so that the process limit counts this run alone), which costs one fork and three mounts instead of a start of
bubblewrap. The network is that of the outer jail, which has none; seccomp leaves a run UNIX sockets only, and no two
runs of one outer jail live at a time. Runs inside the jail: standard library only.
"""

import ctypes
import os
import platform
import resource
import signal
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
ANY_NEW = 0x7E020080  # every CLONE_NEW* flag
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 38, 22, 36, 1, 4
INSIDE_UID = 65534

# name -> (x86_64, aarch64). Not needed by Python code that computes, and each either a way to other processes, a wider
# attack surface of the kernel, or memory that no limit counts (memfd, System V segments).
DENIED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
CLONE, CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_SECCOMP, _NEW_LISTENER = (317, 277), 8
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
LOAD, EQUAL, ANY_BIT, AND, _AT_LEAST, _GIVE = 0x20, 0x15, 0x45, 0x54, 0x35, 0x06
ALLOW, EPERM, ENOSYS, _KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
Step = tuple[int, int, int, int]
"""Code, jump if true, jump if false, and value of an instruction of a filter."""


def supported() -> bool:
    """True where the numbers of system calls are known: x86_64 and aarch64."""
    return platform.machine() in _ARCHES


def keep_mounts() -> None:
    """For the template, once: no mount of a run shows in another."""
    _mount(b"none", b"/", None, _REC | _PRIVATE, None)


def fork_into_pid_namespace(own: int) -> int:
    """``os.fork`` whose child is pid 1 of a fresh namespace: when it ends, the kernel ends all that it started.

    Args:
        own: Descriptor of the caller's ``/proc/self/ns/pid``, to which its later children return.
    """
    _check(_libc.unshare(_NEWPID), "a pid namespace")
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            _check(_libc.setns(own, _NEWPID), "return to the pid namespace")
    return pid


def enter_namespaces(size: int) -> None:
    """For a run: a fresh ``/tmp`` of ``size`` bytes, which is ``/dev/shm`` too, a ``/proc`` that shows this run alone,
    and a user namespace with the one user 65534."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_NEWNS | _NEWIPC), "mount and IPC namespaces")
    _mount(b"tmpfs", b"/tmp", b"tmpfs", _NOSUID | _NODEV, f"size={size},nr_inodes=2048,mode=755".encode())
    _mount(b"/tmp", b"/dev/shm", None, _BIND, None)
    _mount(b"proc", b"/proc", b"proc", _NOSUID | _NODEV | _NOEXEC, None)
    _check(_libc.unshare(_NEWUSER), "a user namespace")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{INSIDE_UID} {uid} 1")
    _write("/proc/self/gid_map", f"{INSIDE_UID} {gid} 1")


def end_on_cpu_signal() -> None:
    """Has SIGPROF end the process with its number as status: pid 1 ignores signals that have no handler. The handler is
    C's ``_exit`` itself, since one in Python would wait for the interpreter's attention."""
    _libc.signal(signal.SIGPROF, ctypes.cast(_libc._exit, ctypes.c_void_p))


def first_victim() -> None:
    """Where the machine runs out of memory, the kernel takes this process and not the trainer."""
    _write("/proc/self/oom_score_adj", "1000")


def adopt_orphans() -> None:
    """Without a pid namespace: descendants whose parent ends come to this process, which can then kill them."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Has the kernel kill this process when the thread that forked it ends; a change of user undoes it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def become(uid: int) -> None:
    """For root, for good: another user, whose processes may look at one another as far as nothing else forbids."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def set_limits(limits: dict, processes: bool, others: int = 0) -> None:
    """Hard resource limits.

    Args:
        limits: The fields of :class:`~verl_ext.sandbox.base.Limits`.
        processes: Also the number of processes, which the kernel counts for each user of a user namespace.
        others: How many processes of that user are not the run's.
    """
    pairs = [
        (resource.RLIMIT_AS, limits["address_space"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_CPU, int(limits["total_seconds"]) + 1),
    ]
    if processes:
        pairs.append((resource.RLIMIT_NPROC, limits["processes"] + others))
    for which, value in pairs:
        resource.setrlimit(which, (value, value))


def drop_privileges() -> None:
    """No capabilities, none to be had by exec."""
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.capset(header, struct.pack("6I", *[0] * 6)), "capset")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def build_filter() -> bytes:
    """The seccomp program: denied calls, new namespaces by clone, and sockets other than UNIX ones give EPERM."""
    rules = [(numbers, give(EPERM)) for numbers in DENIED.values()]
    # clone3 hides its flags behind a pointer: glibc falls back to clone when it is missing.
    rules += [(CLONE3, give(ENOSYS)), (CLONE, no_bit(0, ANY_NEW)), (_SOCKET, only(0, 1))]
    return assemble(rules)


def assemble(rules: "list[tuple[tuple, list[Step]]]") -> bytes:
    """A seccomp program. Each rule is a call's numbers on the two architectures (None: there is no such call) and the
    steps that then decide; a call of no rule is allowed."""
    index, arch = _ARCHES[platform.machine()]
    code = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, arch), *give(_KILL), (LOAD, 0, 0, 0)]
    if index == 0:  # the x32 numbers would be a second door to every call
        code += [(_AT_LEAST, 0, 1, 0x40000000), *give(EPERM)]
    for numbers, steps in rules:
        if numbers[index] is not None:
            code += [(EQUAL, 0, len(steps), numbers[index]), *steps]
    return b"".join(struct.pack("HBBI", *step) for step in [*code, *give(ALLOW)])


def give(answer: int) -> "list[Step]":
    """Steps: this answer."""
    return [(_GIVE, 0, 0, answer)]


def argument(number: int) -> Step:
    """Step: loads the low half of an argument, counted from 0; of those used here, the kernel looks at no more."""
    return LOAD, 0, 0, 16 + 8 * number


def only(number: int, *values: int) -> "list[Step]":
    """Steps: EPERM unless the argument is one of the values."""
    tests = [(EQUAL, len(values) - k, 0, value) for k, value in enumerate(values)]
    return [argument(number), *tests, *give(EPERM), *give(ALLOW)]


def no_bit(number: int, bits: int, refusal: int = EPERM, otherwise: int = ALLOW) -> "list[Step]":
    """Steps: a refusal when the argument has one of the bits."""
    return [argument(number), (ANY_BIT, 0, 1, bits), *give(refusal), *give(otherwise)]


def install_filter(program: bytes) -> None:
    """Applies :func:`build_filter` to this process for good."""
    fprog, _kept = _fprog(program)
    _check(_libc.prctl(_PR_SET_SECCOMP, 2, fprog, 0, 0), "seccomp")


def install_asking_filter(program: bytes) -> int:
    """As :func:`install_filter`, for a program that asks about some calls: the descriptor where the questions arrive.
    The process that is being shut in must not keep it."""
    fprog, _kept = _fprog(program)
    number = _SECCOMP[_ARCHES[platform.machine()][0]]
    fd = _libc.syscall(number, 1, ctypes.c_ulong(_NEW_LISTENER), fprog)
    _check(min(fd, 0), "seccomp with a listener (is there another one already?)")
    return fd


def _fprog(program: bytes) -> "tuple[bytes, object]":
    """What the kernel takes, and what must live as long as that."""
    buffer = ctypes.create_string_buffer(program, len(program))
    return struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)), buffer


def _mount(source: bytes, target: bytes, kind: "bytes | None", flags: int, data: "bytes | None") -> None:
    _check(_libc.mount(source, target, kind, flags, data), f"mount {target.decode()}")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
