"""A parsed source, with what line edits and bug operators look up: nodes by line, operators, locals, byte offsets.

Positions are those of :mod:`ast`: 1-based lines, and columns that count UTF-8 bytes. Operators have no position in the
syntax tree; they are found in the text between their operands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

Splice = tuple[int, int, str]
"""Replace bytes ``start:end`` by text."""

_OPERATOR = re.compile(rb"not\s+in\b|is\s+not\b|in\b|is\b|and\b|or\b|//|\*\*|<<|>>|[<>=!]=|[-+*/%<>|&^@]")
_UNNAMED = frozenset({"self", "cls", "_"})


@dataclass(frozen=True)
class Operator:
    """An operator of a line: its bytes ``start:end`` in the source, and its text with single blanks."""

    start: int
    end: int
    text: str


class Code:
    """A parsed source.

    Attributes:
        lines: Nodes by 1-based line, in the order of the text, outer before inner.
        operators: Binary, boolean, comparison and augmented operators by line, in the order of the text.
        parents: The parent of each node.
        indexes: Variables that hold positions.

    Raises:
        SyntaxError: The source does not parse.
    """

    def __init__(self, source: str):
        self.bytes = source.encode()
        self.tree = ast.parse(source)
        self.starts = [0]
        for line in self.bytes.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.lines: dict[int, list[ast.AST]] = {}
        self.operators: dict[int, list[Operator]] = {}
        self._scopes: list[tuple[int, int, list[tuple[int, str]]]] = []
        nodes = list(ast.walk(self.tree))
        for node in nodes:
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if hasattr(node, "lineno"):
                self.lines.setdefault(node.lineno, []).append(node)
            if isinstance(node, ast.FunctionDef):
                self._scopes.append((node.lineno, node.end_lineno, _bindings(node)))
            for left, right in _gaps(node):
                self._find_operator(self.end(left), self.start(right))
        for found in self.lines.values():
            found.sort(key=lambda n: (n.col_offset, -self.end(n)))
        for found in self.operators.values():
            found.sort(key=lambda o: o.start)
        self.indexes = _index_names(nodes)

    def _find_operator(self, start: int, end: int) -> None:
        if match := _OPERATOR.search(self.bytes, start, end):
            line = self.bytes.count(b"\n", 0, match.start()) + 1
            text = " ".join(match.group().decode().split())
            self.operators.setdefault(line, []).append(Operator(match.start(), match.end(), text))

    def start(self, node: ast.AST) -> int:
        """Offset of the node's first byte."""
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.AST) -> int:
        """Offset after the node's last byte."""
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        """The node as it is written."""
        return self.bytes[self.start(node) : self.end(node)].decode()

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parent, its parent, and so on."""
        while (node := self.parents.get(node)) is not None:
            yield node

    def locals_at(self, line: int) -> list[str]:
        """Parameters and variables of the innermost function around ``line`` bound above it, in order of binding."""
        around = [s for s in self._scopes if s[0] < line <= s[1]]
        if not around:
            return []
        bindings = max(around, key=lambda s: s[0])[2]
        return list(dict.fromkeys(name for bound, name in bindings if bound < line))

    def replace(self, splices: list[Splice]) -> str:
        """The source with some bytes replaced; the splices must not overlap."""
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


def _bindings(scope: ast.FunctionDef) -> list[tuple[int, str]]:
    """Names bound in a function with their line, without those that live in a comprehension only."""
    args = scope.args
    found = [
        (scope.lineno, a.arg) for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a
    ]
    parameters = {name for _, name in found}
    stores, hidden = [], set(_UNNAMED)
    for node in ast.walk(scope):
        if isinstance(node, ast.comprehension):
            hidden |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)} - parameters
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores.append((node.lineno, node.col_offset, node.id))
    found += [(line, name) for line, _, name in sorted(stores)]
    return [(line, name) for line, name in found if name not in hidden]


def _index_names(nodes: list[ast.AST]) -> frozenset[str]:
    """Variables that hold positions: subscript indices, slice bounds and counters of ``range`` and ``enumerate``."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Subscript):
            parts = [node.slice]
            if isinstance(node.slice, ast.Slice):
                parts = [p for p in (node.slice.lower, node.slice.upper) if p]
            found |= {n.id for p in parts for n in ast.walk(p) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            counter = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
            if getattr(node.iter.func, "id", "") in ("range", "enumerate") and isinstance(counter, ast.Name):
                found.add(counter.id)
    return frozenset(found)
