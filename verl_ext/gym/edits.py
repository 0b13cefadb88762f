"""The fixed menu of one-line edits behind TinyAgent's ``ops`` tools.

A model of less than a million parameters cannot write code, but it can point: ``edit(line, op)`` names a line and one
of a dozen deterministic transforms. Each transform has exactly one site on a line (the first operator, the last
variable read, ...), so a pair (line, op) has exactly one meaning. Most transforms undo themselves or have a partner in
the menu; :mod:`verl_ext.gym.operators` breaks code so that usually one menu edit repairs it.

Sites are found in the syntax tree and changed in the text, so formatting survives. Positions of :mod:`ast` count UTF-8
bytes, and so does everything here. The whole menu of a source is computed once and cached.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from verl_ext.gym.code import Code, Splice

_STRICT = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_EQUAL = {"==": "!=", "!=": "=="}
_MEMBER = {"in": "not in", "not in": "in", "is": "is not", "is not": "is"}
_ARITH = {"+": "-", "-": "+", "*": "//", "//": "*", "/": "*"}
_DIVISION = {"//": "%", "%": "//", "/": "//"}
_BOOLEAN = {"and": "or", "or": "and"}
_NUMERIC_CALLS = frozenset({"len", "sum", "abs", "int", "ord"})
_SYMMETRIC_CALLS = frozenset({"min", "max", "isinstance"})
_SUMMABLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_LOW = (ast.Add, ast.Sub)
_ARITHMETIC = (*_LOW, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_LOOPS = (ast.For, ast.While)


def _calls(node: ast.AST, names: frozenset[str] | set[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _integer(node: ast.AST) -> int | None:
    """Value of an integer literal, also a negative one; None for everything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _integer(node.operand)
        return None if value is None else -value
    return None


# --- operators ---------------------------------------------------------------------------------------------------


def _token(table: dict[str, str]) -> Callable[[Code, int], list[Splice] | None]:
    """Transform of the first operator of a line that stands in ``table``."""

    def transform(code: Code, line: int) -> list[Splice] | None:
        for op in code.operators.get(line, ()):
            if op.text in table:
                return [(op.start, op.end, table[op.text])]
        return None

    return transform


def _negate(code: Code, line: int) -> list[Splice] | None:
    """First of: ``in``/``is`` gains or loses its ``not``; ``not x`` loses it; a plain condition gains it."""
    sites: list[Splice] = [
        (op.start, op.end, _MEMBER[op.text]) for op in code.operators.get(line, ()) if op.text in _MEMBER
    ]
    for node in code.lines.get(line, ()):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            if isinstance(node.operand, _SUMMABLE):
                sites.append((code.start(node), code.start(node.operand), ""))
        elif isinstance(node, _SUMMABLE) and _is_condition(code, node):
            sites.append((code.start(node), code.start(node), "not "))
    return [min(sites)] if sites else None


def _is_condition(code: Code, node: ast.AST) -> bool:
    parent = code.parents[node]
    if isinstance(parent, ast.BoolOp):
        return True
    if isinstance(parent, ast.If | ast.While | ast.IfExp):
        return node is parent.test
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    if isinstance(parent, ast.Return) and isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in {"any", "all", "startswith", "endswith"} or name.startswith("is")
    return False


# --- off by one --------------------------------------------------------------------------------------------------


def _shift(delta: int) -> Callable[[Code, int], list[Splice] | None]:
    """Transform that adds ``delta`` to the last bound, index or number of a line."""

    def transform(code: Code, line: int) -> list[Splice] | None:
        target = bound(code, line)
        return None if target is None else [(code.start(target), code.end(target), shifted(code, target, delta))]

    return transform


def bound(code: Code, line: int) -> ast.AST | None:
    """The expression that ``plus_one`` and ``minus_one`` change: the last, outermost bound, index or number."""
    found: list[ast.AST] = []
    for node in code.lines.get(line, ()):
        if found and code.start(node) < code.end(found[-1]) and not isinstance(code.parents[node], ast.Subscript):
            continue
        if _is_bound(code, node):
            found.append(node)
    return found[-1] if found else None


