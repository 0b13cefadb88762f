"""Searches: first and last index or element that satisfies a predicate, binary search, early-return checks."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, each, template
from verl_ext.gym.generator.predicates import Predicate, predicate, simple


def _args(p: Predicate):
    return draws.one(lambda r: draws.integers(r, p.edges))


@template("searching")
def index_where(rng: random.Random) -> Draft:
    """``first_index_of_even_values_or_minus_1``."""
    (plural, item), p = words.noun(rng), predicate(rng)
    which = rng.choice(("first", "last"))
    style = rng.choice(("range", "keep", "enumerate"))
    missing = words.missing(rng, "-1")
    test = p.holds(f"{plural}[i]")
    if which == "first" and style == "enumerate":
        body = [f"for i, {item} in enumerate({plural}):", [f"if {p.holds(item)}:", ["return i"]], missing.statement]
    elif which == "first":
        body = [f"for i in range(len({plural})):", [f"if {test}:", ["return i"]], missing.statement]
    elif style == "range":
        body = [f"for i in range(len({plural}) - 1, -1, -1):", [f"if {test}:", ["return i"]], missing.statement]
    else:
        missing = words.Missing("return -1", "or_minus_1", "or -1 if there are none")
        found = rng.choice(("found", "last", "result"))
        body = [
            f"{found} = -1",
            f"for i in range(len({plural})):",
            [f"if {test}:", [f"{found} = i"]],
            f"return {found}",
        ]
    issue = f"Return the {which} index of the {p.words(plural)}, {missing.issue}."
    return Draft(f"{which}_index_of_{p.name(plural)}_{missing.name}", plural, body, issue, _args(p))


@template("searching")
def element_where(rng: random.Random) -> Draft:
    """``first_of_values_above_3_or_none``."""
    (plural, item), p = words.noun(rng), predicate(rng)
    which = rng.choice(("first", "last"))
    missing = words.missing(rng)
    hit = [f"if {p.holds(item)}:", [f"return {item}"]]
    if which == "first":
        body = [f"for {item} in {plural}:", hit, missing.statement]
    elif rng.random() < 0.5:
        body = [f"for {item} in {plural}[::-1]:", hit, missing.statement]
    else:
        missing = words.Missing("return None", "or_none", "or None if there are none")
        body = [
            "result = None",
            f"for {item} in {plural}:",
            [f"if {p.holds(item)}:", [f"result = {item}"]],
            "return result",
        ]
    issue = f"Return the {which} of the {p.words(plural)}, {missing.issue}."
    return Draft(f"{which}_of_{p.name(plural)}_{missing.name}", plural, body, issue, _args(p))


@template("searching")
def nth_where(rng: random.Random) -> Draft:
    """``second_of_values_above_3_or_none``."""
    (plural, item), p, count = words.noun(rng), simple(rng), words.count(rng)
    k = rng.choice((2, 3))
    loop = [
        f"for {item} in {plural}:",
        [f"if {p.holds(item)}:", [f"{count} += 1", f"if {count} == {k}:", [f"return {item}"]]],
    ]
    issue = f"Return the {words.ORDINALS[k]} of the {p.words(plural)}, or None if there are fewer than {k}."
    name = f"{words.ORDINALS[k]}_of_{p.name(plural)}_or_none"
    return Draft(name, plural, [f"{count} = 0", *loop, "return None"], issue, _args(p))


@template("searching")
def quantified(rng: random.Random) -> Draft:
    """``all_values_are_above_3``, ``any_values_are_even``, ``no_values_are_negative``."""
    (plural, item), p = words.noun(rng), predicate(rng)
    which, on_fail, hit, end = rng.choice(
        (
            ("all", True, "False", "True"),
            ("any", False, "True", "False"),
            ("no", False, "False", "True"),
        )
    )

    def body(x: str) -> list:
        return [f"if {p.fails(x) if on_fail else p.holds(x)}:", [f"return {hit}"]]

    what = "_and_".join(part for part in (p.before, p.after) if part).replace(" ", "_")
    issue = f"Return whether {which} {plural} are {what.replace('_', ' ')}."
    lines = [*each(rng, plural, item, body), f"return {end}"]
    return Draft(f"{which}_{plural}_are_{what}", plural, lines, issue, _args(p))


_BOUNDS = {
    "first_index_at_least": ("<", "first index at which the sorted {0} are at least the target", "low"),
    "first_index_above": ("<=", "first index at which the sorted {0} are above the target", "low"),
    "last_index_below": ("<", "last index at which the sorted {0} are below the target, else -1", "low - 1"),
    "last_index_at_most": (
        "<=",
        "last index at which the sorted {0} are at most the target, else -1",
        "low - 1",
    ),
    "count_below": ("<", "number of the sorted {0} that are below the target", "low"),
    "count_at_most": ("<=", "number of the sorted {0} that are at most the target", "low"),
    "count_above": ("<=", "number of the sorted {0} that are above the target", "len({0}) - low"),
    "count_at_least": ("<", "number of the sorted {0} that are at least the target", "len({0}) - low"),
}


@template("searching")
def binary_search(rng: random.Random) -> Draft:
    """``first_index_at_least_target_in_sorted_values``, by halving."""
    plural, _ = words.noun(rng)
    kind = rng.choice(tuple(_BOUNDS))
    operator, meaning, end = _BOUNDS[kind]
    target = rng.choice(("target", "wanted"))
    start = ["low = 0", f"high = len({plural})"]
    rng.shuffle(start)
    loop = [
        "while low < high:",
        [
            "middle = (low + high) // 2",
            f"if {plural}[middle] {operator} {target}:",
            ["low = middle + 1"],
            "else:",
            ["high = middle"],
        ],
    ]
    issue = f"Return the {meaning.format(plural).replace('target', target)}, by binary search."

    def args(r: random.Random) -> tuple[list[int], int]:
        drawn = sorted(draws.integers(r, (2, 5), 0, 8))
        return drawn, r.choice((*drawn, -1, 2, 5, 9))

    name = f"{kind}_{target}_in_sorted_{plural}"
    return Draft(name, f"{plural}, {target}", [*start, *loop, f"return {end.format(plural)}"], issue, args)


@template("searching")
def membership(rng: random.Random) -> Draft:
    """``list_of_values_in_allowed``."""
    plural, item = words.noun(rng)
    other = rng.choice(("others", "allowed", "known"))
    inside, distinct = rng.random() < 0.5, rng.random() < 0.4
    word = "in" if inside else "not in"
    what = "list" if distinct else rng.choice(("list", "count", "sum"))
    out = {"list": words.out, "count": words.count, "sum": words.total}[what](rng)
    first, step = {
        "list": ("[]", f"{out}.append({item})"),
        "count": ("0", f"{out} += 1"),
        "sum": ("0", f"{out} += {item}"),
    }[what]
    test = f"{item} {word} {other}"
    if distinct:
        test = f"{test} and {item} not in {out}"
    what = "list_of_distinct" if distinct else f"{what}_of"
    body = [f"{out} = {first}", f"for {item} in {plural}:", [f"if {test}:", [step]], f"return {out}"]
    issue = f"Return the {what.replace('_', ' ')} {plural} that are {word} {other}."

    def args(r: random.Random) -> tuple[list[int], list[int]]:
        return draws.integers(r, (2,), 0, 5), draws.integers(r, (2,), 0, 5, longest=4)

    return Draft(f"{what}_{plural}_{word.replace(' ', '_')}_{other}", f"{plural}, {other}", body, issue, args)


@template("searching")
def validated(rng: random.Random) -> Draft:
    """``sum_of_values_refusing_negative_values``: raises ValueError on a bad element."""
    (plural, item), p = words.noun(rng), simple(rng)
    what, target, first, step = rng.choice(
        (
            ("sum", words.total(rng), "0", "{t} += {x}"),
            ("list_of_squares", words.out(rng), "[]", "{t}.append({x} * {x})"),
            ("count", words.count(rng), "0", "{t} += 1"),
        )
    )
    loop = [
        f"for {item} in {plural}:",
        [f"if {p.holds(item)}:", [f"raise ValueError({item})"], step.format(t=target, x=item)],
    ]
    bad = p.words(plural)
    issue = f"Return the {what.replace('_', ' ')} of the {plural}; raise ValueError if there are {bad}."
    name = f"{what}_of_{plural}_refusing_{p.name(plural)}"

    def args(r: random.Random) -> tuple[list[int]]:
        drawn = draws.integers(r, p.edges)
        if r.random() < 0.5:
            drawn = [x for x in drawn if not p.accepts(x)]
        return (drawn,)

    return Draft(name, plural, [f"{target} = {first}", *loop, f"return {target}"], issue, args)
