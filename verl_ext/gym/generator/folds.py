"""Accumulate with a filter: sums, counts, products, lists, averages of the elements that satisfy a predicate."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Block, Draft, add, each, keep_if, shuffled, template
from verl_ext.gym.generator.predicates import Predicate, predicate, simple

_TRANSFORMS = {
    "squares": "{x} * {x}",
    "doubles": "{x} * 2",
    "halves": "{x} // 2",
    "negatives": "-{x}",
    "successors": "{x} + 1",
    "predecessors": "{x} - 1",
}


def _args(p: Predicate):
    return draws.one(lambda rng: draws.integers(rng, p.edges))


def _fold(rng: random.Random, plural: str, item: str, p: Predicate, start: str, step, end: str) -> Block:
    loop = each(rng, plural, item, lambda x: keep_if(rng, p.holds(x), p.fails(x), [step(x)]))
    return [start, *loop, end]


@template("sequences")
def sum_where(rng: random.Random) -> Draft:
    """``sum_of_values_above_3``."""
    (plural, item), p, total = words.noun(rng), predicate(rng), words.total(rng)
    body = _fold(rng, plural, item, p, f"{total} = 0", lambda x: add(rng, total, "+", x), f"return {total}")
    name = f"sum_of_{p.name(plural)}"
    return Draft(name, plural, body, f"Return the sum of the {p.words(plural)}.", _args(p))


@template("sequences")
def count_where(rng: random.Random) -> Draft:
    """``count_of_values_above_3``."""
    (plural, item), p, count = words.noun(rng), predicate(rng), words.count(rng)
    body = _fold(rng, plural, item, p, f"{count} = 0", lambda x: add(rng, count, "+", "1"), f"return {count}")
    name = f"count_of_{p.name(plural)}"
    return Draft(name, plural, body, f"Return how many {p.words(plural)} there are.", _args(p))


@template("numeric")
def product_where(rng: random.Random) -> Draft:
    """``product_of_values_above_3``."""
    (plural, item), p = words.noun(rng), predicate(rng)
    product = rng.choice(("product", "result"))
    body = _fold(rng, plural, item, p, f"{product} = 1", lambda x: add(rng, product, "*", x), f"return {product}")
    name = f"product_of_{p.name(plural)}"
    return Draft(name, plural, body, f"Return the product of the {p.words(plural)}, 1 without any.", _args(p))


@template("sequences")
def list_where(rng: random.Random) -> Draft:
    """``list_of_values_above_3``."""
    (plural, item), p, out = words.noun(rng), predicate(rng), words.out(rng)
    body = _fold(rng, plural, item, p, f"{out} = []", lambda x: f"{out}.append({x})", f"return {out}")
    name = f"list_of_{p.name(plural)}"
    return Draft(name, plural, body, f"Return the list of the {p.words(plural)}, in order.", _args(p))


@template("sequences")
def list_of_transformed(rng: random.Random) -> Draft:
    """``list_of_squares_of_values_above_3``."""
    (plural, item), p, out = words.noun(rng), simple(rng), words.out(rng)
    what = rng.choice(tuple(_TRANSFORMS))
    change = _TRANSFORMS[what]
    body = _fold(rng, plural, item, p, f"{out} = []", lambda x: f"{out}.append({change.format(x=x)})", f"return {out}")
    name = f"list_of_{what}_of_{p.name(plural)}"
    return Draft(name, plural, body, f"Return the list of the {what} of the {p.words(plural)}, in order.", _args(p))


@template("numeric")
def sum_of_transformed(rng: random.Random) -> Draft:
    """``sum_of_squares_of_values_above_3``."""
    (plural, item), p, total = words.noun(rng), simple(rng), words.total(rng)
    what = rng.choice(("squares", "doubles", "halves"))
    change = _TRANSFORMS[what]
    step = lambda x: add(rng, total, "+", change.format(x=x))  # noqa: E731
    body = _fold(rng, plural, item, p, f"{total} = 0", step, f"return {total}")
    name = f"sum_of_{what}_of_{p.name(plural)}"
    return Draft(name, plural, body, f"Return the sum of the {what} of the {p.words(plural)}.", _args(p))


@template("numeric")
def average_where(rng: random.Random) -> Draft:
    """``average_of_values_above_3_or_0``."""
    (plural, item), p = words.noun(rng), simple(rng)
    total, count, missing = "total", "count", words.missing(rng, "0", "-1")
    name = f"average_of_{p.name(plural)}_{missing.name}"
    loop = each(
        rng,
        plural,
        item,
        lambda x: keep_if(
            rng,
            p.holds(x),
            p.fails(x),
            shuffled(rng, [f"{total} += {x}", f"{count} += 1"]),
        ),
    )
    tail = [f"if {count} == 0:", [missing.statement], f"return {total} / {count}"]
    body = [*shuffled(rng, [f"{total} = 0", f"{count} = 0"]), *loop, *tail]
    issue = f"Return the average of the {p.words(plural)}, {missing.issue}."
    return Draft(name, plural, body, issue, _args(p))


@template("sequences")
def partition_where(rng: random.Random) -> Draft:
    """``values_above_3_then_others``."""
    (plural, item), p = words.noun(rng), simple(rng)
    first, second = rng.choice((("first", "others"), ("kept", "others")))
    loop = [
        f"for {item} in {plural}:",
        [f"if {p.holds(item)}:", [f"{first}.append({item})"], "else:", [f"{second}.append({item})"]],
    ]
    body = [*shuffled(rng, [f"{first} = []", f"{second} = []"]), *loop, f"return {first} + {second}"]
    name = f"{p.name(plural)}_then_others"
    return Draft(name, plural, body, f"Return the {p.words(plural)}, then the others, each in order.", _args(p))
