"""The small vocabulary of names: few words, used the same way everywhere, so that their statistics can be learned."""

from __future__ import annotations

import random
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Missing:
    """What a function does when nothing qualifies: the statement, its words in the name and in the issue."""

    statement: str
    name: str
    issue: str


_RETURNED = {"None": "none", "0": "0", "-1": "minus_1"}


def missing(rng: random.Random, *returned: str) -> Missing:
    """Returns one of the given texts (default None, 0 or -1), or raises ValueError one time in five."""
    if rng.random() < 0.2:
        return Missing('raise ValueError("none")', "or_error", "or raise ValueError if there are none")
    value = rng.choice(returned or tuple(_RETURNED))
    return Missing(f"return {value}", f"or_{_RETURNED[value]}", f"or {value} if there are none")
