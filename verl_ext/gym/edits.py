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
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

Splice = tuple[int, int, str]
"""Replace bytes ``start:end`` by text."""

_STRICT = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_EQUAL = {"==": "!=", "!=": "=="}
_MEMBER = {"in": "not in", "not in": "in", "is": "is not", "is not": "is"}
_ARITH = {"+": "-", "-": "+", "*": "//", "//": "*", "/": "*"}
_DIVISION = {"//": "%", "%": "//", "/": "//"}
_BOOLEAN = {"and": "or", "or": "and"}
_OPERATOR = re.compile(rb"not\s+in\b|is\s+not\b|in\b|is\b|and\b|or\b|//|\*\*|<<|>>|[<>=!]=|[-+*/%<>|&^@]")
_NUMERIC_CALLS = frozenset({"len", "sum", "abs", "int", "ord"})
_SYMMETRIC_CALLS = frozenset({"min", "max", "isinstance"})
_SUMMABLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_LOW = (ast.Add, ast.Sub)
_ARITHMETIC = (*_LOW, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_LOOPS = (ast.For, ast.While)


@dataclass(frozen=True)
class _Op:
    """An operator token of a line: where it stands and what it is."""

    start: int
    end: int
    text: str


class _Code:
    """A parsed source with what the transforms look up: nodes by line, parents, byte offsets."""

    def __init__(self, source: str):
        self.source = source
        self.bytes = source.encode()
        self.tree = ast.parse(source)
        self.starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.parents: dict[ast.AST, ast.AST] = {}
        self.lines: dict[int, list[ast.AST]] = {}
        self.operators: dict[int, list[_Op]] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if hasattr(node, "lineno"):
                self.lines.setdefault(node.lineno, []).append(node)
            for left, right in _gaps(node):
                self._operator(self.end(left), self.start(right))
        for nodes in self.lines.values():
            nodes.sort(key=lambda n: (n.col_offset, -self.end(n)))
        for operators in self.operators.values():
            operators.sort(key=lambda o: o.start)
        self.indexes = _index_names(self.tree)

    def _operator(self, start: int, end: int) -> None:
        if match := _OPERATOR.search(self.bytes, start, end):
            line = self.bytes.count(b"\n", 0, match.start()) + 1
            text = " ".join(match.group().decode().split())
            self.operators.setdefault(line, []).append(_Op(match.start(), match.end(), text))

    def start(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        return self.bytes[self.start(node) : self.end(node)].decode()

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while (node := self.parents.get(node)) is not None:
            yield node

    def replace(self, splices: list[Splice]) -> str:
        out = self.bytes
        for start, end, text in sorted(splices, reverse=True):
            out = out[:start] + text.encode() + out[end:]
        return out.decode()


def _gaps(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Pairs of operands with an operator between them."""
    match node:
        case ast.Compare():
            yield from zip((node.left, *node.comparators), node.comparators, strict=False)
        case ast.BinOp():
            yield node.left, node.right
        case ast.BoolOp():
            yield from zip(node.values, node.values[1:], strict=False)
        case ast.AugAssign():
            yield node.target, node.value


def _index_names(tree: ast.AST) -> frozenset[str]:
    """Variables that hold positions: subscript indices and targets of loops over ``range``."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            parts = [node.slice]
            if isinstance(node.slice, ast.Slice):
                parts = [p for p in (node.slice.lower, node.slice.upper) if p]
            found |= {n.id for p in parts for n in ast.walk(p) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.For) and _calls(node.iter, {"range"}) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return frozenset(found)


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


def _token(table: dict[str, str]) -> Callable[[_Code, int], list[Splice] | None]:
    """Transform of the first operator of a line that stands in ``table``."""

    def transform(code: _Code, line: int) -> list[Splice] | None:
        for op in code.operators.get(line, ()):
            if op.text in table:
                return [(op.start, op.end, table[op.text])]
        return None

    return transform


def _negate(code: _Code, line: int) -> list[Splice] | None:
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


def _is_condition(code: _Code, node: ast.AST) -> bool:
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


def _shift(delta: int) -> Callable[[_Code, int], list[Splice] | None]:
    """Transform that adds ``delta`` to the last bound, index or number of a line."""

    def transform(code: _Code, line: int) -> list[Splice] | None:
        target = bound(code, line)
        return None if target is None else [(code.start(target), code.end(target), shifted(code, target, delta))]

    return transform


def bound(code: _Code, line: int) -> ast.AST | None:
    """The expression that ``plus_one`` and ``minus_one`` change: the last, outermost bound, index or number."""
    found: list[ast.AST] = []
    for node in code.lines.get(line, ()):
        if found and code.start(node) < code.end(found[-1]) and not isinstance(code.parents[node], ast.Subscript):
            continue
        if _is_bound(code, node):
            found.append(node)
    return found[-1] if found else None


def _is_bound(code: _Code, node: ast.AST) -> bool:
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


def shifted(code: _Code, node: ast.AST, delta: int) -> str:
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


def _constant(code: _Code, line: int) -> list[Splice] | None:
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


def _variable(code: _Code, line: int) -> list[Splice] | None:
    """The last variable read on a line, to the next local in the order of their first binding."""
    for node in reversed(code.lines.get(line, ())):
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            continue
        parent = code.parents[node]
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and node is parent.func):
            continue
        names = locals_before(code, node)
        if node.id in names and len(names) > 1:
            following = names[(names.index(node.id) + 1) % len(names)]
            return [(code.start(node), code.end(node), following)]
    return None


def locals_before(code: _Code, node: ast.AST) -> list[str]:
    """Parameters and locals of the innermost function, bound above the line of ``node``, in order of binding."""
    scope = next((a for a in code.ancestors(node) if isinstance(a, ast.FunctionDef)), None)
    if scope is None:
        return []
    args = scope.args
    found = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a]
    hidden = {"self", "cls", "_"}
    for inner in ast.walk(scope):
        if isinstance(inner, ast.comprehension):
            hidden |= {n.id for n in ast.walk(inner.target) if isinstance(n, ast.Name)} - set(found)
    stores = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    for name in sorted(stores, key=code.start):
        if name.lineno < node.lineno and name.id not in found:
            found.append(name.id)
    return [n for n in found if n not in hidden]


def _swap(code: _Code, line: int) -> list[Splice] | None:
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


def _exchange(code: _Code, a: ast.AST, b: ast.AST) -> list[Splice]:
    return [(code.start(a), code.end(a), code.text(b)), (code.start(b), code.end(b), code.text(a))]


# --- statements --------------------------------------------------------------------------------------------------


def _accumulate(code: _Code, line: int) -> list[Splice] | None:
    """``total += x`` to ``total = x``; inside a loop also back."""
    for node in code.lines.get(line, ()):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            op = code.operators[line][0]
            return [(op.start, op.end + 1, "=")]
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            looped = any(isinstance(a, _LOOPS) for a in code.ancestors(node))
            if looped and node.targets[0].id in locals_before(code, node):
                start = code.end(node.targets[0])
                equals = code.bytes.index(b"=", start)
                return [(equals, equals + 1, "+=")]
    return None


def _dedent(code: _Code, line: int) -> list[Splice] | None:
    """A ``return`` that ends a longer block moves out of it, by one level."""
    for node in code.lines.get(line, ()):
        if isinstance(node, ast.Return) and node.end_lineno == line:
            parent = code.parents[node]
            body = next((b for b in (getattr(parent, "body", []), getattr(parent, "orelse", [])) if node in b), [])
            if isinstance(parent, ast.For | ast.While | ast.If) and len(body) > 1 and node is body[-1]:
                return [(code.starts[line - 1], code.start(node), " " * parent.col_offset)]
    return None


_TRANSFORMS: dict[str, Callable[[_Code, int], list[Splice] | None]] = {
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
def menu(source: str) -> dict[tuple[int, str], str]:
    """Every edit of ``source``: (1-based line, op) to the text that it gives.

    Edits that leave the text as it is or do not compile are left out; of two with one outcome the first in the order of
    :data:`OPS` stays. A source that does not compile has an empty menu.
    """
    try:
        code = _Code(source)
    except (SyntaxError, ValueError):
        return {}
    found: dict[tuple[int, str], str] = {}
    seen = {source}
    for line in range(1, len(code.starts)):
        for op, transform in _TRANSFORMS.items():
            splices = transform(code, line)
            if splices is None:
                continue
            text = code.replace(splices)
            if text not in seen and compiles(text):
                seen.add(text)
                found[line, op] = text
    return found


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
    return menu(source).get((line, op))


def applicable(source: str) -> list[tuple[int, str]]:
    """The edits of ``source`` as (1-based line, op), by line and then in menu order."""
    return list(menu(source))
