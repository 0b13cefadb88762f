"""What crosses between an import proxy and its worker beyond plain data: common library values, and references.

A value of another exact type from the standard library (``Counter``, ``Decimal``, ``date``, ...) is rebuilt from plain
data on the other side. Anything else of the solution's stays where it is, and a reference to it crosses. Exceptions
cross as their class's name and arguments. Runs on both sides: standard library only.
"""

import builtins
import collections
import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any

from verl_ext.sandbox import wire

# exact type -> (value to plain parts, plain parts to value)
_LIBRARY: "dict[str, tuple[type, Callable, Callable]]" = {
    "complex": (complex, lambda v: [v.real, v.imag], lambda p: complex(*p)),
    "range": (range, lambda v: [v.start, v.stop, v.step], lambda p: range(*p)),
    "slice": (slice, lambda v: [v.start, v.stop, v.step], lambda p: slice(*p)),
    "bytearray": (bytearray, lambda v: [bytes(v)], lambda p: bytearray(_exact(p[0], bytes))),
    "Counter": (collections.Counter, lambda v: [dict(v)], lambda p: collections.Counter(_exact(p[0], dict))),
    "OrderedDict": (collections.OrderedDict, lambda v: [list(v.items())], lambda p: collections.OrderedDict(p[0])),
    "defaultdict": (collections.defaultdict, lambda v: [dict(v)], lambda p: collections.defaultdict(None, p[0])),
    "deque": (collections.deque, lambda v: [list(v), v.maxlen], lambda p: collections.deque(*p)),
    "Decimal": (decimal.Decimal, lambda v: [str(v)], lambda p: decimal.Decimal(_exact(p[0], str))),
    "Fraction": (fractions.Fraction, lambda v: [v.numerator, v.denominator], lambda p: fractions.Fraction(*p)),
    "date": (datetime.date, lambda v: [v.isoformat()], lambda p: datetime.date.fromisoformat(p[0])),
    "time": (datetime.time, lambda v: [v.isoformat()], lambda p: datetime.time.fromisoformat(p[0])),
    "datetime": (datetime.datetime, lambda v: [v.isoformat()], lambda p: datetime.datetime.fromisoformat(p[0])),
    "timedelta": (
        datetime.timedelta,
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda p: datetime.timedelta(*p),
    ),
}
_BY_TYPE = {kind: (name, take) for name, (kind, take, _) in _LIBRARY.items()}

# Built-in exceptions that an answer may raise in the trusted process: those that cannot steer a test runner.
EXCEPTIONS: "dict[str, type[BaseException]]" = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and name == kind.__name__
} | {"BaseException": BaseException, "SystemExit": SystemExit}


def pack(value: Any, reference: "Callable[[Any], list]") -> Any:
    """Jsonable form of any value; ``reference`` gives the list for what must stay where it is."""

    def other(value: Any) -> list:
        found = _BY_TYPE.get(type(value))
        if found is not None:
            try:
                return ["library", found[0], wire.encode(found[1](value), other)]
            except (ValueError, TypeError, OverflowError):
                pass
        return reference(value)

    return wire.encode(value, other)


def unpack(data: Any, reference: "Callable[[list], Any]") -> Any:
    """Inverse of :func:`pack`; raises :class:`~verl_ext.sandbox.wire.WireError` for anything it does not know."""

    def other(body: list) -> Any:
        if len(body) == 3 and body[0] == "library" and body[1] in _LIBRARY:
            parts = wire.decode(body[2], other)
            try:
                return _LIBRARY[body[1]][2](_exact(parts, list))
            except (ValueError, TypeError, ArithmeticError, IndexError) as error:
                raise wire.WireError(f"a broken {body[1]}: {type(error).__name__}") from None
        if len(body) == 2 and body[0] == "builtin" and body[1] in EXCEPTIONS:
            return EXCEPTIONS[body[1]]
        return reference(body)

    return wire.decode(data, other)


def _exact(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(kind.__name__)
    return value
