"""Runs in the sandbox and tries to get out; `attempts.py` looks at what became of it."""

import ctypes
import mmap
import os
import socket
import struct
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def tried(attempt, *arguments):
    """Its result, None when it was refused."""
    try:
        return attempt(*arguments)
    except (OSError, ValueError, AttributeError):
        return None


def text_of(path):
    with open(path, "rb") as file:
        return file.read(1 << 20).decode("utf-8", "replace")


def reach(aims):
    file = aims["files"][0]
    environs = [f"/proc/{who}/environ" for who in (1, "self", os.getppid(), aims["pid"], aims["victim"])]
    return {
        "identity": (os.getuid(), capable()),
        "network": [name for name, attempt in NETWORK.items() if tried(attempt, aims)],
        "files": {path: tried(text_of, path) for path in aims["files"]},
        "written": [name for name, attempt in WRITING.items() if tried(attempt, file)],
        "memory": [tried(attempt, aims) or "" for attempt in (read_mem, read_vm, ptraced)],
        "environ": "".join(tried(text_of, path) or "" for path in environs),
        "signals": [name for name, attempt in SIGNALS.items() if tried(attempt, aims["victim"])],
        "names": any(os.path.exists(path) for path in aims["files"]),
        "processes": os.path.exists(f"/proc/{aims['victim']}") or tried(os.getpgid, aims["victim"]) is not None,
    }


def capable():
    data = ctypes.create_string_buffer(24)
    libc.capget(struct.pack("Ii", 0x20080522, 0), data)
    return any(struct.unpack("6I", data))


def connect(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.settimeout(0.3)
        try:
            sock.connect(address)
            if kind == socket.SOCK_DGRAM:
                sock.send(b"x")
        except TimeoutError:
            pass  # a packet left
    return True


def named_datagram(aims):
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"x", aims["datagrams"])
    return True


NETWORK = {
    "loopback": lambda aims: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", aims["tcp"])),
    "loopback, UDP": lambda aims: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", aims["udp"])),
    "another host": lambda aims: connect(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 9)),
    "another host, IPv6": lambda aims: connect(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 9)),
    "a UNIX socket": lambda aims: connect(socket.AF_UNIX, socket.SOCK_STREAM, aims["named"]),
    "a UNIX socket, by a pair": named_datagram,
    "an abstract socket": lambda aims: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + aims["abstract"]),
    "netlink": lambda aims: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).bind((0, 0)) or True,
}


def append(path):
    with open(path, "a") as file:
        file.write("x")
    return True


def truncate_by_reading(path):
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))
    return True


def put_beside(path):
    with open(path + ".new", "w") as file:
        file.write("x")
    return True


def did(call):
    """An attempt from a function that returns nothing when it worked."""
    return lambda *arguments: call(*arguments) is None


WRITING = {
    "writing": append,
    "truncating": did(lambda path: os.truncate(path, 1)),
    "truncating what is read": truncate_by_reading,
    "a new file": put_beside,
    "renaming": did(lambda path: os.rename(path, path + ".moved")),
    "linking": did(lambda path: os.link(path, path + ".link")),
    "a link to it": did(lambda path: os.link(path, "link")),
    "times": lambda path: os.utime(path, (1, 1)) is None and os.stat(path).st_mtime == 1,
    "modes": lambda path: os.chmod(path, 0o600) is None and os.stat(path).st_mode & 0o777 == 0o600,
    "removing": did(os.unlink),
}


def read_mem(aims):
    with open(f"/proc/{aims['pid']}/mem", "rb", buffering=0) as file:
        file.seek(aims["address"])
        return file.read(aims["size"]).decode("latin-1")


def read_vm(aims):
    kept = ctypes.create_string_buffer(aims["size"])
    ours = struct.pack("PN", ctypes.addressof(kept), aims["size"])
    theirs = struct.pack("PN", aims["address"], aims["size"])
    libc.process_vm_readv(aims["pid"], ours, 1, theirs, 1, 0)
    return kept.raw.decode("latin-1")


def ptraced(aims):
    return "attached" if libc.ptrace(16, aims["victim"], None, None) == 0 else ""


def by_descriptor(victim):
    signal = __import__("signal")
    signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGSTOP)
    return True


def by_queue(victim):
    information = struct.pack("iii", 19, 0, -1) + bytes(116)
    number = 129 if os.uname().machine == "x86_64" else 138
    return libc.syscall(ctypes.c_long(number), ctypes.c_long(victim), ctypes.c_long(19), information) == 0


def by_owner(victim):
    """A byte in a pipe sends a signal to whoever was named the owner."""
    import fcntl

    reading, writing = os.pipe()
    fcntl.fcntl(reading, 10, 19)
    fcntl.fcntl(reading, fcntl.F_SETOWN, victim)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")
    return fcntl.fcntl(reading, fcntl.F_GETOWN) == victim


SIGNALS = {
    "kill": did(lambda victim: os.kill(victim, 19)),
    "tgkill": lambda victim: libc.tgkill(victim, victim, 19) == 0,
    "pidfd": by_descriptor,
    "sigqueue": by_queue,
    "an owned descriptor": by_owner,
    "limits": lambda victim: __import__("resource").prlimit(victim, 7, (8, 8)) is not None,
    "priority": did(lambda victim: os.setpriority(os.PRIO_PROCESS, victim, 19)),
    "affinity": did(lambda victim: os.sched_setaffinity(victim, {min(os.sched_getaffinity(0))})),
}


def outlive(name):
    """A daemon, without any tie to us that it can cut, which says that it lives."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        for number in (1, 2, 15):
            tried(__import__("signal").signal, number, 1)
        if os.fork() == 0:
            libc.prctl(15, name.encode(), 0, 0, 0)
            os.write(writing, b"alive")
            while True:
                time.sleep(600)
        os._exit(0)
    os.wait()
    return os.read(reading, 5) == b"alive"


def memory():
    return len(bytearray(2 << 30))


def processes():
    count = 0
    try:
        while count < 100:
            if os.fork() == 0:
                time.sleep(600)
            count += 1
    except OSError:
        pass
    return count


def descriptors():
    count = 0
    try:
        while count < 2000:
            os.dup(0)
            count += 1
    except OSError:
        pass
    return count


def disk(kind, most):
    total, kept = 0, []
    try:
        for index in range(40):
            file = open(f"fill{index}", "w+b", buffering=0)  # noqa: SIM115
            kept.append(file)
            if kind == "unlinked":
                os.unlink(file.name)
            if kind == "sparse":
                file.truncate(4 << 20)
                mapped = mmap.mmap(file.fileno(), 4 << 20)
                for page in range(0, 4 << 20, 4096):
                    mapped[page] = 1
                total += 4 << 20
                kept.append(mapped)
                os.unlink(file.name)
                file.close()
            else:
                total += file.write(bytes(4 << 20))
    except OSError:
        pass
    if total > most:
        time.sleep(2.0)  # for those that look now and then
    return total


def output(most):
    return "x" * most


def spin():
    while True:
        pass
