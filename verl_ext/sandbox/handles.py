"""The worker's half of the import proxy: a table of the solution's objects, and what may be asked of them.

Untrusted like everything in the worker: a wrong table gives wrong answers, no more.
"""

import importlib
import operator
from typing import Any

from verl_ext.sandbox import refs, worker

_VERBS = {
    "module": importlib.import_module,
    "names": lambda module: list(getattr(module, "__all__", None) or [n for n in vars(module) if n[:1] != "_"]),
    "call": lambda function, /, *args, **kwargs: function(*args, **kwargs),
    "get": getattr,
    "set": setattr,
    "delete": delattr,
    "length": len,
    "iter": iter,
    "next": next,
    "contains": operator.contains,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "text": str,
    "repr": repr,
    "format": format,
    "enter": lambda manager: type(manager).__enter__(manager),
    "leave": lambda manager: type(manager).__exit__(manager, None, None),
    **{
        name: getattr(operator, name)
        for name in [
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "pow",
            "matmul",
            "and_",
            "or_",
            "xor",
            "lshift",
            "rshift",
            "neg",
            "pos",
            "abs",
            "invert",
        ]
    },
}


class Table:
    """Numbers for objects, both ways; an object stays alive, and keeps its number, until the run ends."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, value: Any) -> int:
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return found

    def reference(self, value: Any) -> list:
        """List that stands for a value of the solution's; an exception class brings its ancestry."""
        if isinstance(value, type) and issubclass(value, BaseException):
            if refs.EXCEPTIONS.get(value.__name__) is value:
                return ["builtin", value.__name__]
            bases = [self.reference(base) for base in value.__bases__ if issubclass(base, BaseException)]
            return ["error", self.number(value), value.__name__, bases]
        return ["object", self.number(value), type(value).__name__]

    def resolve(self, body: list) -> Any:
        return self._objects[body[1]]


def do(state: dict, request: dict) -> dict:
    """Operation ``do`` of :func:`verl_ext.sandbox.worker.serve`: one verb on unpacked arguments.

    The reply has ``value``, or ``raised`` (class, arguments, message, the exception itself); and ``args`` where the
    call changed its arguments in place.
    """
    table = state.setdefault("table", Table())
    args, kwargs = refs.unpack(request["what"], table.resolve)
    try:
        reply = {"value": refs.pack(_VERBS[request["verb"]](*args, **kwargs), table.reference)}
    except BaseException as error:
        name, text = worker.describe(error)
        known = error.args if not isinstance(error, SystemExit) else (error.code,)
        reply = {
            "raised": refs.pack([type(error), text, list(known), error, name], table.reference),
        }
    after = refs.pack((args, kwargs), table.reference)
    return reply if after == request["what"] else {**reply, "args": after}


HANDLERS = {"do": do}
