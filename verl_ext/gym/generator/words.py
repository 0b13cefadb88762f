"""The small vocabulary of names: few words, used the same way everywhere, so that their statistics can be learned."""

from __future__ import annotations

import random

PLURALS = {
    "values": "value",
    "numbers": "number",
    "items": "item",
    "scores": "score",
    "prices": "price",
    "sizes": "size",
}
STRINGS = {"words": "word", "names": "name", "lines": "line"}
TEXTS = ("text", "word", "line", "name")
ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def noun(rng: random.Random) -> tuple[str, str]:
    """Plural (parameter, and word in the function's name) and the loop variable."""
    plural = rng.choice(tuple(PLURALS))
    return plural, rng.choice((PLURALS[plural], PLURALS[plural], "x"))


def strings(rng: random.Random) -> tuple[str, str]:
    """The same for a list of strings."""
    plural = rng.choice(tuple(STRINGS))
    return plural, STRINGS[plural]


def text(rng: random.Random) -> str:
    """Parameter that holds one string."""
    return rng.choice(TEXTS)


def total(rng: random.Random) -> str:
    """Accumulator of a sum."""
    return rng.choice(("total", "result"))


def count(rng: random.Random) -> str:
    """Accumulator of a count."""
    return rng.choice(("count", "found"))


def out(rng: random.Random) -> str:
    """Accumulator that is a list, dict or string."""
    return rng.choice(("result", "out"))


def best(rng: random.Random) -> str:
    """Accumulator of an extremum."""
    return rng.choice(("best", "result"))
