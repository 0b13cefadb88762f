"""Plain values over a pipe to a hostile process: tagged JSON, and a comparison that a value cannot influence.

Pickle, ``eval`` and ``repr`` would run code of whoever wrote the bytes, and ``==`` would run code of whoever made the
object. So only exact builtin types cross (``type(x) is int``; a subclass of ``int`` whose ``__eq__`` always agrees is
refused where it is sent), and both sides bound depth, number of nodes and size of integers. JSON has no tuple, set,
bytes, NaN or non-string keys: these travel as ``{"$": "tuple", "v": [...]}``, where ``$`` names the type.

This file runs on both sides of the jail's wall, so it imports nothing but the standard library.
"""

import json
import math
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 64
MAX_NODES = 200_000
MAX_BITS = 14_000  # below the 4,300 digits where Python refuses to print an int
MAX_BYTES = 1 << 20
_MAX_COLLISIONS = 64  # keys chosen to collide make building a set quadratic: refuse instead of computing


class WireError(ValueError):
    """A value that may not cross, or bytes that are not one."""


Other = Callable[[Any], Any] | None


def encode(value: Any, other: Other = None) -> Any:
    """Turns a plain value into what ``json.dumps`` takes.

    Args:
        value: None, bool, int, float (also nan, inf), str, bytes, list, tuple, dict, set, frozenset, nested;
            of exactly these types.
        other: Gives the list to send, under the tag ``ref``, for a value of another type.

    Returns:
        The jsonable form. Sets are ordered by their members' JSON, so that equal sets have equal text.

    Raises:
        WireError: Another type, too deep (also cyclic), too many nodes, or an integer above 14,000 bits.
    """
    return _encode(value, MAX_DEPTH, [MAX_NODES], other)


def decode(data: Any, other: Other = None) -> Any:
    """Inverse of :func:`encode`; ``other`` makes the value of a ``ref`` from its list.

    Raises:
        WireError: ``data`` is not the encoding of a plain value, or is beyond the caps.
    """
    return _decode(data, MAX_DEPTH, [MAX_NODES], other)


