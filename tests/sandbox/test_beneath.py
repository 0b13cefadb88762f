"""Reading and writing through a directory's handle: whatever is planted below it, nothing leaves it."""

import ctypes
import os
import socket
import threading

import pytest

from verl_ext.sandbox import beneath


@pytest.fixture
def place(tmp_path):
    """A directory with its handle, and what lies outside of it."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("42")
    root = beneath.open_root(str(inside))
    yield inside, outside, root
    os.close(root)


def held() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_workspace_is_written_and_read(place):
    inside, _, root = place
    before = held()
    beneath.write_tree(root, {"a.py": "x\n", "pkg/deep/b.py": "\ud800", "pkg/deep/c.py": ""})
    assert (inside / "a.py").read_text() == "x\n" and (inside / "pkg/deep/b.py").read_bytes() == b"\xed\xa0\x80"
    assert beneath.read(root, "pkg/deep/c.py", 0) == b""
    assert beneath.read(root, "a.py", 2) == b"x\n"
    with pytest.raises(beneath.Outside, match="longer than 1 bytes"):
        beneath.read(root, "a.py", 1)
    with pytest.raises(FileNotFoundError):
        beneath.read(root, "pkg/none/c.py", 9)
    assert held() == before


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "./x", "a//x", "a/", "a\0b", "..", "."])
def test_paths_that_leave(place, path):
    *_, root = place
    for do in (lambda: beneath.write_new(root, path, b""), lambda: beneath.read(root, path, 9)):
        with pytest.raises(beneath.Outside, match="does not stay below"):
            do()


def test_links_to_files_and_directories(place):
    inside, outside, root = place
    (inside / "file").symlink_to(outside / "secret")
    (inside / "dangling").symlink_to(outside / "new")
    (inside / "folder").symlink_to(outside)
    (inside / "self").symlink_to(".")
    (inside / "plain").write_text("")
    before = held()
    for name in ("file", "dangling"):
        with pytest.raises(FileExistsError):
            beneath.write_new(root, name, b"x")
        with pytest.raises(beneath.Outside, match="no plain file"):
            beneath.read(root, name, 9)
    for path in ("folder/secret", "folder/new", "folder/deep/new", "self/new", "plain/new"):
        with pytest.raises(beneath.Outside, match="is no directory"):
            beneath.write_new(root, path, b"x")
        with pytest.raises(beneath.Outside, match="is no directory"):
            beneath.read(root, path, 9)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        beneath.open_root(str(inside / "folder"))
    assert [path.name for path in outside.iterdir()] == ["secret"] and (outside / "secret").read_text() == "42"
    assert held() == before


def test_a_hard_link_is_not_read_and_not_written(place):
    inside, outside, root = place
    os.link(outside / "secret", inside / "a")
    with pytest.raises(beneath.Outside, match="hard link"):
        beneath.read(root, "a", 9)
    with pytest.raises(FileExistsError):
        beneath.write_new(root, "a", b"x")
    assert (outside / "secret").read_text() == "42"


def test_fifos_sockets_and_directories_do_not_block(place):
    inside, _, root = place
    os.mkfifo(inside / "fifo")
    (inside / "dir").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(inside / "sock"))
    before = held()
    for name in ("fifo", "dir", "sock"):
        with pytest.raises(beneath.Outside, match="no plain file"):
            beneath.read(root, name, 9)
        with pytest.raises(FileExistsError):
            beneath.write_new(root, name, b"x")
    assert held() == before


def test_devices(place):
    inside, _, root = place
    try:
        os.mknod(inside / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device needs CAP_MKNOD")
    try:
        with pytest.raises(beneath.Outside, match="no plain file"):
            beneath.read(root, "zero", 9)
    except PermissionError:
        pytest.skip("the file system is mounted nodev")
    with pytest.raises(FileExistsError):
        beneath.write_new(root, "zero", b"x")


def swap(first: bytes, second: bytes) -> None:
    """Exchanges two names at once, so that there is always something: the hardest race for a test before an open."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, first, -100, second, 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


@pytest.mark.parametrize("what", ["write", "read"])
def test_a_race_with_a_link_is_never_lost(place, what):
    """A directory becomes a link to the outside and back, as fast as possible, while files below it are opened."""
    inside, outside, root = place
    (inside / "a").mkdir()
    (inside / "a/secret").write_text("in")
    (inside / "b").symlink_to(outside)
    try:
        swap(bytes(inside / "a"), bytes(inside / "b"))
    except (OSError, AttributeError):
        pytest.skip("the file system cannot exchange names")
    stop = threading.Event()

    def race():
        while not stop.is_set():
            swap(bytes(inside / "a"), bytes(inside / "b"))

    thread = threading.Thread(target=race)
    thread.start()
    done, refused = 0, 0
    try:
        while min(done, refused) < 100:
            try:
                if what == "write":
                    beneath.write_new(root, f"a/{done}", b"x")
                else:
                    assert beneath.read(root, "a/secret", 9) == b"in"
                done += 1
            except beneath.Outside:
                refused += 1
    finally:
        stop.set()
        thread.join()
    assert [path.name for path in outside.iterdir()] == ["secret"]
