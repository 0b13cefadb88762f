"""Bug operators: each makes one-place changes to correct code, the way people get it wrong.

``libcst`` parses without losing a blank, so a mutant differs from its source in one place and nowhere else. The rules
stand in :mod:`verl_ext.gym.bugs` (expressions) and :mod:`verl_ext.gym.bugs_statements`; here is what they share:
walking a source once in the order of the text and turning each change into a mutant. Whether a mutant is a bug is for
the tests to say, when :mod:`verl_ext.gym.build` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from verl_ext.gym import bugs, bugs_statements
from verl_ext.gym.edits import compiles, menu
from verl_ext.gym.source_view import Path, Rule, SourceView
from verl_ext.types import BadInput

_RULES: dict[str, Rule] = {**bugs.RULES, **bugs_statements.RULES}
OPERATORS: tuple[str, ...] = tuple(_RULES)
"""Names of the bug operators; a task's ``bug_type`` is one of them."""


@dataclass(frozen=True)
class Mutant:
    """A source with one bug: its text, the 1-based line that changed (the line below, for a removed block)."""

    source: str
    line: int
    operator: str


def mutants(source: str, operator: str) -> list[Mutant]:
    """Every mutant of ``source`` by one operator, in the order of the text; each compiles and no two are the same.

    Raises:
        BadInput: Unknown operator, or a source that does not parse.
    """
    if operator not in _RULES:
        raise BadInput(f"unknown bug operator {operator!r}; choose from {', '.join(OPERATORS)}")
    view, paths = _parsed(source)
    found: dict[str, Mutant] = {}
    for path in paths:
        for node, text in _RULES[operator](view, path):
            mutated, line = view.replaced(node, text)
            if mutated != source and mutated not in found and compiles(mutated):
                found[mutated] = Mutant(mutated, line, operator)
    return list(found.values())


@lru_cache(maxsize=16)
def _parsed(source: str) -> tuple[SourceView, list[Path]]:
    try:
        view = SourceView(source)
    except (cst.ParserSyntaxError, SyntaxError) as error:
        raise BadInput(f"cannot mutate a source that does not parse: {error}") from None
    return view, list(_walk(view.module, ()))


def _walk(node: cst.CSTNode, above: Path) -> Iterator[Path]:
    """Every node as its path from the module, in the order of the text."""
    path = (*above, node)
    yield path
    for child in node.children:
        yield from _walk(child, path)


def repair_edits(buggy: str, gold: str) -> list[tuple[int, str]]:
    """Menu edits (1-based line, op) that turn ``buggy`` into exactly ``gold``: none or one, see :func:`edits.menu`."""
    before, after = buggy.splitlines(), gold.splitlines()
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=False), 1) if a != b]
    if len(before) != len(after) or len(changed) != 1:
        return []
    return [(line, op) for (line, op), text in menu(buggy, changed[0]).items() if text == gold]
