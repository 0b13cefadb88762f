"""A source as bug operators see it: the lossless tree, positions, and replacing one node's text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from verl_ext.gym.code import Code

Path = tuple[cst.CSTNode, ...]
"""A node with its ancestors: the module first, the node last."""

Changes = Iterator[tuple[cst.CSTNode, str]]
"""Nodes, each with the text that replaces it."""

ARITHMETIC = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide, cst.FloorDivide, cst.Modulo, cst.Power)
ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)


class SourceView:
    """A parsed source.

    Attributes:
        module: The ``libcst`` tree.
        code: The same source for :mod:`ast`: locals, index variables.
        numeric: Variables that are assigned a number somewhere.
    """

    def __init__(self, source: str):
        self.source = source
        wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
        self.module = wrapper.module
        self._positions = wrapper.resolve(PositionProvider)
        self._lines = source.splitlines(keepends=True)
        self._offsets = [0]
        for line in self._lines:
            self._offsets.append(self._offsets[-1] + len(line))
        self.code = Code(source)
        self.numeric = frozenset(
            target.id
            for node in ast.walk(self.code.tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            if type(node.value.value) is int
            for target in node.targets
            if isinstance(target, ast.Name)
        )
        self._reads = {
            (node.lineno, self.code.bytes[self.code.starts[line - 1] : self.code.start(node)].decode())
            for line, nodes in self.code.lines.items()
            for node in nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }

    def text(self, node: cst.CSTNode) -> str:
        """The node as it is written, with its parentheses."""
        return self.module.code_for_node(node)

    def line(self, node: cst.CSTNode) -> int:
        """1-based line of the node's first character."""
        return self._positions[node].start.line

    def column(self, node: cst.CSTNode) -> int:
        """0-based column of the node's first character."""
        return self._positions[node].start.column

    def exchanged(self, node: cst.CSTNode, a: cst.CSTNode, b: cst.CSTNode) -> str:
        """Text of ``node`` with its parts ``a`` and, further on, ``b`` in each other's place."""
        (start, end), (a0, a1), (b0, b1) = self._span(node), self._span(a), self._span(b)
        s = self.source
        return s[start:a0] + s[b0:b1] + s[a1:b0] + s[a0:a1] + s[b1:end]

    def _span(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self._positions[node]
        return self._offsets[span.start.line - 1] + span.start.column, self._offsets[
            span.end.line - 1
        ] + span.end.column

    def others(self, name: cst.Name) -> list[str]:
        """For a local that is read: the other locals that could stand in its place; else nothing."""
        line, column = self.line(name), self.column(name)
        if (line, self._lines[line - 1][:column]) not in self._reads:
            return []
        names = self.code.locals_at(line)
        return [n for n in names if n != name.value] if name.value in names else []

    def replaced(self, node: cst.CSTNode, text: str) -> tuple[str, int]:
        """The source with one node's text replaced, and the line of the change.

        A statement is replaced by whole lines, and removed by an empty text.
        """
        span = self._positions[node]
        first, last = span.start.line - 1, span.end.line - 1
        if isinstance(node, STATEMENTS):
            if span.end.column == 0:
                last -= 1
            lines = [text + "\n"] if text else []
            return "".join(self._lines[:first] + lines + self._lines[last + 1 :]), first + 1
        start, end = self._span(node)
        return self.source[:start] + text + self.source[end:], first + 1


Rule = Callable[[SourceView, Path], Changes]
"""A bug operator: the changes it makes to the last node of a path."""


def integer(node: cst.CSTNode | None) -> int | None:
    """Value of an integer literal, also a negative one; None for everything else."""
    if isinstance(node, cst.Integer):
        return int(node.value, 0)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        value = integer(node.expression)
        return None if value is None else -value
    return None


def shifted(view: SourceView, node: cst.BaseExpression, delta: int) -> str | None:
    """Text of an integer expression plus ``delta``, ``x + 1`` minus 1 being ``x``; None where it needs parentheses."""
    value = integer(node)
    if value is not None:
        return str(value + delta)
    if isinstance(node, cst.BinaryOperation) and not isinstance(node.operator, ARITHMETIC):
        return None
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract) and not node.lpar:
        right = integer(node.right)
        if right is not None:
            total = (right if isinstance(node.operator, cst.Add) else -right) + delta
            left = view.text(node.left)
            return f"{left} {'+' if total > 0 else '-'} {abs(total)}" if total else left
    if isinstance(node, (*ATOMS, cst.BinaryOperation)):
        return f"{view.text(node)} {'+' if delta > 0 else '-'} {abs(delta)}"
    return None


def called(node: cst.CSTNode, *names: str) -> bool:
    """True for a call of one of the plain functions ``names``."""
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in names


def parent(path: Path, kind: type | tuple[type, ...], steps: int = 1) -> bool:
    """True when the ancestor ``steps`` above the last node is of ``kind``."""
    return len(path) > steps and isinstance(path[-1 - steps], kind)


def in_loop(path: Path) -> bool:
    """True inside a loop of the innermost function."""
    for node in reversed(path[:-1]):
        if isinstance(node, cst.For | cst.While):
            return True
        if isinstance(node, cst.FunctionDef):
            return False
    return False
