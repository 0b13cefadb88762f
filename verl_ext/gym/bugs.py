"""Bug operators on expressions: a wrong token, name, number or order.

Each rule looks at one node, given with its ancestors, and yields every change it would make there.
"""

from __future__ import annotations

from itertools import pairwise

import libcst as cst

from verl_ext.gym.source_view import (
    ATOMS,
    Changes,
    Path,
    Rule,
    SourceView,
    called,
    in_loop,
    integer,
    parent,
    shifted,
)

_STRICTNESS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_DIRECTION = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_ARITHMETIC = {"+": "-", "-": "+", "*": "// /", "//": "* % /", "/": "* //", "%": "//"}
_NEGATION = {"==": "!=", "!=": "==", "in": "not in", "not in": "in", "is": "is not", "is not": "is"}
_ORDERED = (cst.Subtract, cst.Divide, cst.FloorDivide, cst.Modulo)
_BOOLEANS = {"True": "False", "False": "True"}
_ORDERINGS = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual, cst.Equal, cst.NotEqual)


def _token(view: SourceView, node: cst.CSTNode) -> str:
    return " ".join(view.text(node).split())


def _comparison(table: dict[str, str]) -> Rule:
    def rule(view: SourceView, path: Path) -> Changes:
        if isinstance(path[-1], cst.BaseCompOp) and (new := table.get(_token(view, path[-1]))):
            yield path[-1], new

    return rule


def _off_by_one(view: SourceView, path: Path) -> Changes:
    """A bound, an index or a step is one too large or too small."""
    node = path[-1]
    if not isinstance(node, cst.BaseExpression) or isinstance(node, cst.SimpleString):
        return
    if any(isinstance(n, cst.Slice) for n in path):  # a held-out operator's ground
        return
    argument = parent(path, cst.Arg) and called(path[-3], "range") and path[-2] not in path[-3].args[2:]
    index = parent(path, cst.Index)
    bound = parent(path, cst.ComparisonTarget) and isinstance(path[-2].operator, _ORDERINGS)
    step = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract)
    step = step and (integer(node.right) is not None or isinstance(node.operator, cst.Subtract))
    if argument or index or bound or step:
        for delta in (1, -1):
            if text := shifted(view, node, delta):
                yield node, text


def _arithmetic_swap(view: SourceView, path: Path) -> Changes:
    """``+`` for ``-``, ``//`` for ``/``, and the like, also in ``+=``."""
    node = path[-1]
    if isinstance(node, cst.BaseBinaryOp):
        for new in _ARITHMETIC.get(_token(view, node), "").split():
            yield node, new
    elif isinstance(node, cst.BaseAugOp):
        for new in _ARITHMETIC.get(_token(view, node)[:-1], "").split():
            yield node, new + "="


def _boolean_swap(view: SourceView, path: Path) -> Changes:
    if isinstance(path[-1], cst.And):
        yield path[-1], "or"
    elif isinstance(path[-1], cst.Or):
        yield path[-1], "and"


def _missing_negation(view: SourceView, path: Path) -> Changes:
    """A ``not`` or the ``!`` of ``!=`` is missing, or one too many."""
    node = path[-1]
    if isinstance(node, cst.BaseCompOp):
        yield from _comparison(_NEGATION)(view, path)
    elif isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        yield node, view.text(node.expression)
    elif isinstance(node, ATOMS) and _is_condition(path):
        yield node, f"not {view.text(node)}"


def _is_condition(path: Path) -> bool:
    node, above = path[-1], path[-2]
    if isinstance(above, cst.If | cst.While | cst.IfExp | cst.CompIf):
        return node is above.test
    return isinstance(above, cst.BooleanOperation)


def _wrong_variable(view: SourceView, path: Path) -> Changes:
    """Another local is read; what is returned as it is belongs to ``wrong_return``."""
    node = path[-1]
    if not isinstance(node, cst.Name) or parent(path, (cst.Attribute, cst.Return)):
        return
    if parent(path, cst.Call) and node is path[-2].func:
        return
    for name in view.others(node):
        yield node, name


def _wrong_initial_value(view: SourceView, path: Path) -> Changes:
    """A variable starts, outside every loop, with the wrong value."""
    node = path[-1]
    if isinstance(node, cst.Assign) and not in_loop(path):
        values = [node.value]
        if isinstance(node.value, cst.Tuple):
            values = [e.value for e in node.value.elements]
        for value in values:
            for text in _other_constants(view, value):
                yield value, text


