"""Inputs: short, close to the constants of the program, often empty, single, tied or negative.

A strictness or off-by-one bug shows only at the boundary, so most elements are drawn within one of an edge.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any


def integer(rng: random.Random, edges: Sequence[int] = (0,), low: int = -6, high: int = 12) -> int:
    """An edge or its neighbour six times in ten, else anything in [low, high]."""
    if rng.random() < 0.6:
        return rng.choice(edges) + rng.choice((-1, 0, 0, 1))
    return rng.randint(low, high)


def length(rng: random.Random, longest: int = 7) -> int:
    """0 or 1 in a quarter of the draws."""
    return rng.choice((0, 1)) if rng.random() < 0.25 else rng.randint(2, longest)


def integers(
    rng: random.Random, edges: Sequence[int] = (0,), low: int = -6, high: int = 12, longest: int = 7, shortest: int = 0
) -> list[int]:
    """A list; in three of ten an element is repeated, sometimes by itself beside it."""
    values = [integer(rng, edges, low, high) for _ in range(max(shortest, length(rng, longest)))]
    if len(values) > 1 and rng.random() < 0.3:
        values[rng.randrange(len(values))] = rng.choice(values)
    return values


def word(rng: random.Random, alphabet: str = "abcx", longest: int = 6) -> str:
    """A string over a small alphabet, so that letters repeat."""
    return "".join(rng.choice(alphabet) for _ in range(length(rng, longest)))


def words(rng: random.Random, longest: int = 6, alphabet: str = "abcx", letters: int = 6) -> list[str]:
    """A list of strings, ties in length frequent."""
    return [word(rng, alphabet, letters) for _ in range(length(rng, longest))]


def matrix(rng: random.Random, edges: Sequence[int] = (0,), square: bool = False) -> list[list[int]]:
    """Rows of equal length, 1 to 4 by 1 to 4."""
    rows = rng.randint(1, 4)
    columns = rows if square else rng.randint(1, 4)
    return [[integer(rng, edges) for _ in range(columns)] for _ in range(rows)]


def one(draw: Callable[[random.Random], Any]) -> Callable[[random.Random], tuple[Any]]:
    """The argument drawer of a function of one parameter."""
    return lambda rng: (draw(rng),)
