"""A correct program and the inputs that test it: what every task of the synthetic gym is made from.

A program knows its source, its intent in words and how to draw one test input. Expected values are never written by
hand: they come from running the reference. So a draw only has to be *telling*: small numbers, many ties, empty and
one-element sequences and values on either side of every limit, because that is where one-token bugs show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from verl_ext.types import Case, Compare

T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """A reference function or class with its intent and its input generator.

    Attributes:
        name: Unique; also the name of the function or class in ``source``.
        family: What kind of code it is: ``numeric``, ``strings``, ``graphs``, ...
        source: Full text of ``solution.py``.
        issue: The intent in one or two sentences.
        inputs: Draws one case without an expected value, deterministic by the state of the generator it is given.
        template: Name of the template that made it, ``""`` for a hand-written program.
        compare: How results are compared, see :class:`~verl_ext.types.Case`.
    """

    name: str
    family: str
    source: str
    issue: str
    inputs: Callable[[Random], Case]
    template: str = ""
    compare: Compare = "exact"


def function(name: str, family: str, issue: str, args: Callable[[Random], tuple[Any, ...]], source: str) -> Program:
    """A hand-written function; ``args`` draws its positional arguments."""
    return Program(name, family, source.lstrip("\n"), issue, lambda rng: Case(name, args(rng)))


def stateful(
    name: str,
    family: str,
    issue: str,
    args: Callable[[Random], tuple[Any, ...]],
    steps: Callable[[Random], Sequence[tuple[str, tuple[Any, ...]]]],
    source: str,
) -> Program:
    """A hand-written class; ``args`` draws its constructor's arguments, ``steps`` the calls made on it."""
    return Program(name, family, source.lstrip("\n"), issue, lambda rng: Case(name, args(rng), then=tuple(steps(rng))))


def size(rng: Random, most: int = 7, least: int = 0) -> int:
    """A length in ``least..most``; the two shortest, where edge cases live, come up more often than the others."""
    if rng.random() < 0.15:
        return rng.randint(least, min(least + 1, most))
    return rng.randint(least, most)


def ints(rng: Random, low: int = -4, high: int = 9, most: int = 7, least: int = 0) -> list[int]:
    """A short list of integers in ``low..high``; one list in four draws from three values only, so it has ties."""
    pool = [rng.randint(low, high) for _ in range(3)] if rng.random() < 0.25 else range(low, high + 1)
    return [rng.choice(pool) for _ in range(size(rng, most, least))]


def ordered(rng: Random, low: int = -4, high: int = 9, most: int = 7, least: int = 0) -> list[int]:
    """An ascending list, with ties."""
    return sorted(ints(rng, low, high, most, least))


def near(rng: Random, *values: int) -> int:
    """One of ``values``, or the integer just below or above it."""
    return rng.choice(values) + rng.choice((-1, 0, 0, 1))


def word(rng: Random, letters: str = "abcde", most: int = 7, least: int = 0) -> str:
    """A short string over ``letters``."""
    return "".join(rng.choice(letters) for _ in range(size(rng, most, least)))


def words(rng: Random, letters: str = "abc", most: int = 5, least: int = 0, longest: int = 4) -> list[str]:
    """A short list of short, non-empty words."""
    return [word(rng, letters, longest, 1) for _ in range(size(rng, most, least))]


def several(rng: Random, draw: Callable[[Random], T], most: int = 7, least: int = 0) -> list[T]:
    """A short list of whatever ``draw`` gives."""
    return [draw(rng) for _ in range(size(rng, most, least))]


def calls(
    *choices: tuple[Any, ...], most: int = 8, least: int = 2
) -> Callable[[Random], list[tuple[str, tuple[Any, ...]]]]:
    """A draw of a sequence of method calls; a choice is a method's name and one draw for each of its arguments."""

    def draw(rng: Random) -> list[tuple[str, tuple[Any, ...]]]:
        steps = rng.choices(choices, k=rng.randint(least, most))
        return [(name, tuple(arg(rng) for arg in args)) for name, *args in steps]

    return draw
