"""Track an extremum: the largest or smallest element, its index, words by length, spreads."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, keep_if, shuffled, template
from verl_ext.gym.generator.predicates import simple

_BETTER = {"largest": ">", "smallest": "<"}
_LENGTH = {"longest": ">", "shortest": "<"}
_TIE = {"first": "", "last": "="}


@template("sequences")
def extremum(rng: random.Random) -> Draft:
    """``largest_of_values_or_none``."""
    (plural, item), best = words.noun(rng), words.best(rng)
    what, missing = rng.choice(tuple(_BETTER)), words.missing(rng)
    if rng.random() < 0.5:
        loop = [f"for {item} in {plural}[1:]:", [f"if {item} {_BETTER[what]} {best}:", [f"{best} = {item}"]]]
    else:
        at = f"{plural}[i]"
        loop = [f"for i in range(1, len({plural})):", [f"if {at} {_BETTER[what]} {best}:", [f"{best} = {at}"]]]
    body = [f"if not {plural}:", [missing.statement], f"{best} = {plural}[0]", *loop, f"return {best}"]
    issue = f"Return the {what} of the {plural}, {missing.issue}."
    return Draft(f"{what}_of_{plural}_{missing.name}", plural, body, issue, draws.one(draws.integers))


@template("sequences")
def extremum_where(rng: random.Random) -> Draft:
    """``largest_of_even_values_or_none``."""
    (plural, item), best, p = words.noun(rng), words.best(rng), simple(rng)
    what = rng.choice(tuple(_BETTER))
    loop = [
        f"for {item} in {plural}:",
        keep_if(
            rng,
            p.holds(item),
            p.fails(item),
            [f"if {best} is None or {item} {_BETTER[what]} {best}:", [f"{best} = {item}"]],
        ),
    ]
    body = [f"{best} = None", *loop, f"return {best}"]
    issue = f"Return the {what} of the {p.words(plural)}, or None if there are none."
    name = f"{what}_of_{p.name(plural)}_or_none"
    return Draft(name, plural, body, issue, draws.one(lambda r: draws.integers(r, p.edges)))


@template("searching")
def index_of_extremum(rng: random.Random) -> Draft:
    """``first_index_of_largest_of_values``; the tie decides between ``>`` and ``>=``."""
    (plural, _), best = words.noun(rng), words.best(rng)
    what, tie, missing = rng.choice(tuple(_BETTER)), rng.choice(tuple(_TIE)), words.missing(rng, "-1")
    operator = _BETTER[what] + _TIE[tie]
    test = f"{plural}[i] {operator} {plural}[{best}]"
    body = [
        f"if not {plural}:",
        [missing.statement],
        f"{best} = 0",
        f"for i in range(1, len({plural})):",
        [f"if {test}:", [f"{best} = i"]],
        f"return {best}",
    ]
    issue = f"Return the {tie} index of the {what} of the {plural}, {missing.issue}."
    args = draws.one(lambda r: draws.integers(r, (0, 3), 0, 4))
    return Draft(f"{tie}_index_of_{what}_of_{plural}_{missing.name}", plural, body, issue, args)


@template("strings")
def extremal_word(rng: random.Random) -> Draft:
    """``first_longest_of_words``; the tie decides between ``>`` and ``>=``."""
    (plural, item), best = words.strings(rng), words.best(rng)
    what, tie = rng.choice(tuple(_LENGTH)), rng.choice(tuple(_TIE))
    operator = _LENGTH[what] + _TIE[tie]
    start = [f"if not {plural}:", ['return ""'], f"{best} = {plural}[0]"]
    loop = [f"for {item} in {plural}[1:]:", [f"if len({item}) {operator} len({best}):", [f"{best} = {item}"]]]
    issue = f"Return the {tie} of the {what} {plural}, or an empty string if there are none."
    name = f"{tie}_{what}_of_{plural}_or_empty"
    return Draft(name, plural, [*start, *loop, f"return {best}"], issue, draws.one(lambda r: draws.words(r, letters=4)))


@template("strings")
def extremal_length(rng: random.Random) -> Draft:
    """``length_of_longest_of_words_with_x``."""
    (plural, item), best = words.strings(rng), words.best(rng)
    letter = rng.choice("abcx")
    present = rng.random() < 0.5
    test, anti = f'"{letter}" in {item}', f'"{letter}" not in {item}'
    if not present:
        test, anti = anti, test
    which = f"{'with' if present else 'without'} {letter}"
    update = rng.choice(
        ([f"if len({item}) > {best}:", [f"{best} = len({item})"]], [f"{best} = max({best}, len({item}))"])
    )
    body = [
        f"{best} = 0",
        f"for {item} in {plural}:",
        keep_if(rng, test, anti, update),
        f"return {best}",
    ]
    issue = f"Return the length of the longest of the {plural} {which}, or 0 if there are none."
    name = f"length_of_longest_of_{plural}_{which.replace(' ', '_')}"
    return Draft(name, plural, body, issue, draws.one(draws.words))


@template("sequences")
def spread(rng: random.Random) -> Draft:
    """``largest_minus_smallest_of_values``."""
    (plural, item) = words.noun(rng)
    largest, smallest = rng.choice((("largest", "smallest"), ("high", "low")))
    kind = rng.choice(("largest_minus_smallest", "smallest_plus_largest", "smallest_then_largest"))
    end, what = {
        "largest_minus_smallest": (f"{largest} - {smallest}", "largest minus smallest"),
        "smallest_plus_largest": (f"{smallest} + {largest}", "smallest plus largest"),
        "smallest_then_largest": (f"[{smallest}, {largest}]", "list of smallest and largest"),
    }[kind]
    updates = [
        [f"if {item} > {largest}:", [f"{largest} = {item}"]],
        [f"if {item} < {smallest}:", [f"{smallest} = {item}"]],
    ]
    rng.shuffle(updates)
    start = shuffled(rng, [f"{largest} = {plural}[0]", f"{smallest} = {plural}[0]"])
    body = [*start, f"for {item} in {plural}[1:]:", [*updates[0], *updates[1]], f"return {end}"]
    issue = f"Return the {what} of the {plural}, of which there is at least one."
    args = draws.one(lambda r: draws.integers(r, shortest=1))
    return Draft(f"{kind}_of_{plural}", plural, body, issue, args)


@template("sequences")
def count_of_extremum(rng: random.Random) -> Draft:
    """``count_of_largest_of_values``."""
    (plural, item), count, best = words.noun(rng), words.count(rng), "best"
    what = rng.choice(tuple(_BETTER))
    better = f"{item} {_BETTER[what]} {best}"
    if rng.random() < 0.5:
        start = shuffled(rng, [f"{count} = 0", f"{best} = None"])
        sequence, better = plural, f"{best} is None or {better}"
    else:
        start = [f"if not {plural}:", ["return 0"], *shuffled(rng, [f"{best} = {plural}[0]", f"{count} = 1"])]
        sequence = f"{plural}[1:]"
    new = [f"if {better}:", shuffled(rng, [f"{best} = {item}", f"{count} = 1"])]
    same = [f"elif {item} == {best}:", [f"{count} += 1"]]
    loop = [f"for {item} in {sequence}:", [*new, *same]]
    issue = f"Return how often the {what} of the {plural} occurs, 0 if there are none."
    args = draws.one(lambda r: draws.integers(r, (0, 3), 0, 4))
    return Draft(f"count_of_{what}_of_{plural}", plural, [*start, *loop, f"return {count}"], issue, args)
