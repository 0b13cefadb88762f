"""The untrusted end of a script's run: a fresh interpreter with its input, output and files, inside the jail.

Standard library only; like the worker it decides nothing that matters to a verdict.
"""

import base64
import os
import select
import signal
import sys
import time

from verl_ext.sandbox import beneath

_FLAGS = ("-s", "-S", "-P", "-B")
_MOST_FETCHED = 32 << 20  # bytes of one file


def do(state: dict, request: dict) -> dict:
    """Operation ``script`` of :func:`verl_ext.sandbox.worker.serve`.

    Args:
        state: The worker's; ``root`` is where the script and its files go.
        request: ``code``, ``stdin``, ``files`` (path to base64), ``fetch`` (paths), ``seconds`` of wall-clock for the
            script, ``most`` bytes of each output.

    Returns:
        ``code`` (exit status, negative: signal; None: out of time), ``out``, ``err``, ``cut`` (an output was longer),
        ``files`` (path to base64, of those that are there), ``seconds``.
    """
    root = state["root"]
    os.makedirs(root, exist_ok=True)
    folder = beneath.open_root(root)
    for path, data in request["files"].items():
        beneath.write_new(folder, path, base64.b64decode(data))
    main, given = os.path.join(root, "main.py"), os.path.join(root, ".stdin")
    for path, text in ((main, request["code"]), (given, request["stdin"])):
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
    begin = time.monotonic()
    code, outputs = _run(main, given, root, request["seconds"], request["most"])
    seconds = time.monotonic() - begin
    out, err = (bytes(data[: request["most"]]).decode("utf-8", "replace") for data in outputs)
    cut = any(len(data) > request["most"] for data in outputs)
    fetched = {path: _fetch(folder, path) for path in request["fetch"]}
    found = {path: data for path, data in fetched.items() if data is not None}
    return {"code": code, "out": out, "err": err, "cut": cut, "files": found, "seconds": seconds}


def _run(main: str, given: str, root: str, seconds: float, most: int) -> "tuple[int | None, list[bytearray]]":
    # Pipes, since a script can truncate or delete a file that it writes to, and so take back what it has said.
    pipes = [os.pipe(), os.pipe()]
    actions = [(os.POSIX_SPAWN_OPEN, 0, given, os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, write, n) for n, (_, write) in enumerate(pipes, 1)]
    os.chdir(root)
    environment = {"HOME": root, "PATH": os.defpath, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"}
    # A fresh interpreter, since the script is a whole program: `exec` in this one would share its modules.
    pid = os.posix_spawn(sys.executable, [sys.executable, *_FLAGS, main], environment, file_actions=actions)
    for _, write in pipes:
        os.close(write)
    outputs = [bytearray(), bytearray()]
    process = os.pidfd_open(pid)
    waiter = select.poll()
    waiter.register(process, select.POLLIN)
    for read, _ in pipes:
        os.set_blocking(read, False)
        waiter.register(read, select.POLLIN)
    deadline, ended = time.monotonic() + seconds, False
    while not ended and (left := deadline - time.monotonic()) > 0:
        ready = {fd for fd, _ in waiter.poll(left * 1000)}
        ended = process in ready
        for (read, _), output in zip(pipes, outputs, strict=True):
            if read in ready and not _take(read, output, most):
                waiter.unregister(read)
    if not ended:
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:  # level landlock on an old kernel: nobody here may; the end of the run does it
            return None, outputs
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for (read, _), output in zip(pipes, outputs, strict=True):
        _take(read, output, most)  # what is still in the pipe; a child that holds it open is not waited for
        os.close(read)
    os.close(process)
    return status if ended else None, outputs


def _take(read: int, output: bytearray, most: int) -> bool:
    """Moves what is there, keeping one byte more than ``most``; False at the end of file."""
    for _ in range(64):  # a writer that never stops must not keep the deadline from being looked at
        try:
            data = os.read(read, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        output += data[: max(0, most + 1 - len(output))]
    return True


def _fetch(folder: int, path: str) -> "str | None":
    try:  # the script has had its way with the directory: a FIFO there would be waited for, a link followed
        return base64.b64encode(beneath.read(folder, path, _MOST_FETCHED)).decode()
    except OSError:
        return None


HANDLERS = {"script": do}
