"""Windows, prefixes and suffixes: sliding sums, running totals and extrema, differences with a lag."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, add, template
from verl_ext.gym.generator.predicates import comparison


@template("sequences")
def window_fold(rng: random.Random) -> Draft:
    """``largest_sum_of_3_neighbours_in_values``, ``list_of_sums_of_3_neighbours_in_values``."""
    (plural, _), k = words.noun(rng), rng.randint(2, 4)
    kind, call = rng.choice((("sum", "sum"), ("maximum", "max"), ("minimum", "min")))
    what = rng.choice(("largest", "smallest", "list", "count"))
    near = (1, 4)
    window = f"{call}({plural}[i : i + {k}])"
    head = f"for i in range(len({plural}) - {k - 1}):"
    if what == "list":
        out = words.out(rng)
        body = [f"{out} = []", head, [f"{out}.append({window})"], f"return {out}"]
        name, meaning = f"list_of_{kind}s_of_{k}_neighbours_in_{plural}", f"the list of the {kind}s"
        name = name.replace("maximums", "maxima").replace("minimums", "minima")
        meaning = meaning.replace("maximums", "maxima").replace("minimums", "minima")
    elif what == "count":
        p, count = comparison(rng), words.count(rng)
        near = (p.edges[0] // k, 1) if kind == "sum" else p.edges
        body = [f"{count} = 0", head, [f"if {p.holds(window)}:", [f"{count} += 1"]], f"return {count}"]
        name = f"count_of_{k}_neighbours_in_{plural}_with_{p.name(kind)}"
        meaning = f"how many windows have a {p.words(kind)}, out of all windows"
    else:
        best, operator = words.best(rng), ">" if what == "largest" else "<"
        update = [f"current = {window}", f"if {best} is None or current {operator} {best}:", [f"{best} = current"]]
        body = [f"{best} = None", head, update, f"return {best}"]
        name, meaning = f"{what}_{kind}_of_{k}_neighbours_in_{plural}_or_none", f"the {what} {kind} (None without any)"
    issue = f"Return {meaning} of {k} neighbours in the {plural}."
    args = draws.one(lambda r: draws.integers(r, near, -3, 8, longest=9))
    return Draft(name, plural, body, issue, args)


@template("sequences")
def running(rng: random.Random) -> Draft:
    """``running_sums_of_values``, ``running_maxima_of_values``, forward or backward."""
    (plural, item), out = words.noun(rng), words.out(rng)
    what, variable, start, step = rng.choice(
        (
            ("sums", "total", 0, "total += {x}"),
            ("sums_of_squares", "total", 0, "total += {x} * {x}"),
            ("products", "product", 1, "product *= {x}"),
            ("differences", "total", 0, "total -= {x}"),
            ("counts_of_positive", "count", 0, "if {x} > 0:"),
            ("counts_of_negative", "count", 0, "if {x} < 0:"),
            ("counts_of_even", "count", 0, "if {x} % 2 == 0:"),
            ("maxima", "best", None, "if {x} > best:"),
            ("minima", "best", None, "if {x} < best:"),
        )
    )
    after = rng.random() < 0.6 or start is None
    push = f"{out}.append({variable})"
    change = [step.format(x=item)]
    if what.startswith("counts"):
        change.append([add(rng, "count", "+", "1")])
    elif start is None:
        change.append([f"best = {item}"])
    steps = [*change, push] if after else [push, *change]
    first = f"{variable} = {start}" if start is not None else f"best = {plural}[0]"
    lines = [f"{out} = []", first]
    if start is not None:
        rng.shuffle(lines)
    else:
        lines = [f"if not {plural}:", ["return []"], *lines]
    tail = "" if start is None else "_up_to_each" if after else "_before_each"
    issue = f"Return the list of the running {what.replace('_', ' ')} of the {plural}{tail.replace('_', ' ')}."
    name = f"running_{what}_of_{plural}{tail}"
    return Draft(
        name, plural, [*lines, f"for {item} in {plural}:", steps, f"return {out}"], issue, draws.one(draws.integers)
    )


@template("sequences")
def lagged(rng: random.Random) -> Draft:
    """``list_of_values_minus_value_2_before``, ``count_of_values_above_value_2_before``."""
    (plural, _), k = words.noun(rng), rng.randint(1, 3)
    single = words.PLURALS[plural]
    compare = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<=", "equal_to": "=="}
    change = {"minus": "-", "plus": "+", "times": "*"}
    back = rng.random() < 0.5
    if back:
        here, there = f"{plural}[i]", f"{plural}[i - {k}]"
        head, where = f"for i in range({k}, len({plural})):", "before"
    else:
        here, there = f"{plural}[i]", f"{plural}[i + {k}]"
        head, where = f"for i in range(len({plural}) - {k}):", "after"
    if rng.random() < 0.5:
        spoken, count = rng.choice(tuple(compare)), words.count(rng)
        step = [f"if {here} {compare[spoken]} {there}:", [f"{count} += 1"]]
        body = [f"{count} = 0", head, step, f"return {count}"]
        name, what = f"count_of_{plural}_{spoken}_{single}_{k}_{where}", "how many"
    else:
        spoken, out = rng.choice(tuple(change)), words.out(rng)
        body = [f"{out} = []", head, [f"{out}.append({here} {change[spoken]} {there})"], f"return {out}"]
        name, what = f"list_of_{plural}_{spoken}_{single}_{k}_{where}", "the list of"
    issue = f"Return {what} {plural} {spoken.replace('_', ' ')} the {single} {k} places {where}, where there is one."
    args = draws.one(lambda r: draws.integers(r, (2,), -1, 5))
    return Draft(name, plural, body, issue, args)


@template("sequences")
def leaders(rng: random.Random) -> Draft:
    """``list_of_values_above_all_before``: records against a running extremum."""
    plural, item = words.noun(rng)
    best = rng.choice(("best", "record"))
    spoken, operator = rng.choice(
        (("above_all", ">"), ("at_least_all", ">="), ("below_all", "<"), ("at_most_all", "<="))
    )
    side = rng.choice(("before", "after"))
    what = rng.choice(("list", "count"))
    target = words.out(rng) if what == "list" else words.count(rng)
    first, hit = ("[]", f"{target}.append({item})") if what == "list" else ("0", f"{target} += 1")
    sequence = plural if side == "before" else f"{plural}[::-1]"
    steps = [f"if {best} is None or {item} {operator} {best}:", [hit, f"{best} = {item}"]]
    lines = [f"{target} = {first}", f"{best} = None"]
    rng.shuffle(lines)
    issue = f"Return the {what} of the {plural} {spoken.replace('_', ' ')} {side} it"
    issue += ", from the end on." if side == "after" else "."
    args = draws.one(lambda r: draws.integers(r, (2,), -1, 5))
    name = f"{what}_of_{plural}_{spoken}_{side}"
    return Draft(name, plural, [*lines, f"for {item} in {sequence}:", steps, f"return {target}"], issue, args)


@template("sequences")
def two_lists(rng: random.Random) -> Draft:
    """``sum_of_products_of_first_and_second``, ``count_of_positions_where_first_above_second``."""
    a, b = rng.choice((("first", "second"), ("left", "right"), ("old", "new")))
    compare = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<=", "equal_to": "==", "not_equal_to": "!="}
    change = {"times": "*", "minus": "-", "plus": "+"}
    what = rng.choice(("sum", "list", "count", "index"))
    head = f"for i in range(min(len({a}), len({b}))):"
    if what in ("count", "index"):
        spoken, count = rng.choice(tuple(compare)), words.count(rng)
        test = f"if {a}[i] {compare[spoken]} {b}[i]:"
        if what == "count":
            body = [f"{count} = 0", head, [test, [f"{count} += 1"]], f"return {count}"]
            name, meaning = "count_of_positions", "the number of positions"
        else:
            body = [head, [test, ["return i"]], "return -1"]
            name, meaning = "first_position", "the first position (-1 without one)"
        name = f"{name}_where_{a}_{spoken}_{b}"
        issue = f"Return {meaning} at which {a} is {spoken.replace('_', ' ')} {b}."
    else:
        spoken = rng.choice(tuple(change))
        code = f"{a}[i] {change[spoken]} {b}[i]"
        target = words.total(rng) if what == "sum" else words.out(rng)
        first, step = ("0", f"{target} += {code}") if what == "sum" else ("[]", f"{target}.append({code})")
        body = [f"{target} = {first}", head, [step], f"return {target}"]
        name, issue = f"{what}_of_{a}_{spoken}_{b}", f"Return the {what} of {a} {spoken} {b}, position by position."

    def args(r: random.Random) -> tuple[list[int], list[int]]:
        one = draws.integers(r, (2,), -2, 6, longest=5)
        other = [x + r.choice((-1, 0, 0, 1, 2)) for x in one]
        if r.random() < 0.4:
            other = draws.integers(r, (2,), -2, 6, longest=5)
        return one, other

    return Draft(name, f"{a}, {b}", body, issue, args)
