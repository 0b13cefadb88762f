"""Loops over ranges of integers: sums and counts up to a limit, digits, divisors, bases."""

from __future__ import annotations

import random

from verl_ext.gym.generator import draws, words
from verl_ext.gym.generator.core import Draft, add, keep_if, shuffled, template
from verl_ext.gym.generator.predicates import comparison, digit, natural

# words after the name, parameters, arguments of range, words of the issue
_SPANS = (
    ("up_to_limit", "limit", "1, limit + 1", "from 1 up to and including limit"),
    ("below_limit", "limit", "1, limit", "from 1 up to but not including limit"),
    ("from_0_up_to_limit", "limit", "limit + 1", "from 0 up to and including limit"),
    ("from_0_below_limit", "limit", "limit", "from 0 up to but not including limit"),
    ("from_start_up_to_end", "start, end", "start, end + 1", "from start up to and including end"),
    ("from_start_below_end", "start, end", "start, end", "from start up to but not including end"),
    ("from_limit_down_to_1", "limit", "limit, 0, -1", "from limit down to and including 1"),
)


def _span_args(params: str, edges: tuple[int, ...]):
    def args(r: random.Random) -> tuple[int, ...]:
        if params == "limit":
            return (draws.integer(r, (1, *edges), 0, 14),)
        start = draws.integer(r, edges, -3, 8)
        return (start, start + r.randint(-1, 9))

    return args


@template("numeric")
def range_fold(rng: random.Random) -> Draft:
    """``sum_of_even_integers_up_to_limit``."""
    p, (tail, params, bounds, meaning) = natural(rng), rng.choice(_SPANS)
    i = rng.choice(("i", "number", "value"))
    what, target, first, step = rng.choice(
        (
            ("sum", words.total(rng), "0", ("+", i)),
            ("count", words.count(rng), "0", ("+", "1")),
            ("product", "product", "1", ("*", i)),
        )
    )
    loop = [f"for {i} in range({bounds}):", keep_if(rng, p.holds(i), p.fails(i), [add(rng, target, *step)])]
    body = [f"{target} = {first}", *loop, f"return {target}"]
    issue = f"Return the {what} of the {p.words('integers')}, of those {meaning}."
    return Draft(f"{what}_of_{p.name('integers')}_{tail}", params, body, issue, _span_args(params, p.edges))


@template("numeric")
def range_list(rng: random.Random) -> Draft:
    """``list_of_squares_of_integers_up_to_limit``."""
    tail, params, bounds, meaning = rng.choice(_SPANS)
    i, out = rng.choice(("i", "number", "value")), words.out(rng)
    k = rng.randint(2, 9)
    what, code = rng.choice(
        (
            ("squares", f"{i} * {i}"),
            ("cubes", f"{i} * {i} * {i}"),
            (f"multiples_by_{k}", f"{i} * {k}"),
            (f"remainders_by_{k}", f"{i} % {k}"),
            (f"quotients_by_{k}", f"{i} // {k}"),
            (f"differences_from_{k}", f"{k} - {i}"),
        )
    )
    body = [f"{out} = []", f"for {i} in range({bounds}):", [f"{out}.append({code})"], f"return {out}"]
    issue = f"Return the list of {what.replace('_', ' ')} of the integers {meaning}."
    return Draft(f"list_of_{what}_of_integers_{tail}", params, body, issue, _span_args(params, (k,)))


def _digit_args(r: random.Random) -> tuple[int]:
    return (r.choice((0, r.randint(1, 9), r.randint(10, 99), r.randint(100, 9999), r.choice((10, 100, 909, 5050)))),)


@template("numeric")
def digit_fold(rng: random.Random) -> Draft:
    """``sum_of_even_digits_of_number``: digits by ``% 10`` and ``// 10``."""
    p, number = digit(rng), rng.choice(("number", "value"))
    what, target, first, step = rng.choice(
        (
            ("sum", words.total(rng), "0", ("+", "digit")),
            ("count", words.count(rng), "0", ("+", "1")),
            ("product", "product", "1", ("*", "digit")),
        )
    )
    read = [f"digit = {number} % 10", f"{number} = {number} // 10"]
    loop = [
        f"while {number} > 0:",
        [*read, *keep_if(rng, p.holds("digit"), p.fails("digit"), [add(rng, target, *step)])],
    ]
    body = [f"{target} = {first}", *loop, f"return {target}"]
    issue = f"Return the {what} of the {p.words('digits')} of the {number}, which is not negative (0 has no digits)."
    return Draft(f"{what}_of_{p.name('digits')}_of_{number}", number, body, issue, _digit_args)


@template("numeric")
def extremal_digit(rng: random.Random) -> Draft:
    """``largest_digit_of_number``."""
    number, best = rng.choice(("number", "value", "code")), words.best(rng)
    what, operator, first = rng.choice((("largest", ">", "0"), ("smallest", "<", "9")))
    base = rng.choice((10, 10, 8, 5))
    first = first if what == "largest" else str(base - 1)
    read = [f"digit = {number} % {base}", f"{number} = {number} // {base}"]
    loop = [f"while {number} > 0:", [*read, f"if digit {operator} {best}:", [f"{best} = digit"]]]
    tail = "" if base == 10 else f"_in_base_{base}"
    issue = f"Return the {what} digit in base {base} of the {number}, {first} for 0; it is not negative."
    return Draft(
        f"{what}_digit_of_{number}{tail}", number, [f"{best} = {first}", *loop, f"return {best}"], issue, _digit_args
    )


