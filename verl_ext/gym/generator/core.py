"""Drafts, their rendering, and the register of templates.

A template is a function ``(rng) -> Draft``. Bodies are nested lists: a string is a line, a list is the indented block
under the line before it; so templates compose blocks without counting spaces. :func:`make` turns a draft into a
:class:`~verl_ext.gym.program.Program`; the register keeps templates in the order in which they were defined.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from verl_ext.gym.program import Program
from verl_ext.types import Case

Block = list  # of str and Block


@dataclass(frozen=True)
class Draft:
    """A program before rendering.

    Attributes:
        name: Function name; states the intent in full, constants included.
        params: Parameter list as written, e.g. ``"values, limit=3"``.
        body: Nested lines of the function.
        issue: One sentence, the same intent in words.
        args: Draws the positional arguments of one case.
    """

    name: str
    params: str
    body: Block
    issue: str
    args: Callable[[random.Random], tuple[Any, ...]]


Template = Callable[[random.Random], Draft]
REGISTER: dict[str, tuple[str, Template]] = {}


def template(family: str) -> Callable[[Template], Template]:
    """Registers the function under its own name, with the family that its programs carry."""

    def register(function: Template) -> Template:
        REGISTER[function.__name__] = (family, function)
        return function

    return register


def render(block: Block, depth: int = 0) -> list[str]:
    """Lines of a nested block, four spaces a level."""
    lines: list[str] = []
    for entry in block:
        if isinstance(entry, str):
            lines.append("    " * depth + entry)
        else:
            lines.extend(render(entry, depth + 1))
    return lines


def make(name: str, rng: random.Random) -> Program:
    """Draws one program from the template called ``name``."""
    family, function = REGISTER[name]
    draft = function(rng)
    source = "\n".join(render([f"def {draft.name}({draft.params}):", draft.body])) + "\n"
    return Program(
        name=draft.name,
        family=family,
        source=source,
        issue=draft.issue,
        inputs=lambda case_rng: Case(call=draft.name, args=draft.args(case_rng)),
        template=name,
    )


def add(rng: random.Random, target: str, operator: str, amount: str) -> str:
    """``total += x`` or ``total = total + x``; both spellings are common enough to be learned."""
    if rng.random() < 0.75:
        return f"{target} {operator}= {amount}"
    return f"{target} = {target} {operator} {amount}"


def keep_if(rng: random.Random, test: str, anti: str, body: Block) -> Block:
    """The body under ``if test``, or after a guard ``if anti: continue``; only inside a loop."""
    if rng.random() < 0.7:
        return [f"if {test}:", body]
    return [f"if {anti}:", ["continue"], *body]


def each(rng: random.Random, sequence: str, item: str, body: Callable[[str], Block]) -> Block:
    """A loop over a sequence: ``for``, ``for`` over indices, or ``while``; ``body`` gets the element's expression."""
    style = rng.random()
    if style < 0.65:
        return [f"for {item} in {sequence}:", body(item)]
    index = rng.choice(("i", "index"))
    if style < 0.85:
        return [f"for {index} in range(len({sequence})):", body(f"{sequence}[{index}]")]
    step = [f"{item} = {sequence}[{index}]", add(rng, index, "+", "1")]
    return [f"{index} = 0", f"while {index} < len({sequence}):", [*step, *body(item)]]


def shuffled(rng: random.Random, lines: Sequence[str]) -> list[str]:
    """Independent statements in some order."""
    return rng.sample(lines, len(lines))
