"""The untrusted end of a script's run: a fresh interpreter with its input, output and files, inside the jail.

Standard library only; like the worker it decides nothing that matters to a verdict.
"""

import base64
import os
import select
import signal
import sys
import time

_FLAGS = ("-s", "-S", "-P", "-B")


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
    for path, data in request["files"].items():
        target = os.path.join(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(base64.b64decode(data))
    main, streams = os.path.join(root, "main.py"), [os.path.join(root, f".std{n}") for n in range(3)]
    for path, text in ((main, request["code"]), (streams[0], request["stdin"])):
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
    begin = time.monotonic()
    code = _run(main, streams, root, request["seconds"])
    seconds = time.monotonic() - begin
    (out, cut), (err, cut_too) = (_head(path, request["most"]) for path in streams[1:])
    fetched = {path: _fetch(os.path.join(root, path)) for path in request["fetch"]}
    found = {path: data for path, data in fetched.items() if data is not None}
    return {"code": code, "out": out, "err": err, "cut": cut or cut_too, "files": found, "seconds": seconds}


def _run(main: str, streams: list, root: str, seconds: float) -> "int | None":
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [(os.POSIX_SPAWN_OPEN, 0, streams[0], os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_OPEN, n, streams[n], new, 0o600) for n in (1, 2)]
    os.chdir(root)
    environment = {"HOME": root, "PATH": os.defpath, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"}
    # A fresh interpreter, since the script is a whole program: `exec` in this one would share its modules.
    pid = os.posix_spawn(sys.executable, [sys.executable, *_FLAGS, main], environment, file_actions=actions)
    fd = os.pidfd_open(pid)
    waiter = select.poll()
    waiter.register(fd, select.POLLIN)
    ended = waiter.poll(seconds * 1000)
    os.close(fd)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if ended else None


def _head(path: str, most: int) -> "tuple[str, bool]":
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except OSError:
        return "", False
    return data[:most].decode("utf-8", "replace"), len(data) > most


def _fetch(path: str) -> "str | None":
    try:
        with open(path, "rb") as file:
            return base64.b64encode(file.read()).decode()
    except OSError:
        return None


HANDLERS = {"script": do}
