"""What a run holds, seen from outside it: tasks, and bytes of files. And how its directory is removed.

Where no namespace counts tasks and no tmpfs has a size, the template looks. The run's code wants to hide from that:
names may be as deep as it likes, unreadable, or gone from the directory while a descriptor or a mapping keeps the file.
Runs inside the jail: standard library only.
"""

import contextlib
import os
import stat

MOST_FILES = 2048
_PF_EXITING = 4


class Uncounted(Exception):
    """Something cannot be counted, and is taken for too much."""


def processes(first: "list[int]") -> "dict[int, list[str]]":
    """The given processes and all below them: process id to the ids of its tasks."""
    found: dict[int, list[str]] = {}
    left = list(first)
    while left:
        pid = left.pop()
        try:
            found[pid] = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue  # it ended meanwhile
        for task in found[pid]:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                left += [int(child) for child in file.read().split()]
    return found


def held_bytes(place: str, found: "dict[int, list[str]]") -> int:
    """Bytes of disk that files take which are in ``place``, or which were and are still in use by what
    :func:`processes` found.

    Raises:
        Uncounted: There are too many, or there is something that cannot be looked at.
    """
    files = _named(place)
    for pid, tasks in found.items():
        for task in tasks:  # each may have open files of its own, also when the first of them has ended
            _kept_open(f"/proc/{pid}/task/{task}", os.fsencode(place) + b"/", files)
    return sum(files.values())


def remove(place: str) -> None:
    """Removes a directory however deep and whatever the modes: what is deep is moved up first. Never leaves it."""
    top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        waiting, count = _clear(top, b".", top, 0)
        while waiting:
            name = waiting.pop()
            more, count = _clear(top, name, top, count)
            os.rmdir(name, dir_fd=top)
            waiting += more
    finally:
        os.close(top)
    os.rmdir(place)


def _clear(top: int, name: bytes, parent: int, count: int) -> "tuple[list[bytes], int]":
    """Empties a directory of ``top``: unlinks its files, moves its directories to ``top`` under new names."""
    os.chmod(name, 0o700, dir_fd=parent)
    here = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    moved = []
    try:
        for entry in os.listdir(here):
            entry = os.fsencode(entry)
            if stat.S_ISDIR(os.stat(entry, dir_fd=here, follow_symlinks=False).st_mode):
                os.chmod(entry, 0o700, dir_fd=here)
                while True:
                    count += 1
                    new = b"\xffremoved-%d" % count  # may exist in the top directory, where names are the code's
                    if not _exists(new, top):
                        break
                os.rename(entry, new, src_dir_fd=here, dst_dir_fd=top)
                moved.append(new)
            else:
                os.unlink(entry, dir_fd=here)
    finally:
        os.close(here)
    return moved, count


def _exists(name: bytes, fd: int) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _named(place: str) -> "dict[tuple[int, int], int]":
    """File to bytes of disk. Directories count, too: each takes a block."""
    found: dict[tuple[int, int], int] = {}
    left = [place]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    try:
                        seen = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    found[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
                    if stat.S_ISDIR(seen.st_mode):
                        left.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError as error:  # a name too long to be reached from here, or a mode that keeps us out
            raise Uncounted(f"a directory that cannot be read ({error.strerror})") from None
        if len(found) > MOST_FILES:
            raise Uncounted(f"more than {MOST_FILES} files")
    return found


def _kept_open(task: str, place: bytes, found: "dict[tuple[int, int], int]") -> None:
    """Adds the files without a name that a task has open or mapped."""
    try:
        for fd in os.listdir(f"{task}/fd"):
            with contextlib.suppress(FileNotFoundError):
                seen = os.stat(f"{task}/fd/{fd}")
                if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 0:
                    found[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
        with open(f"{task}/maps", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return
    except PermissionError as error:
        if _has_ended(task):
            return
        raise Uncounted(f"a process that cannot be looked at ({error.strerror})") from None
    if b"(deleted)\n" not in text:
        return
    known = {inode for _, inode in found}
    for line in text.splitlines():
        span, _, offset, _, inode, *path = line.split(None, 5)
        # By its path: the number of a device is not the same here as in `stat` on every file system.
        if path and path[0].endswith(b"(deleted)") and path[0].startswith(place) and int(inode) not in known:
            begin, end = (int(part, 16) for part in span.split(b"-"))
            found[0, int(inode)] = max(found.get((0, int(inode)), 0), int(offset, 16) + end - begin)


def _has_ended(task: str) -> bool:
    """True for what is ending or a zombie: it belongs to root then, and soon holds nothing any more."""
    try:
        with open(f"{task}/stat") as file:
            state, *_, flags = file.read().rpartition(")")[2].split()[:7]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX" or bool(int(flags) & _PF_EXITING)
