"""The trusted half of the import proxy: what a hidden test gets when it imports the solution.

Functions, classes and instances are :class:`Remote` handles; using one asks the jailed worker. Plain data and common
library values come back as real, fresh ones, so that comparing them runs no code of the policy. A handle refuses
``==``, ``bool``, ``hash`` and ordering: their answers would be the policy's verdict on itself. A refused operation, or
a worker that is gone, marks the running test as failed whatever the test catches.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from verl_ext.sandbox import refs, wire


class Refused(BaseException):
    """The proxy cannot answer this; not an ``Exception``, so that ``pytest.raises(Exception)`` does not take it."""


class Link:
    """One conversation with the worker.

    Attributes:
        trouble: Why the running test must fail (``kind``, text), None while there is no reason.
        lost: True once the worker is gone; every later use is refused.
    """

    def __init__(self, ask: "Callable[[dict], dict]") -> None:
        """``ask(request) -> reply``; a reply ``{"lost": [kind, text]}`` means that the worker is gone."""
        self._ask = ask
        self._classes: dict[int, type] = {}
        self.trouble: tuple[str, str] | None = None
        self.lost = False

    def refuse(self, text: str, kind: str = "wrong") -> "Refused":
        """Marks the test as failed; returns the exception to raise."""
        self.trouble = self.trouble or (kind, text)
        return Refused(text)

    def do(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """One operation in the worker; returns its value, or raises its exception here."""
        if self.lost:
            raise self.refuse("the worker is gone", "died")
        what = refs.pack((args, kwargs), self._reference)
        reply = self._ask({"op": "do", "verb": verb, "what": what})
        if "lost" in reply:
            self.lost = True
            raise self.refuse(reply["lost"][1], reply["lost"][0])
        try:
            if "args" in reply:
                _copy_back((args, kwargs), refs.unpack(reply["args"], self._resolve))
            if "value" in reply:
                return refs.unpack(reply["value"], self._resolve)
            error = self._exception(reply)
        except (wire.WireError, RecursionError, TypeError, ValueError, KeyError, IndexError) as broken:
            raise self.refuse(f"the answer is broken: {broken}", "protocol") from None
        raise error

    def _exception(self, reply: dict) -> BaseException:
        if "exc" in reply:  # the worker could not even describe it
            return Exception(str(reply["exc"])[:300])
        if "raised" not in reply:
            raise ValueError("neither value nor exception")
        kind, text, args, itself, name = refs.unpack(reply["raised"], self._resolve)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            kind = Exception
        if kind in (BaseException,) or kind.__name__ != name:
            text = f"{name}: {text}"
        try:
            error = kind(*args)
        except Exception:
            error = Exception(f"{name}: {text}")
        if kind in self._classes.values():
            error._remote, error._text = itself, text
        return error

    def _reference(self, value: Any) -> list:
        if type(value) is Remote:
            return object.__getattribute__(value, "_body")
        if isinstance(value, type):
            for number, kind in self._classes.items():
                if kind is value:
                    return ["error", number]
        raise self.refuse(f"a {type(value).__name__} cannot be passed to the solution through the import proxy")

    def _resolve(self, body: list) -> Any:
        match body:
            case ["object", int(number), str(name)]:
                return Remote(self, ["object", number], name)
            case ["error", int(number), str(name), list(bases)]:
                return self._error_class(number, name, bases, 8)
        raise wire.WireError("an unknown reference")

    def _error_class(self, number: int, name: str, bases: list, depth: int) -> type:
        """A local exception class for one of the solution's: the same one each time, below the same ancestors."""
        if number in self._classes:
            return self._classes[number]
        parents: list[type] = []
        for base in bases:
            match base:
                case ["builtin", str(known)] if known in refs.EXCEPTIONS:
                    parents.append(refs.EXCEPTIONS[known])
                case ["error", int(below), str(called), list(above)] if depth:
                    parents.append(self._error_class(below, called, above, depth - 1))
        members = {"__str__": _error_text, "__getattr__": _error_attribute, "__init__": _error_init}
        try:
            made = type(name, tuple(parents) or (Exception,), members)
        except (TypeError, ValueError):
            made = type("Error", (Exception,), members)
        self._classes[number] = made
        return made


