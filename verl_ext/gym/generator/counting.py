"""Counting: histograms, runs, distinct elements, most frequent elements, streaks."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, add, each, shuffled, template
from verl_ext.gym.generator.predicates import predicate, simple


@template("sets_dicts")
def histogram(rng: random.Random) -> Draft:
    """``counts_by_value_of_values_above_3``, ``counts_by_remainder_3_of_values``."""
    plural, item = words.noun(rng)
    counts = rng.choice(("counts", "result"))
    k, p = rng.randint(2, 5), simple(rng)
    key, code = rng.choice(
        (
            ("value", item),
            ("value", item),
            (f"remainder_by_{k}", f"{item} % {k}"),
            (f"quotient_by_{k}", f"{item} // {k}"),
        )
    )
    amount = rng.choice(("1", "1", item))
    head = "counts" if amount == "1" else "sums"
    place = item if key == "value" else "key"
    steps = [] if key == "value" else [f"key = {code}"]
    if rng.random() < 0.5:
        steps.append(f"{counts}[{place}] = {counts}.get({place}, 0) + {amount}")
    else:
        steps += [f"if {place} not in {counts}:", [f"{counts}[{place}] = 0"], f"{counts}[{place}] += {amount}"]
    which = p.name(plural) if key == "value" else plural
    loop = [f"for {item} in {plural}:", [f"if {p.holds(item)}:", steps] if key == "value" else steps]
    meaning = "how many of" if amount == "1" else "the sum of"
    issue = f"Return a dict from each {key.replace('_', ' ')} to {meaning} the {which.replace('_', ' ')} that have it."
    args = draws.one(lambda r: draws.integers(r, p.edges, -2, 7))
    return Draft(f"{head}_by_{key}_of_{which}", plural, [f"{counts} = {{}}", *loop, f"return {counts}"], issue, args)


@template("sets_dicts")
def grouped(rng: random.Random) -> Draft:
    """``lists_by_length_of_words``, ``lists_by_first_letter_of_words``: groups in a dict."""
    plural, item = words.strings(rng)
    groups = rng.choice(("groups", "result"))
    key, code, guard = rng.choice(
        (
            ("length", f"len({item})", False),
            ("first_letter", f"{item}[0]", True),
            ("last_letter", f"{item}[-1]", True),
        )
    )
    limit = rng.randint(1, 4)
    test, tail = (f"if len({item}) > {limit}:", f"_longer_than_{limit}") if rng.random() < 0.7 else (f"if {item}:", "")
    body = [f"key = {code}", f"if key not in {groups}:", [f"{groups}[key] = []"], f"{groups}[key].append({item})"]
    loop = [f"for {item} in {plural}:", [test, body] if guard or tail else body]
    which = f"the {plural}{tail.replace('_', ' ')}" if tail or not guard else f"the {plural} that are not empty"
    issue = f"Return a dict from each {key.replace('_', ' ')} to the list of {which} that have it, in order."
    args = draws.one(lambda r: draws.words(r, alphabet="abx"))
    name = f"lists_by_{key}_of_{plural}{tail}"
    return Draft(name, plural, [f"{groups} = {{}}", *loop, f"return {groups}"], issue, args)


@template("sequences")
def longest_run(rng: random.Random) -> Draft:
    """``longest_run_of_values_above_3``: streaks with a reset."""
    (plural, item), p, best = words.noun(rng), simple(rng), words.best(rng)
    run = rng.choice(("run", "current"))
    what = rng.choice(("longest_run", "longest_run", "final_run", "largest_sum_of_run"))
    amount = item if what == "largest_sum_of_run" else "1"
    inner = [add(rng, run, "+", amount)]
    if what != "final_run":
        inner += rng.choice(([f"{best} = max({best}, {run})"], [f"if {run} > {best}:", [f"{best} = {run}"]]))
    loop = [f"for {item} in {plural}:", [f"if {p.holds(item)}:", inner, "else:", [f"{run} = 0"]]]
    start = [f"{run} = 0"] if what == "final_run" else shuffled(rng, [f"{best} = 0", f"{run} = 0"])
    end = f"return {run if what == 'final_run' else best}"
    meaning = {
        "longest_run": "the length of the longest run",
        "final_run": "the length of the run at the end",
        "largest_sum_of_run": "the largest running sum (at least 0) within a run",
    }[what]
    issue = f"Return {meaning} of {p.words(plural)}."
    args = draws.one(lambda r: draws.integers(r, p.edges, longest=9))
    return Draft(f"{what}_of_{p.name(plural)}", plural, [*start, *loop, end], issue, args)


@template("sequences")
def count_runs(rng: random.Random) -> Draft:
    """``count_of_runs_of_values_above_3``: how often a run begins."""
    (plural, item), p, count = words.noun(rng), simple(rng), words.count(rng)
    inside = rng.choice(("inside", "active"))
    edge = rng.choice(("starts", "ends"))
    if edge == "starts":
        test = f"if {p.holds(item)} and not {inside}:"
    else:
        test = f"if {p.fails(item)} and {inside}:"
    loop = [f"for {item} in {plural}:", [test, [f"{count} += 1"], f"{inside} = {p.holds(item)}"]]
    start = shuffled(rng, [f"{count} = 0", f"{inside} = False"])
    meaning = "starts" if edge == "starts" else "ends before another element"
    issue = f"Return how often a run of {p.words(plural)} {meaning}."
    args = draws.one(lambda r: draws.integers(r, p.edges, longest=9))
    name = f"count_of_run_{edge}_of_{p.name(plural)}"
    return Draft(name, plural, [*start, *loop, f"return {count}"], issue, args)


@template("sets_dicts")
def distinct_count(rng: random.Random) -> Draft:
    """``count_of_distinct_values_above_3``."""
    (plural, item), p = words.noun(rng), predicate(rng)
    seen = rng.choice(("seen", "known"))
    collect, first = rng.choice(((f"{seen}.add({{x}})", "set()"), (f"{seen}.append({{x}})", "[]")))
    extra = " and {x} not in " + seen if first == "[]" else ""
    test = f"({p.test})" if extra and " or " in p.test else p.test
    what = rng.choice(("count", "sum"))
    end = f"return len({seen})" if what == "count" else f"return sum({seen})"
    loop = each(rng, plural, item, lambda x: [f"if {(test + extra).format(x=x)}:", [collect.format(x=x)]])
    issue = f"Return the {what} of the distinct {p.words(plural)}."
    args = draws.one(lambda r: draws.integers(r, p.edges))
    return Draft(f"{what}_of_distinct_{p.name(plural)}", plural, [f"{seen} = {first}", *loop, end], issue, args)


@template("sets_dicts")
def most_frequent(rng: random.Random) -> Draft:
    """``first_most_frequent_of_values``; the tie decides between ``>`` and ``>=``."""
    plural, item = words.noun(rng)
    what, operator = rng.choice((("first_most", ">"), ("last_most", ">="), ("first_least", "<"), ("last_least", "<=")))
    best = words.best(rng)
    head = [f"if not {plural}:", ["return None"], f"{best} = {plural}[0]"]
    test = f"if {plural}.count({item}) {operator} {plural}.count({best}):"
    loop = [f"for {item} in {plural}:", [test, [f"{best} = {item}"]]]
    issue = f"Return the {what.replace('_', ' ')} frequent of the {plural}, or None if there are none."
    args = draws.one(lambda r: draws.integers(r, (2,), 0, 4))
    return Draft(f"{what}_frequent_of_{plural}_or_none", plural, [*head, *loop, f"return {best}"], issue, args)


@template("sets_dicts")
def repeated_where(rng: random.Random) -> Draft:
    """``list_of_values_occurring_at_least_2_times``."""
    (plural, item), out = words.noun(rng), words.out(rng)
    k = rng.randint(1, 3)
    spoken, operator = rng.choice(
        (("at_least", ">="), ("at_most", "<="), ("exactly", "=="), ("more_than", ">"), ("fewer_than", "<"))
    )
    k += spoken == "fewer_than"
    distinct = rng.random() < 0.5
    test = f"{plural}.count({item}) {operator} {k}"
    if distinct:
        test += f" and {item} not in {out}"
    which = f"{'distinct_' if distinct else ''}{plural}"
    loop = [f"for {item} in {plural}:", [f"if {test}:", [f"{out}.append({item})"]]]
    issue = f"Return the list of the {which.replace('_', ' ')} that occur {spoken.replace('_', ' ')} {k} times."
    args = draws.one(lambda r: draws.integers(r, (2,), 0, 4, longest=9))
    name = f"list_of_{which}_occurring_{spoken}_{k}_times"
    return Draft(name, plural, [f"{out} = []", *loop, f"return {out}"], issue, args)
