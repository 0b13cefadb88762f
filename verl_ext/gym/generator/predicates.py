"""Predicates on integers whose words and code correspond one to one.

``above_3`` is always ``> 3`` and ``at_least_3`` always ``>= 3``: a reader who knows the name knows the operator, which
is what makes a strictness bug a bug and not a choice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Predicate:
    """A condition with its words.

    Attributes:
        before: Adjective in front of the noun (``"even"``), or ``""``.
        after: What follows the noun (``"above 3"``), or ``""``.
        test: Code with ``{x}`` for the tested expression.
        anti: Code of the exact complement.
        edges: Values at which the outcome changes; inputs are drawn around them.
    """

    before: str
    after: str
    test: str
    anti: str
    edges: tuple[int, ...]

    def words(self, noun: str) -> str:
        """``"even values above 3"``."""
        return " ".join(part for part in (self.before, noun, self.after) if part)

    def name(self, noun: str) -> str:
        """``"even_values_above_3"``."""
        return self.words(noun).replace(" ", "_")

    def holds(self, x: str) -> str:
        """The test of expression ``x``."""
        return self.test.format(x=x)

    def accepts(self, value: int) -> bool:
        """The outcome of the test for ``value``."""
        return eval(self.holds(f"({value})"))

    def fails(self, x: str) -> str:
        """The complement for expression ``x``."""
        return self.anti.format(x=x)


_COMPARISONS = {
    "above": (">", "<="),
    "at least": (">=", "<"),
    "below": ("<", ">="),
    "at most": ("<=", ">"),
}


def comparison(rng: random.Random, low: int = 1, high: int = 9) -> Predicate:
    """``above``, ``at least``, ``below`` or ``at most`` a constant in [low, high]."""
    words = rng.choice(tuple(_COMPARISONS))
    operator, complement = _COMPARISONS[words]
    k = rng.randint(low, high)
    return Predicate("", f"{words} {k}", f"{{x}} {operator} {k}", f"{{x}} {complement} {k}", (k,))


def _adjective(rng: random.Random) -> Predicate:
    return rng.choice(
        (
            Predicate("even", "", "{x} % 2 == 0", "{x} % 2 != 0", (0, 1)),
            Predicate("odd", "", "{x} % 2 == 1", "{x} % 2 != 1", (0, 1)),
            Predicate("positive", "", "{x} > 0", "{x} <= 0", (0,)),
            Predicate("negative", "", "{x} < 0", "{x} >= 0", (0,)),
            Predicate("nonzero", "", "{x} != 0", "{x} == 0", (0,)),
        )
    )


def _range(rng: random.Random) -> Predicate:
    low = rng.randint(1, 6)
    high = low + rng.randint(2, 4)
    inside = rng.choice((f"{low} <= {{x}} <= {high}", f"{{x}} >= {low} and {{x}} <= {high}"))
    outside = f"{{x}} < {low} or {{x}} > {high}"
    if rng.random() < 0.5:
        return Predicate("", f"between {low} and {high}", inside, outside, (low, high))
    return Predicate("", f"below {low} or above {high}", outside, inside, (low, high))


def _other(rng: random.Random) -> Predicate:
    k = rng.randint(3, 7)
    return rng.choice(
        (
            Predicate("", f"equal to {k}", f"{{x}} == {k}", f"{{x}} != {k}", (k,)),
            Predicate("", f"not equal to {k}", f"{{x}} != {k}", f"{{x}} == {k}", (k,)),
            Predicate("", f"divisible by {k}", f"{{x}} % {k} == 0", f"{{x}} % {k} != 0", (0, k, 2 * k)),
            Predicate("", f"not divisible by {k}", f"{{x}} % {k} != 0", f"{{x}} % {k} == 0", (0, k, 2 * k)),
        )
    )


def _both(rng: random.Random) -> Predicate:
    even, odd = ("even", "== 0", "!= 0"), ("odd", "== 1", "!= 1")
    word, yes, no = rng.choice((even, odd))
    bound = comparison(rng)
    while bound.edges[0] % 2 != (word == "odd"):  # else ``above`` and ``at least`` would mean the same
        bound = comparison(rng)
    test, anti = f"{{x}} % 2 {yes} and {bound.test}", f"{{x}} % 2 {no} or {bound.anti}"
    return Predicate(word, bound.after, test, anti, bound.edges)


def predicate(rng: random.Random) -> Predicate:
    """Any predicate on integers, comparisons most often."""
    kinds = (comparison, _adjective, _range, _other, _both)
    return rng.choices(kinds, weights=(40, 20, 15, 15, 10))[0](rng)


def simple(rng: random.Random) -> Predicate:
    """A predicate of one comparison, for templates whose own code is long."""
    return rng.choices((comparison, _adjective, _other), weights=(60, 25, 15))[0](rng)


def natural(rng: random.Random) -> Predicate:
    """A predicate that tells integers from 0 on apart, without reference to their sign."""
    while (drawn := predicate(rng)).edges == (0,):
        pass
    return drawn


def digit(rng: random.Random) -> Predicate:
    """A predicate that tells the digits 0 to 9 apart."""
    while len({(drawn := natural(rng)).accepts(value) for value in range(10)}) < 2:
        pass
    return drawn