def _is_bound(code: Code, node: ast.AST) -> bool:
    value, parent = _integer(node), code.parents.get(node)
    additive = isinstance(node, ast.BinOp) and isinstance(node.op, _LOW)
    arithmetic = isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC)
    if value is None and not arithmetic and not isinstance(node, _SUMMABLE):
        return False
    if isinstance(getattr(node, "ctx", None), ast.Store):
        return False
    if isinstance(parent, ast.Compare) and node is not parent.left:
        return isinstance(parent.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq)
    if isinstance(parent, ast.Call) and _calls(parent, {"range"}):
        return node is parent.args[-1 if len(parent.args) < 3 else 1]
    if isinstance(parent, ast.Slice):
        return node is not parent.step
    if isinstance(parent, ast.Subscript) and node is parent.slice:
        return arithmetic or value is not None or (isinstance(node, ast.Name) and node.id in code.indexes)
    if additive:
        return isinstance(node.op, ast.Sub) or _integer(node.right) is not None
    if isinstance(parent, ast.Return | ast.Assign):
        return _calls(node, _NUMERIC_CALLS) or (isinstance(node, ast.Name) and node.id in code.indexes) or _odd(value)
    return _odd(value) and not isinstance(parent, ast.Tuple | ast.List | ast.Set | ast.Dict)


def _odd(value: int | None) -> bool:
    """A number that ``constant`` cannot turn into its usual neighbour."""
    return value is not None and value not in (0, 1, -1)


def shifted(code: Code, node: ast.AST, delta: int) -> str:
    """Text of ``node`` plus ``delta``; ``x + 1`` minus 1 is ``x``."""
    value = _integer(node)
    if value is not None:
        return str(value + delta)
    if isinstance(node, ast.BinOp) and isinstance(node.op, _LOW) and (right := _integer(node.right)) is not None:
        total = (right if isinstance(node.op, ast.Add) else -right) + delta
        left = code.text(node.left)
        return f"{left} {'+' if total > 0 else '-'} {abs(total)}" if total else left
    return f"{code.text(node)} {'+' if delta > 0 else '-'} {abs(delta)}"


# --- values ------------------------------------------------------------------------------------------------------

_CONSTANTS = {"0": "1", "1": "0", "True": "False", "False": "True"}
_INFINITY = {'"inf"': '"-inf"', '"-inf"': '"inf"', "'inf'": "'-inf'", "'-inf'": "'inf'"}


def _constant(code: Code, line: int) -> list[Splice] | None:
    """First 0, 1, True, False or infinity of a line, to its opposite."""
    for node in code.lines.get(line, ()):
        parent, text = code.parents.get(node), code.text(node)
        if isinstance(node, ast.Constant):
            if _calls(parent, {"float"}) and text in _INFINITY:
                return [(code.start(node), code.end(node), _INFINITY[text])]
            step = isinstance(parent, ast.UnaryOp | ast.AugAssign)
            step = step or (isinstance(parent, ast.BinOp) and isinstance(parent.op, _LOW))
            if text in _CONSTANTS and not step:
                return [(code.start(node), code.end(node), _CONSTANTS[text])]
    return None


def _variable(code: Code, line: int) -> list[Splice] | None:
    """The last variable read on a line, to the next local in the order of their first binding."""
    for node in reversed(code.lines.get(line, ())):
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            continue
        parent = code.parents[node]
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and node is parent.func):
            continue
        names = code.locals_at(node.lineno)
        if node.id in names and len(names) > 1:
            following = names[(names.index(node.id) + 1) % len(names)]
            return [(code.start(node), code.end(node), following)]
    return None


def _swap(code: Code, line: int) -> list[Splice] | None:
    """The first two arguments of the first call, else the operands of the first ``- / // %``, else of a pair."""
    nodes = code.lines.get(line, ())
    for node in nodes:
        if isinstance(node, ast.Call) and len(node.args) > 1 and not _calls(node, _SYMMETRIC_CALLS):
            return _exchange(code, node.args[0], node.args[1])
    for node in nodes:
        ordered = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod)
        if ordered and _integer(node.right) is None and _swappable(node.left) and _swappable(node.right):
            return _exchange(code, node.left, node.right)
    for node in nodes:
        pair = isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) == 2
        if pair and isinstance(code.parents[node], ast.Return | ast.Assign):
            return _exchange(code, *node.elts)
    return None


