"""Index loops: neighbours, every k-th element, pairs, positions. The bounds of ``range`` follow from the intent."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Block, Draft, add, template
from verl_ext.gym.generator.predicates import comparison, simple

_CHANGES = {"rises": ">", "falls": "<", "repeats": "=="}


def _neighbours(rng: random.Random, plural: str, body) -> Block:
    """Loop over adjacent pairs, looking forward or back; ``body`` gets the earlier and the later element."""
    i = rng.choice(("i", "index"))
    if rng.random() < 0.5:
        return [f"for {i} in range(1, len({plural})):", body(f"{plural}[{i} - 1]", f"{plural}[{i}]")]
    return [f"for {i} in range(len({plural}) - 1):", body(f"{plural}[{i}]", f"{plural}[{i} + 1]")]


@template("sequences")
def count_changes(rng: random.Random) -> Draft:
    """``count_of_rises_in_values``."""
    (plural, _), count = words.noun(rng), words.count(rng)
    what = rng.choice(tuple(_CHANGES))
    body = [
        f"{count} = 0",
        *_neighbours(rng, plural, lambda a, b: [f"if {b} {_CHANGES[what]} {a}:", [add(rng, count, "+", "1")]]),
        f"return {count}",
    ]
    meaning = {"rises": "is larger than", "falls": "is smaller than", "repeats": "is equal to"}[what]
    issue = f"Return how many of the {plural} are such that one {meaning} the one before it."
    args = draws.one(lambda r: draws.integers(r, (0, 3), 0, 4))
    return Draft(f"count_of_{what}_in_{plural}", plural, body, issue, args)


@template("sequences")
def count_steps_where(rng: random.Random) -> Draft:
    """``count_of_steps_above_3_in_values``: neighbours by the size of their difference."""
    (plural, _), count, p = words.noun(rng), words.count(rng), comparison(rng, 1, 6)
    sign = rng.choice(("steps", "drops", "gaps"))
    amount = {"steps": "{b} - {a}", "drops": "{a} - {b}", "gaps": "abs({b} - {a})"}[sign]
    body = [
        f"{count} = 0",
        *_neighbours(
            rng,
            plural,
            lambda a, b: [f"if {p.holds(amount.format(a=a, b=b))}:", [add(rng, count, "+", "1")]],
        ),
        f"return {count}",
    ]
    meaning = {"steps": "next minus this", "drops": "this minus next", "gaps": "absolute difference"}[sign]
    issue = f"Return how many neighbouring {plural} have a step ({meaning}) {p.after}.".replace("step", sign[:-1])
    args = draws.one(lambda r: draws.integers(r, (0, p.edges[0]), -2, 8))
    return Draft(f"count_of_{sign}_{p.after.replace(' ', '_')}_in_{plural}", plural, body, issue, args)


@template("sequences")
def list_of_neighbours(rng: random.Random) -> Draft:
    """``list_of_differences_of_neighbours_in_values``."""
    (plural, _), out = words.noun(rng), words.out(rng)
    what, code, meaning = rng.choice(
        (
            ("differences", "{b} - {a}", "next minus this"),
            ("gaps", "abs({b} - {a})", "absolute difference"),
            ("sums", "{a} + {b}", "sum"),
            ("products", "{a} * {b}", "product"),
            ("largest", "max({a}, {b})", "larger of the two"),
            ("smallest", "min({a}, {b})", "smaller of the two"),
        )
    )
    loop = _neighbours(rng, plural, lambda a, b: [f"{out}.append({code.format(a=a, b=b)})"])
    issue = f"Return a list with, for each two neighbours in the {plural}, the {meaning}."
    name = f"list_of_{what}_of_neighbours_in_{plural}"
    return Draft(name, plural, [f"{out} = []", *loop, f"return {out}"], issue, draws.one(draws.integers))


@template("sequences")
def extremal_neighbours(rng: random.Random) -> Draft:
    """``largest_difference_of_neighbours_in_values``."""
    (plural, _), best = words.noun(rng), words.best(rng)
    what, operator = rng.choice((("largest", ">"), ("smallest", "<")))
    kind, code = rng.choice(
        (
            ("difference", "{b} - {a}"),
            ("gap", "abs({b} - {a})"),
            ("sum", "{a} + {b}"),
            ("product", "{a} * {b}"),
        )
    )
    first = code.format(a=f"{plural}[0]", b=f"{plural}[1]")
    loop = [
        f"for i in range(1, len({plural}) - 1):",
        [
            f"current = {code.format(a=f'{plural}[i]', b=f'{plural}[i + 1]')}",
            f"if current {operator} {best}:",
            [f"{best} = current"],
        ],
    ]
    body = [f"if len({plural}) < 2:", ["return None"], f"{best} = {first}", *loop, f"return {best}"]
    issue = f"Return the {what} {kind} of two neighbours in the {plural}, or None if there are fewer than two."
    name = f"{what}_{kind}_of_neighbours_in_{plural}"
    return Draft(name, plural, body, issue, draws.one(draws.integers))


@template("sequences")
def every_kth(rng: random.Random) -> Draft:
    """``sum_of_every_third_of_values_from_index_1``."""
    (plural, item), k = words.noun(rng), rng.choice(tuple(words.ORDINALS)[:3])
    start = rng.randint(0, 2)
    what = rng.choice(("sum", "product", "list", "count"))
    target = {"sum": "total", "product": "product", "list": "result", "count": "count"}[what]
    first = {"sum": "0", "product": "1", "list": "[]", "count": "0"}[what]

    def step(x: str) -> str:
        if what == "list":
            return f"{target}.append({x})"
        return add(rng, target, "*" if what == "product" else "+", "1" if what == "count" else x)

    by_slice = what != "count" and rng.random() < 0.5
    if by_slice:
        head = f"for {item} in {plural}[{start}::{k}]:" if start else f"for {item} in {plural}[::{k}]:"
        loop = [head, [step(item)]]
    else:
        loop = [f"for i in range({start}, len({plural}), {k}):", [step(f"{plural}[i]")]]
    name = f"{what}_of_every_{words.ORDINALS[k]}_of_{plural}_from_index_{start}"
    issue = f"Return the {what} of every {words.ORDINALS[k]} of the {plural}, from index {start} on."
    body = [f"{target} = {first}", *loop, f"return {target}"]
    return Draft(name, plural, body, issue, draws.one(lambda r: draws.integers(r, (2,), -3, 5, longest=9)))


@template("searching")
def pairs_where(rng: random.Random) -> Draft:
    """``count_of_pairs_of_values_with_sum_7``."""
    (plural, _), count = words.noun(rng), words.count(rng)
    kind, code = rng.choice((("sum", "{a} + {b}"), ("product", "{a} * {b}"), ("gap", "abs({a} - {b})")))
    p = simple(rng)
    value = code.format(a=f"{plural}[i]", b=f"{plural}[j]")
    test = p.holds(f"({value})" if "%" in p.test and kind != "gap" else value)
    anywhere = rng.random() < 0.3
    if anywhere:
        start, hit, end = [], ["return True"], "return False"
    else:
        start, hit, end = [f"{count} = 0"], [add(rng, count, "+", "1")], f"return {count}"
    loop = [
        f"for i in range(len({plural})):",
        [f"for j in range(i + 1, len({plural})):", [f"if {test}:", hit]],
    ]
    which = p.words(kind)
    prefix, question, verb = ("any", "whether any pair", "has") if anywhere else ("count_of", "how many pairs", "have")
    name = f"{prefix}_pairs_of_{plural}_with_{which.replace(' ', '_')}"
    article = "an" if which[0] in "aeiou" else "a"
    issue = f"Return {question} of {plural} at different positions {verb} {article} {which}."
    args = draws.one(lambda r: draws.integers(r, (0, p.edges[0] // 2, p.edges[0]), -2, 6, longest=6))
    return Draft(name, plural, [*start, *loop, end], issue, args)


@template("numeric")
def weighted_sum(rng: random.Random) -> Draft:
    """``sum_of_values_times_position_from_1``."""
    (plural, item), total = words.noun(rng), words.total(rng)
    base = rng.randint(0, 3)
    word, operator = rng.choice((("times", "*"), ("plus", "+"), ("minus", "-")))
    style = rng.choice(("enumerate", "counter", "index"))
    if style == "enumerate":
        head = f"for i, {item} in enumerate({plural}, {base}):" if base else f"for i, {item} in enumerate({plural}):"
        loop = [head, [f"{total} += {item} {operator} i"]]
    elif style == "counter":
        loop = [f"for {item} in {plural}:", [f"{total} += {item} {operator} position", "position += 1"]]
    else:
        place = f"(i + {base})" if base else "i"
        loop = [f"for i in range(len({plural})):", [f"{total} += {plural}[i] {operator} {place}"]]
    start = [f"{total} = 0"] + ([f"position = {base}"] if style == "counter" else [])
    rng.shuffle(start)
    name = f"sum_of_{plural}_{word}_position_from_{base}"
    issue = f"Return the sum of each of the {plural} {word} its position, counted from {base}."
    return Draft(name, plural, [*start, *loop, f"return {total}"], issue, draws.one(draws.integers))


@template("sorting")
def is_ordered(rng: random.Random) -> Draft:
    """``values_are_strictly_rising``."""
    plural, _ = words.noun(rng)
    order, code = rng.choice(
        (
            ("strictly rising", "{b} <= {a}"),
            ("never falling", "{b} < {a}"),
            ("strictly falling", "{b} >= {a}"),
            ("never rising", "{b} > {a}"),
            ("without repeated neighbours", "{b} == {a}"),
        )
    )
    loop = _neighbours(rng, plural, lambda a, b: [f"if {code.format(a=a, b=b)}:", ["return False"]])
    issue = f"Return whether the {plural} are {order} from one to the next."
    name = f"{plural}_are_{order.replace(' ', '_')}"

    def args(r: random.Random) -> tuple[list[int]]:
        drawn = draws.integers(r, (0, 3), -1, 6, longest=5)
        kind = r.randrange(4)
        if kind < 2:
            drawn.sort(reverse=bool(kind))
        return (drawn,)

    return Draft(name, plural, [*loop, "return True"], issue, args)