def dumps(value: Any) -> bytes:
    """One line (with its newline) of jsonable data, ASCII only."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def loads(line: bytes, max_bytes: int = MAX_BYTES) -> Any:
    """Reads one line from a hostile sender.

    Raises:
        WireError: Not JSON, longer than ``max_bytes``, nested too deeply, NaN literals, or integers too long to read.
    """
    if len(line) > max_bytes:
        raise WireError(f"a message of {len(line)} bytes, the limit is {max_bytes}")
    try:
        return json.loads(line, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {type(error).__name__}") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):  # 1e999: not to be had from our encoder, and refused by it when passed on
        raise ValueError(text)
    return value


def agree(got: Any, expected: Any, compare: str = "exact", tolerance: float = 0.0) -> bool:
    """Compares two plain values by type and value, recursively.

    nan agrees with nan; the order of a dict does not count.

    Args:
        got, expected: Plain values, as :func:`decode` returns them.
        compare: ``exact``: types are the same (``2`` is not ``2.0``, ``True`` not ``1``, a tuple not a list).
            ``numeric``: int and float of equal value agree too (bool stays apart).
            ``tolerance``: numbers agree also when ``abs(got - expected) <= tolerance``; not members of sets nor keys.
        tolerance: Absolute.
    """
    if compare not in ("exact", "numeric", "tolerance"):
        raise ValueError(f"compare={compare!r}: must be exact, numeric or tolerance")
    kind = type(expected)
    if compare != "exact" and kind in (int, float) and type(got) in (int, float):
        return _near(got, expected, tolerance if compare == "tolerance" else 0.0)
    if type(got) is not kind:
        return False
    if kind is float:
        return got == expected or (got != got and expected != expected)
    if kind in (list, tuple):
        return len(got) == len(expected) and all(
            agree(g, e, compare, tolerance) for g, e in zip(got, expected, strict=True)
        )
    if kind in (set, frozenset):
        loose = compare != "exact"
        return len(got) == len(expected) and {_key(g, loose) for g in got} == {_key(e, loose) for e in expected}
    if kind is dict:
        if len(got) != len(expected):
            return False
        loose = compare != "exact"
        by_key = {_key(k, loose): v for k, v in got.items()}
        return all(
            (key := _key(k, loose)) in by_key and agree(by_key[key], v, compare, tolerance) for k, v in expected.items()
        )
    return got == expected


def _near(got: float, expected: float, tolerance: float) -> bool:
    if got == expected or (got != got and expected != expected):
        return True
    try:
        return math.isfinite(got) and math.isfinite(expected) and abs(got - expected) <= tolerance
    except OverflowError:  # an int beyond the range of float, against a float
        return False


def _key(value: Any, loose: bool) -> str:
    """Text of a hashable plain value in which 1, 1.0 and True differ (``loose``: 1 and 1.0 do not)."""
    return json.dumps(encode(_merge(value) if loose else _no_minus_zero(value)), separators=(",", ":"))


def _no_minus_zero(value: Any) -> Any:
    if type(value) in (tuple, frozenset):
        return type(value)(_no_minus_zero(v) for v in value)
    return 0.0 if type(value) is float and value == 0 else value


def _merge(value: Any) -> Any:
    if type(value) in (tuple, frozenset):
        return type(value)(_merge(v) for v in value)
    return int(value) if type(value) is float and value.is_integer() else value


def _encode(value: Any, depth: int, left: list[int], other: Other) -> Any:
    kind = type(value)
    left[0] -= 1
    if left[0] < 0:
        raise WireError(f"more than {MAX_NODES} values")
    if kind is str:
        if value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value):
            return value
        return {"$": "str", "v": value.encode("utf-32-le", "surrogatepass").hex()}
    if kind is int:
        if value.bit_length() > MAX_BITS:
            raise WireError(f"an integer of more than {MAX_BITS} bits")
        return value
    if value is None or kind is bool:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
    if kind is bytes:
        return {"$": "bytes", "v": value.hex()}
    if kind not in (list, tuple, dict, set, frozenset):
        if other is not None:
            return {"$": "ref", "v": other(value)}
        raise WireError(f"a value of type {_type_name(kind)} is not plain data")
    if depth == 0:
        raise WireError(f"nested more than {MAX_DEPTH} deep")
    if kind is dict:
        pairs = [[_encode(k, depth - 1, left, other), _encode(v, depth - 1, left, other)] for k, v in value.items()]
        return {"$": "dict", "v": pairs}
    items = [_encode(v, depth - 1, left, other) for v in value]
    if kind is list:
        return items
    if kind is not tuple:
        items.sort(key=lambda item: json.dumps(item, separators=(",", ":")))
    return {"$": kind.__name__, "v": items}


def _decode(data: Any, depth: int, left: list[int], other: Other) -> Any:
    kind = type(data)
    left[0] -= 1
    if left[0] < 0:
        raise WireError(f"more than {MAX_NODES} values")
    if kind is int:
        if data.bit_length() > MAX_BITS:
            raise WireError(f"an integer of more than {MAX_BITS} bits")
        return data
    if data is None or kind in (str, bool):
        return data
    if kind is float:
        if not math.isfinite(data):  # 1e999 in the text
            raise WireError("a float that JSON cannot hold")
        return data
    if depth == 0:
        raise WireError(f"nested more than {MAX_DEPTH} deep")
    if kind is list:
        return [_decode(v, depth - 1, left, other) for v in data]
    if kind is not dict or set(data) != {"$", "v"}:
        raise WireError("neither a plain value nor a tag")
    tag, body = data["$"], data["v"]
    if type(body) is str:
        return _decode_text(tag, body)
    if type(body) is not list:
        raise WireError("a tag with a wrong body")
    if tag == "tuple":
        return tuple(_decode(v, depth - 1, left, other) for v in body)
    if tag in ("set", "frozenset"):
        items = [_decode(v, depth - 1, left, other) for v in body]
        _check_keys(items)
        return set(items) if tag == "set" else frozenset(items)
    if tag == "dict":
        if not all(type(pair) is list and len(pair) == 2 for pair in body):
            raise WireError("a dict whose items are not pairs")
        keys = [_decode(k, depth - 1, left, other) for k, _ in body]
        _check_keys(keys)
        return dict(zip(keys, (_decode(v, depth - 1, left, other) for _, v in body), strict=True))
    if tag == "ref" and other is not None:
        return other(body)
    raise WireError("an unknown tag")


def _decode_text(tag: Any, body: str) -> Any:
    try:
        if tag == "bytes":
            return bytes.fromhex(body)
        if tag == "str":
            return bytes.fromhex(body).decode("utf-32-le", "surrogatepass")
    except ValueError:
        raise WireError("a tag with a wrong body") from None
    if tag == "float" and body in ("nan", "inf", "-inf"):
        return float(body)
    raise WireError("an unknown tag")


def _check_keys(keys: list[Any]) -> None:
    try:
        hashes = len({hash(k) for k in keys})
    except TypeError:
        raise WireError("a key that cannot be hashed") from None
    if len(keys) - hashes > _MAX_COLLISIONS:
        raise WireError("keys that collide")


def _type_name(kind: type) -> str:
    name = kind.__name__
    return name[:60] if type(name) is str else "?"


def _no_constant(text: str) -> None:
    raise ValueError(text)
