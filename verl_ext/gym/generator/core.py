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


@dataclass(frozen=True)
class Constants:
    """Constants of a program, as literals or lifted into parameters with defaults.

    Attributes:
        params: What follows the first parameter, ``""`` or ``", low=2, high=9"``.
        text: Name to how the body refers to it.
        args: Draws further arguments: none in most cases, so that a wrong default shows.
    """

    params: str
    text: dict[str, str]
    args: Callable[[random.Random], tuple[int, ...]]

    @property
    def issue(self) -> str:
        """A half sentence for the issue when there are parameters to be left out."""
        return " (unless given otherwise)" if self.params else ""


def constants(rng: random.Random, **values: int) -> Constants:
    """Lifts the named constants into default parameters one time in three."""
    if rng.random() < 0.67:
        return Constants("", {name: str(value) for name, value in values.items()}, lambda _: ())

    def args(case_rng: random.Random) -> tuple[int, ...]:
        if case_rng.random() < 0.7:
            return ()
        shift = case_rng.choice((0, 1, 2))
        return tuple(value + shift for value in values.values())

    return Constants("".join(f", {k}={v}" for k, v in values.items()), {k: k for k in values}, args)
