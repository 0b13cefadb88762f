"""Bug operators on statements: one that is missing, too early, or does the wrong thing."""

from __future__ import annotations

import libcst as cst

from verl_ext.gym.source_view import Changes, Path, Rule, SourceView, called, in_loop, parent

_LEAVING = (cst.Return, cst.Raise)


def _early_return(view: SourceView, path: Path) -> Changes:
    """The final ``return`` slips into the block above it; a ``continue`` ends the loop."""
    node = path[-1]
    if isinstance(node, cst.Continue):
        yield node, "break"
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Return):
        return
    block = path[-2].body if isinstance(path[-2], cst.IndentedBlock) else ()
    above = block[block.index(node) - 1] if node in block and block.index(node) else None
    if isinstance(above, cst.For | cst.While) or (isinstance(above, cst.If) and above.orelse is None):
        blanks = " " * (view.column(node) + len(view.module.default_indent))
        yield node, blanks + view.text(node.body[0])


def _missing_base_case(view: SourceView, path: Path) -> Changes:
    """A guard at the top level of a function, which returns or raises, is missing."""
    node = path[-1]
    if not isinstance(node, cst.If) or node.orelse is not None or not parent(path, cst.FunctionDef, 2):
        return
    last = node.body.body[-1] if isinstance(node.body, cst.IndentedBlock) else None
    if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _LEAVING):
        yield node, ""


def _wrong_accumulator(view: SourceView, path: Path) -> Changes:
    """A total is replaced where it should grow, or grows where it should be replaced; ``max`` for ``min``."""
    node = path[-1]
    if isinstance(node, cst.AddAssign):
        yield node, "="
    elif isinstance(node, cst.AssignEqual | cst.Assign):
        yield from _assignment(view, path)
    elif called(node, "max", "min") and isinstance(node, cst.Call):
        yield node.func, "min" if node.func.value == "max" else "max"


def _assignment(view: SourceView, path: Path) -> Changes:
    node = path[-1]
    if not isinstance(node, cst.Assign) or len(node.targets) != 1 or not in_loop(path):
        return
    target = node.targets[0].target
    if not isinstance(target, cst.Name) or target.value not in view.code.locals_at(view.line(node)):
        return
    yield node, f"{target.value} += {view.text(node.value)}"
    value = node.value
    if isinstance(value, cst.BinaryOperation) and isinstance(value.left, cst.Name) and value.left.value == target.value:
        yield value, view.text(value.right)


def _swallowed_exception(view: SourceView, path: Path) -> Changes:
    """An error that should reach the caller is dropped."""
    node = path[-1]
    if isinstance(node, cst.Raise):
        yield node, "return None"
        yield node, "pass"


RULES: dict[str, Rule] = {
    "early_return": _early_return,
    "missing_base_case": _missing_base_case,
    "wrong_accumulator": _wrong_accumulator,
    "swallowed_exception": _swallowed_exception,
}
