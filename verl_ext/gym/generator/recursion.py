"""Recursive functions, where base cases and the order of arguments matter."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, shuffled, template
from verl_ext.gym.generator.predicates import digit, predicate


@template("numeric")
def recursive_fold(rng: random.Random) -> Draft:
    """``recursive_sum_of_even_values``: the first element, then the rest."""
    (plural, _), p = words.noun(rng), predicate(rng)
    first, rest = f"{plural}[0]", rng.choice(("rest", "others"))
    what, base, combine = rng.choice(
        (
            ("sum", "0", f"{first} + {rest}"),
            ("count", "0", f"{rest} + 1"),
            ("product", "1", f"{first} * {rest}"),
            ("list", "[]", f"[{first}] + {rest}"),
        )
    )
    name = f"recursive_{what}_of_{p.name(plural)}"
    body = [
        f"if not {plural}:",
        [f"return {base}"],
        f"{rest} = {name}({plural}[1:])",
        f"if {p.holds(first)}:",
        [f"return {combine}"],
        f"return {rest}",
    ]
    issue = f"Return the {what} of the {p.words(plural)}, by recursion."
    args = draws.one(lambda r: draws.integers(r, p.edges))
    return Draft(name, plural, body, issue, args)


@template("numeric")
def recursive_digits(rng: random.Random) -> Draft:
    """``recursive_sum_of_even_digits_of_number``."""
    number, p, base = rng.choice(("number", "value")), digit(rng), rng.choice((10, 10, 8))
    rest = rng.choice(("rest", "others"))
    what, combine = rng.choice((("sum", f"{rest} + digit"), ("count", f"{rest} + 1")))
    tail = "" if base == 10 else f"_in_base_{base}"
    name = f"recursive_{what}_of_{p.name('digits')}_of_{number}{tail}"
    body = [
        f"if {number} == 0:",
        ["return 0"],
        *shuffled(rng, [f"digit = {number} % {base}", f"{rest} = {name}({number} // {base})"]),
        f"if {p.holds('digit')}:",
        [f"return {combine}"],
        f"return {rest}",
    ]
    issue = f"Return the {what} of the {p.words('digits')} in base {base} of the {number}, 0 for 0, by recursion."
    args = draws.one(lambda r: r.choice((0, r.randint(1, 9), r.randint(10, 99), r.randint(100, 99999))))
    return Draft(name, number, body, issue, args)


@template("numeric")
def recursive_number(rng: random.Random) -> Draft:
    """``recursive_product_of_integers_from_number_down_to_2``, powers, steps."""
    number, k = rng.choice(("number", "value", "count")), rng.randint(2, 6)
    low = rng.randint(1, 3)
    kind, base, code, issue, condition = rng.choice(
        (
            (
                "sum_of_integers_from_{low}_up_to_{n}",
                "0",
                "{n} + {f}({n} - 1)",
                "the sum of the integers from {low} up to the {n}",
                "{n} < {low}",
            ),
            (
                "product_of_integers_from_{low}_up_to_{n}",
                "1",
                "{n} * {f}({n} - 1)",
                "the product of the integers from {low} up to the {n}",
                "{n} < {low}",
            ),
            (
                "list_of_integers_from_{low}_up_to_{n}",
                "[]",
                "{f}({n} - 1) + [{n}]",
                "the list of the integers from {low} up to the {n}",
                "{n} < {low}",
            ),
            (
                "list_of_integers_from_{n}_down_to_{low}",
                "[]",
                "[{n}] + {f}({n} - 1)",
                "the list of the integers from the {n} down to {low}",
                "{n} < {low}",
            ),
            ("{k}_to_the_power_of_{n}", "1", "{k} * {f}({n} - 1)", "{k} to the power of the {n}, 1 below 1", "{n} < 1"),
            (
                "sum_of_every_{k}_down_from_{n}",
                "0",
                "{n} + {f}({n} - {k})",
                "the sum of the {n}, the {n} minus {k}, and so on while positive",
                "{n} <= 0",
            ),
            (
                "count_of_halvings_of_{n}_down_to_{low}",
                "0",
                "1 + {f}({n} // 2)",
                "how often the {n} can be halved until it is at most {low}",
                "{n} <= {low}",
            ),
        )
    )
    fill = {"n": number, "k": k, "low": low}
    name = f"recursive_{kind.format(**fill)}".replace(f"recursive_{k}_to", f"recursive_power_{k}_to")
    body = [f"if {condition.format(**fill)}:", [f"return {base}"], f"return {code.format(f=name, **fill)}"]
    args = draws.one(lambda r: r.randint(-1, 12))
    return Draft(name, number, body, f"Return {issue.format(**fill)}, by recursion.", args)


@template("numeric")
def recurrence(rng: random.Random) -> Draft:
    """``nth_of_sequence_from_1_and_2_adding_last_two``: loops that update two variables."""
    first, second = rng.randint(0, 3), rng.randint(1, 4)
    k = rng.randint(1, 3)
    name_n = rng.choice(("n", "count", "index"))
    word, code = rng.choice(
        (
            ("a_plus_b", "a + b"),
            (f"a_plus_b_plus_{k}", f"a + b + {k}"),
            (f"{k + 1}_times_b_minus_a", f"{k + 1} * b - a"),
            (f"{k + 1}_times_a_plus_b", f"{k + 1} * a + b"),
        )
    )
    if rng.random() < 0.5:
        steps = [f"a, b = b, {code}"]
    else:
        steps = [f"c = {code}", "a = b", "b = c"]
    start = shuffled(rng, [f"a = {first}", f"b = {second}"])
    body = [*start, f"for _ in range({name_n}):", steps, "return a"]
    name = f"term_{name_n}_of_sequence_a_{first}_b_{second}_next_{word}"
    spoken = word.replace("_", " ")
    issue = f"Return term {name_n} (from 0) of the sequence that starts with a = {first}, b = {second}, next {spoken}."
    return Draft(name, name_n, body, issue, draws.one(lambda r: r.randint(0, 11)))


@template("numeric")
def gcd_like(rng: random.Random) -> Draft:
    """``greatest_common_divisor_of_first_and_second``, ``least_common_multiple_..``."""
    a, b = rng.choice((("a", "b"), ("first", "second"), ("left", "right"), ("x", "y")))
    kind = rng.choice(("loop", "recursive", "multiple", "coprime", "subtract"))
    pair = f"{a}_and_{b}"
    loop = [f"while {b} != 0:", [f"{a}, {b} = {b}, {a} % {b}"]]
    if kind == "loop":
        name, body = f"greatest_common_divisor_of_{pair}", [*loop, f"return {a}"]
        issue = f"Return the greatest common divisor of {a} and {b}."
    elif kind == "recursive":
        name = f"recursive_greatest_common_divisor_of_{pair}"
        body = [f"if {b} == 0:", [f"return {a}"], f"return {name}({b}, {a} % {b})"]
        issue = f"Return the greatest common divisor of {a} and {b}, by recursion."
    elif kind == "multiple":
        name = f"least_common_multiple_of_{pair}"
        body = [f"product = {a} * {b}", *loop, f"return product // {a}"]
        issue = f"Return the least common multiple of {a} and {b}."
    elif kind == "coprime":
        name, body = f"are_{pair}_without_common_divisor", [*loop, f"return {a} == 1"]
        issue = f"Return whether {a} and {b} have no common divisor but 1."
    else:
        name = f"greatest_common_divisor_of_{pair}_by_subtraction"
        body = [
            f"while {a} != {b}:",
            [f"if {a} > {b}:", [f"{a} = {a} - {b}"], "else:", [f"{b} = {b} - {a}"]],
            f"return {a}",
        ]
        issue = f"Return the greatest common divisor of {a} and {b}, by subtraction."

    def args(r: random.Random) -> tuple[int, int]:
        k = r.choice((1, 2, 3, 5))
        return k * r.randint(1, 9), k * r.randint(1, 9)

    return Draft(name, f"{a}, {b}", body, issue, args)