@template("numeric")
def to_base(rng: random.Random) -> Draft:
    """``digits_of_number_in_base_3``, lowest or highest first."""
    number, out = rng.choice(("number", "value")), words.out(rng)
    base, low_first = rng.randint(2, 9), rng.random() < 0.5
    read = [f"digit = {number} % {base}", f"{number} = {number} // {base}"]
    push = f"{out}.append(digit)" if low_first else f"{out} = [digit] + {out}"
    order = "lowest" if low_first else "highest"
    body = [f"{out} = []", f"while {number} > 0:", [*read, push], f"return {out}"]
    issue = f"Return the digits of the {number} in base {base}, {order} first, [] for 0."
    return Draft(f"digits_of_{number}_in_base_{base}_{order}_first", number, body, issue, _digit_args)


@template("numeric")
def from_base(rng: random.Random) -> Draft:
    """``number_from_digits_in_base_3``."""
    base, total, low_first = rng.randint(2, 10), words.total(rng), rng.random() < 0.4
    if low_first:
        start = shuffled(rng, [f"{total} = 0", "power = 1"])
        body = [*start, "for digit in digits:", [f"{total} += digit * power", f"power = power * {base}"]]
    else:
        body = [f"{total} = 0", "for digit in digits:", [f"{total} = {total} * {base} + digit"]]
    order = "lowest" if low_first else "highest"
    issue = f"Return the number with these digits in base {base}, {order} digit first."
    args = draws.one(lambda r: [r.randrange(base) for _ in range(draws.length(r, 5))])
    name = f"number_from_digits_in_base_{base}_{order}_first"
    return Draft(name, "digits", [*body, f"return {total}"], issue, args)


@template("numeric")
def divisors(rng: random.Random) -> Draft:
    """``count_of_divisors_of_number_above_1``."""
    number, p = rng.choice(("number", "value")), comparison(rng)
    what, target, amount = rng.choice((("sum", words.total(rng), "i"), ("count", words.count(rng), "1")))
    proper = rng.random() < 0.5
    kind = "proper divisors" if proper else "divisors"
    end = number if proper else f"{number} + 1"
    test = f"{number} % i == 0 and {p.holds('i')}"
    body = [
        f"{target} = 0",
        f"for i in range(1, {end}):",
        [f"if {test}:", [add(rng, target, "+", amount)]],
        f"return {target}",
    ]
    more = ", itself excluded" if proper else ", itself included"
    issue = f"Return the {what} of the {p.words(kind)} of the {number}{more}."
    args = draws.one(lambda r: r.choice((p.edges[0], 2 * p.edges[0], 6, 12, r.randint(1, 36), r.randint(1, 36))))
    return Draft(f"{what}_of_{p.name(kind.replace(' ', '_'))}_of_{number}", number, body, issue, args)


@template("numeric")
def steps_until(rng: random.Random) -> Draft:
    """``count_of_halvings_until_number_below_3``."""
    number, count = rng.choice(("number", "value", "size")), words.count(rng)
    k, limit = rng.randint(2, 5), rng.randint(2, 9)
    what, code, up = rng.choice(
        (
            (f"divisions_by_{k}", f"{number} // {k}", False),
            (f"subtractions_of_{k}", f"{number} - {k}", False),
            (f"additions_of_{k}", f"{number} + {k}", True),
        )
    )
    wanted, test = rng.choice((("above", "<="), ("at_least", "<")) if up else (("below", ">="), ("at_most", ">")))
    bound = limit + 10 if up else limit
    loop = [f"while {number} {test} {bound}:", shuffled(rng, [f"{number} = {code}", f"{count} += 1"])]
    done = f"{wanted.replace('_', ' ')} {bound}"
    issue = f"Return how many {what.replace('_', ' ')} it takes until the {number} is {done}."
    args = draws.one(lambda r: draws.integer(r, (bound, bound - k, bound + k), 0, 40))
    name = f"count_of_{what}_until_{number}_{wanted}_{bound}"
    return Draft(name, number, [f"{count} = 0", *loop, f"return {count}"], issue, args)


@template("numeric")
def smallest_integer(rng: random.Random) -> Draft:
    """``smallest_integer_with_square_above_limit``."""
    i = rng.choice(("i", "number", "root"))
    k = rng.randint(2, 9)
    kind, code = rng.choice(
        (("square", f"{i} * {i}"), ("cube", f"{i} * {i} * {i}"), (f"multiple_by_{k}", f"{i} * {k}"))
    )
    wanted, test = rng.choice((("above", "<="), ("at_least", "<")))
    start = rng.randint(0, 2)
    loop = [f"while {code} {test} limit:", [add(rng, i, "+", "1")]]
    which = f"{kind} {wanted}".replace("_", " ")
    issue = f"Return the smallest integer from {start} on with a {which} the limit."
    args = draws.one(lambda r: r.choice((0, 1, 4, 8, 9, 16, 27, k, 2 * k, 3 * k, r.randint(-2, 60), r.randint(-2, 60))))
    name = f"smallest_integer_from_{start}_with_{kind}_{wanted}_limit"
    return Draft(name, "limit", [f"{i} = {start}", *loop, f"return {i}"], issue, args)