class Remote:
    """A handle on an object that stays in the jail."""

    __slots__ = ("_body", "_link", "_name")

    def __init__(self, link: Link, body: list, name: str = "") -> None:
        for slot, value in (("_link", link), ("_body", body), ("_name", name)):
            object.__setattr__(self, slot, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # tests and test runners look for marks; the policy must not be able to set them
            raise AttributeError(name)
        return _link(self).do("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _link(self).do("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        _link(self).do("delete", self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _link(self).do("call", self, *args, **kwargs)

    def __enter__(self) -> Any:
        return _link(self).do("enter", self)

    def __exit__(self, *_: object) -> None:
        _link(self).do("leave", self)

    def __next__(self) -> Any:
        return _link(self).do("next", self)

    def __len__(self) -> int:
        return _exactly(int, self, "length")

    def __contains__(self, item: Any) -> bool:
        return _exactly(bool, self, "contains", item)

    def __str__(self) -> str:
        return _exactly(str, self, "text")

    def __repr__(self) -> str:
        if _link(self).lost:  # pytest describes what failed after the fact
            return f"<{object.__getattribute__(self, '_name')} in the jail>"
        return _exactly(str, self, "repr")

    def __format__(self, spec: str) -> str:
        return _exactly(str, self, "format", spec)


def _link(remote: Remote) -> Link:
    return object.__getattribute__(remote, "_link")


def _exactly(kind: type, remote: Remote, verb: str, *args: Any) -> Any:
    value = _link(remote).do(verb, remote, *args)
    if type(value) is not kind:
        raise _link(remote).refuse(f"{verb} gave a {type(value).__name__}")
    return value


def _forward(verb: str, swap: bool = False) -> Callable:
    def method(self: Remote, *args: Any) -> Any:
        return _link(self).do(verb, *((*args, self) if swap else (self, *args)))

    return method


def _refusal(what: str) -> Callable:
    def method(self: Remote, *_: Any) -> Any:
        raise _link(self).refuse(f"{what} of an object of the solution: compare plain values that it returns")

    return method


_UNARY = ("iter", "getitem", "setitem", "delitem", "neg", "pos", "abs", "invert")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift")
_REFUSED = ("eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "instancecheck", "subclasscheck")
for _verb in (*_UNARY, *_BINARY):
    setattr(Remote, f"__{_verb.strip('_')}__", _forward(_verb))
for _verb in _BINARY:
    setattr(Remote, f"__r{_verb.strip('_')}__", _forward(_verb, swap=True))
for _verb in _REFUSED:
    setattr(Remote, f"__{_verb}__", _refusal(f"'{_verb}'"))


def _error_init(self: BaseException, *args: Any) -> None:
    self.args = args


def _error_text(self: BaseException) -> str:
    return getattr(self, "_text", "") if "_text" in vars(self) else str(self.args[0] if self.args else "")


def _error_attribute(self: BaseException, name: str) -> Any:
    remote = vars(self).get("_remote")
    if name.startswith("_") or type(remote) is not Remote:
        raise AttributeError(name)
    return getattr(remote, name)


def _copy_back(old: Any, new: Any) -> None:
    """Makes arguments what the call made of them, keeping the identity of every container that still has its place."""
    if type(old) is not type(new):
        return
    if type(old) in (list, tuple) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            if type(before) is type(after) and type(before) in (list, dict, set, tuple, bytearray):
                _copy_back(before, after)
            elif type(old) is list:
                old[index] = after
    elif type(old) in (list, bytearray):
        old[:] = new
    elif type(old) is dict:
        if list(old) == list(new):
            for key, after in new.items():
                before = old[key]
                if type(before) is type(after) and type(before) in (list, dict, set, tuple, bytearray):
                    _copy_back(before, after)
                else:
                    old[key] = after
        else:
            old.clear()
            old.update(new)
    elif type(old) is set:
        old.clear()
        old.update(new)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports every module of the workspace as a stub; installed before any other finder."""

    def __init__(self, link: Link, tops: "set[str]") -> None:
        self._link, self._tops = link, tops

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in self._tops:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        link, module = self._link, _Module(spec.name)
        try:
            remote = link.do("module", spec.name)
        except Exception as error:
            if isinstance(error, ImportError):
                raise
            raise ImportError(f"{type(error).__name__}: {error}") from None
        vars(module)["_remote"] = remote
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        remote = vars(self).get("_remote")
        if name == "__all__" and remote is not None:
            names = _link(remote).do("names", remote)
            return [n for n in names if type(n) is str and not n.startswith(("_", "test", "Test", "pytest"))]
        if name.startswith("_") or remote is None:
            raise AttributeError(name)
        return getattr(remote, name)

    def __setattr__(self, name: str, value: Any) -> None:
        remote = vars(self).get("_remote")
        if remote is None or name.startswith("__") or isinstance(value, _Module):  # the import system's own
            super().__setattr__(name, value)
        else:
            setattr(remote, name, value)


def install(link: Link, tops: "set[str]") -> None:
    """Makes ``import`` of these top-level names give stubs, in this process."""
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder(link, tops))
