"""Files below a directory, through its handle: nothing that lies there can lead a read or a write elsewhere.

A test of a path's text says nothing about what the path meets on disk, and a test on disk is old when the file is
opened. So each part of a path is opened from the handle of the one before, never through a symbolic link, and what
comes out is looked at through the handle that will be used. Runs also where untrusted code runs: standard library only.
"""

import contextlib
import os
import stat
from collections.abc import Mapping

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: opening a FIFO would wait for its other end.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Outside(OSError):
    """A path that does not stay below the directory, or something there that is no plain file."""


def open_root(path: str) -> int:
    """Handle of a directory; raises ``OSError`` when its last part is a symbolic link or no directory."""
    return os.open(path, _FOLDER)


def write_tree(root: int, texts: "Mapping[str, str]") -> None:
    """:func:`write_new` for each path of a workspace, as UTF-8 (lone surrogates as they are)."""
    for path, text in texts.items():
        write_new(root, path, text.encode("utf-8", "surrogatepass"))


def write_new(root: int, path: str, data: bytes) -> None:
    """Makes a file below ``root`` that was not there, and the directories on the way to it.

    Args:
        root: Handle of the directory, from :func:`open_root`.
        path: Relative, with ``/`` between its parts.
        data: Contents.

    Raises:
        Outside: The path is absolute, has an empty part, ``.``, ``..`` or NUL, or meets a symbolic link or a file
            where a directory must be.
        FileExistsError: Something of that name is there, of whatever kind (a dangling link, too).
    """
    *parents, name = _parts(path)
    folder = _walk(root, parents, path, make=True)
    try:
        fd = os.open(name, _CREATE, 0o644, dir_fd=folder)
    finally:
        if folder != root:
            os.close(folder)
    with open(fd, "wb") as file:
        file.write(data)


def read(root: int, path: str, most: int) -> bytes:
    """Contents of a plain file below ``root``.

    Raises:
        Outside: As for :func:`write_new`; or it is a link, has a second name (hard link), is a device, FIFO, socket or
            directory, or longer than ``most`` bytes.
        FileNotFoundError: There is none.
    """
    *parents, name = _parts(path)
    folder = _walk(root, parents, path, make=False)
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:  # ELOOP: a link; ENXIO: a socket or a device without a driver
        raise Outside(error.errno, f"{path!r} is no plain file") from None
    finally:
        if folder != root:
            os.close(folder)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Outside(f"{path!r} is no plain file")
        if found.st_nlink != 1:
            raise Outside(f"{path!r} has another name as well (a hard link)")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(fd)
    if len(data) > most:
        raise Outside(f"{path!r} is longer than {most} bytes")
    return data


def _parts(path: str) -> "list[str]":
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Outside(f"{path!r} does not stay below its directory")
    return parts


def _walk(root: int, parents: "list[str]", path: str, make: bool) -> int:
    """Handle of the directory that holds the path's last part; ``root`` itself when that is it."""
    folder = root
    for part in parents:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            below = os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            raise
        except OSError as error:  # ENOTDIR, also for a link: O_DIRECTORY and O_NOFOLLOW
            raise Outside(error.errno, f"{path!r}: {part!r} is no directory") from None
        finally:
            if folder != root:
                os.close(folder)
        folder = below
    return folder
