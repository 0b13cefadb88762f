"""Clamping, limiting, thresholds, default parameters: where a value is cut, and where a class begins."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, add, constants, each, shuffled, template
from verl_ext.gym.generator.predicates import comparison, simple


def _bounds(rng: random.Random) -> tuple[int, int]:
    low = rng.randint(0, 6)
    return low, low + rng.randint(3, 6)


@template("numeric")
def clamp(rng: random.Random) -> Draft:
    """``clamp_value_between_2_and_9``."""
    low, high = _bounds(rng)
    value = rng.choice(("value", "number", "x", "score", "price", "size"))
    lifted = constants(rng, low=low, high=high)
    least, most = lifted.text["low"], lifted.text["high"]
    kind = rng.choice(("return", "assign", "call"))
    if kind == "call":
        body = shuffled(rng, [f"{value} = max({value}, {least})", f"{value} = min({value}, {most})"])
    else:
        lead = "return " if kind == "return" else f"{value} = "
        pairs = [[f"if {value} < {least}:", [lead + least]], [f"if {value} > {most}:", [lead + most]]]
        rng.shuffle(pairs)
        body = [*pairs[0], *pairs[1]]
    issue = f"Return the {value}, raised to {low} if smaller and lowered to {high} if larger{lifted.issue}."
    name = f"clamp_{value}_between_{low}_and_{high}"

    def args(r: random.Random) -> tuple[int, ...]:
        return draws.integer(r, (low, high), -3, 15), *lifted.args(r)

    return Draft(name, value + lifted.params, [*body, f"return {value}"], issue, args)


@template("sequences")
def clamp_each(rng: random.Random) -> Draft:
    """``list_of_values_lowered_to_at_most_9``."""
    (plural, item), out, k = words.noun(rng), words.out(rng), rng.randint(1, 9)
    kind, operator, call = rng.choice((("lowered_to_at_most", ">", "min"), ("raised_to_at_least", "<", "max")))
    what = rng.choice(("list", "sum"))
    if what == "sum":
        out, first = words.total(rng), "0"
        push = f"{out} += {{x}}"
    else:
        first, push = "[]", f"{out}.append({{x}})"
    if rng.random() < 0.5:
        steps = [f"if {item} {operator} {k}:", [push.format(x=k)], "else:", [push.format(x=item)]]
    else:
        steps = [push.format(x=f"{call}({item}, {k})")]
    body = [f"{out} = {first}", f"for {item} in {plural}:", steps, f"return {out}"]
    issue = f"Return the {what} of the {plural}, each {kind.replace('_', ' ')} {k}."
    args = draws.one(lambda r: draws.integers(r, (k,)))
    return Draft(f"{what}_of_{plural}_{kind}_{k}", plural, body, issue, args)


@template("sequences")
def take_until(rng: random.Random) -> Draft:
    """``list_of_values_while_sum_at_most_20``: stops before, or with, the element that goes over."""
    (plural, item), total, out = words.noun(rng), "total", words.out(rng)
    k = rng.randint(5, 15)
    spoken, stop = rng.choice((("at_most", ">"), ("below", ">=")))
    lifted = constants(rng, limit=k)
    test = [f"if {total} + {item} {stop} {lifted.text['limit']}:", ["break"]]
    what = rng.choice(("list", "count", "sum"))
    if what == "sum":
        start, push, end = [f"{total} = 0"], [f"{total} += {item}"], total
    elif what == "count":
        count = words.count(rng)
        start, push, end = [f"{total} = 0", f"{count} = 0"], [f"{total} += {item}", f"{count} += 1"], count
    else:
        start, push, end = [f"{total} = 0", f"{out} = []"], [f"{total} += {item}", f"{out}.append({item})"], out
    loop = [f"for {item} in {plural}:", [*test, *shuffled(rng, push)]]
    issue = f"Return the {what} of the leading {plural} whose sum stays {spoken.replace('_', ' ')} {k}{lifted.issue}."
    name = f"{what}_of_leading_{plural}_with_sum_{spoken}_{k}"

    def args(r: random.Random) -> tuple:
        return draws.integers(r, (k // 2, k // 3), 0, 8), *lifted.args(r)

    return Draft(name, plural + lifted.params, [*shuffled(rng, start), *loop, f"return {end}"], issue, args)


@template("state_machines")
def index_of_total(rng: random.Random) -> Draft:
    """``first_index_with_running_sum_above_9``."""
    (plural, _), total, k = words.noun(rng), words.total(rng), rng.randint(3, 12)
    spoken, operator = rng.choice((("above", ">"), ("at_least", ">="), ("below", "<"), ("equal_to", "==")))
    k = -(k % 4) if spoken == "below" else k
    count = rng.random() < 0.4
    if count:
        found = words.count(rng)
        steps = [f"{total} += {plural}[i]", f"if {total} {operator} {k}:", [f"{found} += 1"]]
        start, end = shuffled(rng, [f"{total} = 0", f"{found} = 0"]), f"return {found}"
        name, meaning = "count_of_indexes", "how many indexes there are at which"
    else:
        steps = [f"{total} += {plural}[i]", f"if {total} {operator} {k}:", ["return i"]]
        start, end = [f"{total} = 0"], "return -1"
        name, meaning = "first_index", "the first index (-1 without one) at which"
    issue = f"Return {meaning} the running sum of the {plural} is {spoken.replace('_', ' ')} {k}."
    args = draws.one(lambda r: draws.integers(r, (1, abs(k) // 2, k), -4, 6))
    name = f"{name}_with_running_sum_of_{plural}_{spoken}_{k}".replace("-", "minus_")
    return Draft(name, plural, [*start, f"for i in range(len({plural})):", steps, end], issue, args)


_LABELS = (("low", "middle", "high"), ("cheap", "fair", "costly"), ("cold", "mild", "hot"), ("short", "medium", "long"))


@template("state_machines")
def graded(rng: random.Random) -> Draft:
    """``low_below_3_high_above_7_else_middle``: the label of a value by thresholds."""
    low, high = _bounds(rng)
    value = rng.choice(("value", "number", "score", "size", "price"))
    first, middle, last = rng.choice(_LABELS)
    below, low_test = rng.choice((("below", "<"), ("at_most", "<=")))
    above, high_test = rng.choice((("above", ">"), ("at_least", ">=")))
    word = rng.choice(("if", "elif"))
    tests = [f"if {value} {low_test} {low}:", [f'return "{first}"'], f"{word} {value} {high_test} {high}:"]
    body = [*tests, [f'return "{last}"'], f'return "{middle}"']
    spoken = f"{first} {below} {low}, {last} {above} {high}, else {middle}".replace("_", " ")
    issue = f"Return the label of the {value}: {spoken}."
    args = draws.one(lambda r: draws.integer(r, (low, high), -2, 15))
    name = f"label_of_{value}_{first}_{below}_{low}_{last}_{above}_{high}_else_{middle}"
    return Draft(name, value, body, issue, args)


@template("state_machines")
def points_by_level(rng: random.Random) -> Draft:
    """``sum_of_points_2_for_values_above_7_else_1``: scores per element."""
    (plural, item), p = words.noun(rng), simple(rng)
    total, yes = words.total(rng), rng.randint(2, 5)
    no, spoken = rng.choice(((f"{total} += 1", "plus_1"), (f"{total} -= 1", "minus_1"), (f"{total} -= 2", "minus_2")))

    def body(x: str) -> list:
        return [f"if {p.holds(x)}:", [f"{total} += {yes}"], "else:", [no]]

    loop = each(rng, plural, item, body)
    issue = f"Start at 0; add {yes} for each of the {p.words(plural)}, and {spoken.replace('_', ' ')} for each other."
    args = draws.one(lambda r: draws.integers(r, p.edges))
    name = f"plus_{yes}_for_{p.name(plural)}_{spoken}_for_others"
    return Draft(name, plural, [f"{total} = 0", *loop, f"return {total}"], issue, args)


@template("numeric")
def with_default(rng: random.Random) -> Draft:
    """``count_of_values_above_limit_default_3``: a keyword parameter whose default the name states."""
    (plural, item), k = words.noun(rng), rng.randint(2, 7)
    spoken, operator = rng.choice((("above", ">"), ("at_least", ">="), ("below", "<"), ("at_most", "<=")))
    limit = rng.choice(("limit", "bound"))
    what = rng.choice(("count", "sum", "list"))
    target = {"count": words.count, "sum": words.total, "list": words.out}[what](rng)
    first = "[]" if what == "list" else "0"
    if what == "list":
        step = f"{target}.append({item})"
    else:
        step = add(rng, target, "+", "1" if what == "count" else item)
    loop = [f"for {item} in {plural}:", [f"if {item} {operator} {limit}:", [step]]]
    issue = f"Return the {what} of the {plural} {spoken.replace('_', ' ')} the {limit}, which is {k} if not given."

    def args(r: random.Random) -> tuple:
        other = draws.integer(r, (k,), 0, 9)
        used = k if r.random() < 0.6 else other
        drawn = draws.integers(r, (used,))
        return (drawn,) if used == k else (drawn, used)

    name = f"{what}_of_{plural}_{spoken}_{limit}_default_{k}"
    return Draft(name, f"{plural}, {limit}={k}", [f"{target} = {first}", *loop, f"return {target}"], issue, args)


@template("dates_money")
def priced(rng: random.Random) -> Draft:
    """``cost_of_amount_at_3_each_minus_5_for_at_least_10``."""
    amount = rng.choice(("amount", "count", "hours", "days"))
    each_, extra, p = rng.randint(2, 6), rng.randint(2, 9), comparison(rng, 3, 12)
    price = rng.choice(("cost", "price", "total"))
    sign, word = rng.choice((("+", "plus"), ("-", "minus")))
    lifted = constants(rng, each=each_, extra=extra)
    change = add(rng, price, sign, lifted.text["extra"])
    lines = [f"{price} = {amount} * {lifted.text['each']}", f"if {p.holds(amount)}:", [change]]
    tail = ""
    if rng.random() < 0.5:
        lines = [f"if {amount} < 1:", ["return 0"], *lines]
        tail = ", 0 if there is less than 1"
    issue = f"Return the {price} of the {amount} at {each_} each, {word} {extra} if {p.after}{tail}{lifted.issue}."
    name = f"{price}_of_{amount}_at_{each_}_each_{word}_{extra}_if_{p.after.replace(' ', '_')}"
    name += "_or_0" if tail else ""

    def args(r: random.Random) -> tuple[int, ...]:
        return draws.integer(r, (*p.edges, 1), -5, 20), *lifted.args(r)

    return Draft(name, amount + lifted.params, [*lines, f"return {price}"], issue, args)