def _other_constants(view: SourceView, node: cst.BaseExpression) -> list[str]:
    """Plausible wrong values in the place of a constant; nothing for other expressions."""
    text, value = view.text(node), integer(node)
    if value is not None:
        return {0: ["1"], 1: ["0"], -1: ["0"]}.get(value, [str(value + 1), str(value - 1)])
    if text in _BOOLEANS:
        return [_BOOLEANS[text]]
    if called(node, "float") and "inf" in text:
        return [text.replace("-inf", "inf") if "-inf" in text else text.replace("inf", "-inf")]
    if isinstance(node, cst.Subscript) and text.endswith("[0]"):
        return [text[:-3] + "[1]", "0"]
    return {"None": ["0"], "[]": ["[0]"], '""': ['" "'], "''": ["' '"]}.get(text, [])


def _wrong_default(view: SourceView, path: Path) -> Changes:
    """A parameter, or a look-up with ``get``, has the wrong default."""
    node = path[-1]
    if isinstance(node, cst.Param) and node.default is not None:
        default = node.default
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and len(node.args) == 2:
        if node.func.attr.value not in ("get", "pop", "setdefault"):
            return
        default = node.args[1].value
    else:
        return
    for text in _other_constants(view, default):
        yield default, text


def _wrong_return(view: SourceView, path: Path) -> Changes:
    """The wrong thing is returned: another local, the opposite, one more, or nothing."""
    node = path[-1]
    if not isinstance(node, cst.Return) or node.value is None:
        return
    value = node.value
    for text in _other_constants(view, value):
        yield value, text
    if isinstance(value, cst.Name):
        for name in view.others(value):
            yield value, name
        if value.value in view.numeric | view.code.indexes:
            yield value, f"{value.value} + 1"
            yield value, f"{value.value} - 1"
    elif called(value, "len", "sum"):
        yield value, f"{view.text(value)} - 1"
    elif called(value, "any", "all"):
        yield value, f"not {view.text(value)}"
    elif isinstance(value, cst.Tuple) and len(value.elements) == 2:
        yield value, view.text(value.elements[0].value)
    if not isinstance(value, cst.Integer | cst.UnaryOperation) and view.text(value) != "None":
        yield value, "None"


def _swapped_arguments(view: SourceView, path: Path) -> Changes:
    """Two arguments, operands or members of a pair stand in the wrong order."""
    node = path[-1]
    if isinstance(node, cst.Call) and not called(node, "min", "max", "isinstance"):
        plain = [a.value for a in node.args if a.keyword is None and not a.star]
        for a, b in pairwise(plain):
            yield node, view.exchanged(node, a, b)
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, _ORDERED):
        if isinstance(node.left, ATOMS) and isinstance(node.right, ATOMS):
            yield node, view.exchanged(node, node.left, node.right)
    elif isinstance(node, cst.Tuple) and len(node.elements) == 2 and _is_value(path):
        yield node, view.exchanged(node, node.elements[0].value, node.elements[1].value)


def _is_value(path: Path) -> bool:
    """Returned or assigned, not a target."""
    return parent(path, (cst.Return, cst.Assign)) and path[-1] is path[-2].value


def _wrong_slice(view: SourceView, path: Path) -> Changes:
    """A slice starts or ends one off, takes the other side, or loses a bound or its step."""
    node = path[-1]
    if not isinstance(node, cst.Slice):
        return
    for bound in (node.lower, node.upper):
        if bound is not None:
            for delta in (1, -1):
                if text := shifted(view, bound, delta):
                    yield bound, text
    lower, upper = (view.text(b) if b is not None else "" for b in (node.lower, node.upper))
    if node.step is not None:
        yield node, f"{lower}:{upper}"
    elif bool(lower) != bool(upper):
        yield node, f"{upper}:{lower}"
    elif lower:
        yield node, f"{lower}:"
        yield node, f":{upper}"


RULES: dict[str, Rule] = {
    "comparison_strictness": _comparison(_STRICTNESS),
    "comparison_direction": _comparison(_DIRECTION),
    "off_by_one": _off_by_one,
    "arithmetic_swap": _arithmetic_swap,
    "boolean_swap": _boolean_swap,
    "missing_negation": _missing_negation,
    "wrong_variable": _wrong_variable,
    "wrong_initial_value": _wrong_initial_value,
    "wrong_default": _wrong_default,
    "wrong_return": _wrong_return,
    "swapped_arguments": _swapped_arguments,
    "wrong_slice": _wrong_slice,
}
