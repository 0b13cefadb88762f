"""The untrusted end: one process per run, which loads the policy's code and makes the calls it is asked for.

Nothing here decides anything. It holds no expected value, it sees one input at a time, and whatever it says is an
answer to be compared by the trusted side. Code of the policy may rewrite every function below; all it can win is
another wrong answer.
"""

import importlib
import importlib.util
import os
import random
import signal
import socket
import sys

from verl_ext.sandbox import beneath, wire

_TEXT = 300  # characters of an exception's message that cross


def serve(channel: socket.socket, root: str, handlers: "dict | None" = None) -> None:
    """Answers requests until the channel closes.

    Args:
        channel: Stream socket to the trusted side; one line of JSON a message, in both directions.
        root: Private directory for the sources; made when they come.
        handlers: Further operations, name to ``f(state, request) -> reply fields``.
    """
    state = {"root": root, "module": None, "cpu": 0.0}
    operations = {"load": _load, "call": _call, **(handlers or {})}
    reader = channel.makefile("rb", buffering=1 << 16)
    # Bound before the policy's code exists, so that replacing them in a module spoils nothing.
    dumps, loads, send, arm = wire.dumps, wire.loads, channel.sendall, _arm
    while line := reader.readline():
        request = loads(line, 64 << 20)
        arm(request.get("cpu", 0.0))
        try:
            reply = operations[request["op"]](state, request)
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: the policy's, not ours
            reply = {"exc": describe(error)}
        arm(0.0)
        try:
            data = dumps({"id": request["id"], **reply})
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            data = dumps({"id": request["id"], "odd": type(error).__name__})
        send(data)


def describe(error: BaseException) -> list:
    """Type name and message of an exception; its ``__str__`` is the policy's and may do anything."""
    try:
        text = str(error)
        text = text[:_TEXT] if type(text) is str else ""
        text = text.encode("utf-8", "replace").decode()
    except BaseException:
        text = ""
    return [type.__getattribute__(type(error), "__name__"), text]


def _arm(seconds: float) -> None:
    """CPU time for this call. The default action of the signal ends the process: honest endless loops stop here, and
    cunning ones at the hard limit of the kernel or at the wall clock of the trusted side."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _load(state: dict, request: dict) -> dict:
    root, name = state["root"], request["module"]
    os.makedirs(root, exist_ok=True)
    folder = beneath.open_root(root)
    beneath.write_tree(folder, request["sources"])
    os.close(folder)
    os.chdir(root)
    random.seed(0)  # as with the fixed hash seed, the same code gives the same answers in every run
    sys.path.append(root)  # last: a file next to the solution cannot shadow the standard library
    head = name.partition(".")[0]
    for path in (os.path.join(root, head + ".py"), os.path.join(root, head, "__init__.py")):
        if os.path.exists(path):
            # By its path, so that a solution may have the name of a standard module.
            spec = importlib.util.spec_from_file_location(head, path)
            sys.modules[head] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            break
    state["module"] = importlib.import_module(name)
    return {"ok": True}


def _call(state: dict, request: dict) -> dict:
    args, kwargs, then = wire.decode(request["what"])
    value = getattr(state["module"], request["call"])(*args, **kwargs)
    if then:
        value = tuple([getattr(value, method)(*arguments) for method, arguments in then])
    try:
        return {"value": wire.encode(value)}
    except wire.WireError as error:
        return {"odd": str(error)[:_TEXT]}