def _swappable(node: ast.AST) -> bool:
    return isinstance(node, (*_SUMMABLE, ast.Constant))


def _exchange(code: Code, a: ast.AST, b: ast.AST) -> list[Splice]:
    return [(code.start(a), code.end(a), code.text(b)), (code.start(b), code.end(b), code.text(a))]


# --- statements --------------------------------------------------------------------------------------------------


def _accumulate(code: Code, line: int) -> list[Splice] | None:
    """``total += x`` to ``total = x``; inside a loop also back."""
    for node in code.lines.get(line, ()):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            op = code.operators[line][0]
            return [(op.start, op.end + 1, "=")]
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            looped = any(isinstance(a, _LOOPS) for a in code.ancestors(node))
            if looped and node.targets[0].id in code.locals_at(node.lineno):
                start = code.end(node.targets[0])
                equals = code.bytes.index(b"=", start)
                return [(equals, equals + 1, "+=")]
    return None


def _dedent(code: Code, line: int) -> list[Splice] | None:
    """A ``return`` that ends a longer block moves out of it, by one level."""
    for node in code.lines.get(line, ()):
        if isinstance(node, ast.Return) and node.end_lineno == line:
            parent = code.parents[node]
            body = next((b for b in (getattr(parent, "body", []), getattr(parent, "orelse", [])) if node in b), [])
            if isinstance(parent, ast.For | ast.While | ast.If) and len(body) > 1 and node is body[-1]:
                return [(code.starts[line - 1], code.start(node), " " * parent.col_offset)]
    return None


_TRANSFORMS: dict[str, Callable[[Code, int], list[Splice] | None]] = {
    "strict": _token(_STRICT),
    "flip": _token(_FLIP),
    "equal": _token(_EQUAL),
    "negate": _negate,
    "plus_one": _shift(1),
    "minus_one": _shift(-1),
    "arith": _token(_ARITH),
    "division": _token(_DIVISION),
    "boolean": _token(_BOOLEAN),
    "constant": _constant,
    "variable": _variable,
    "swap": _swap,
    "accumulate": _accumulate,
    "dedent": _dedent,
}
OPS: tuple[str, ...] = tuple(_TRANSFORMS)
"""Names of the menu's edits, in menu order."""


@lru_cache(maxsize=4096)
def menu(source: str, only: int | None = None) -> Mapping[tuple[int, str], str]:
    """Every edit of ``source``: (1-based line, op) to the text that it gives.

    Edits that leave the text as it is or do not compile are left out; of two with one outcome the first in the order of
    :data:`OPS` stays. A source that does not compile has an empty menu.

    Args:
        source: A module.
        only: The one line to look at; None for all.
    """
    try:
        code = Code(source)
    except (SyntaxError, ValueError):
        return {}
    found: dict[tuple[int, str], str] = {}
    seen = {source}
    lines = range(1, len(code.starts))
    for line in lines if only is None else lines[only - 1 : only] if only > 0 else ():
        for op, transform in _TRANSFORMS.items():
            splices = transform(code, line)
            if splices is None:
                continue
            text = code.replace(splices)
            if text not in seen and compiles(text):
                seen.add(text)
                found[line, op] = text
    return MappingProxyType(found)


def compiles(source: str) -> bool:
    """True when ``source`` is a valid module; nothing is run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, "solution.py", "exec")
        except (SyntaxError, ValueError, RecursionError):
            return False
    return True


def apply(source: str, line: int, op: str) -> str | None:
    """Text of ``source`` after menu edit ``op`` on 1-based ``line``; None where the edit has no site."""
    return menu(source, only=line).get((line, op))


def applicable(source: str) -> list[tuple[int, str]]:
    """The edits of ``source`` as (1-based line, op), by line and then in menu order."""
    return list(menu(source))
