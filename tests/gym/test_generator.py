"""The generator: determinism, variety, and that each name tells the truth about its code.

The specifications in :data:`SPECS` read the function's NAME and nothing else, so that agreement with the code shows
that the name states the intent in full. A second test demands that two programs with one name do the same.
"""

from __future__ import annotations

import ast
import copy
import math
import random
import re
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from verl_ext.gym import generator
from verl_ext.gym.generator import TEMPLATES, generate, generate_many
from verl_ext.gym.generator.core import make
from verl_ext.gym.program import Program
from verl_ext.types import BadInput


def outcome(program: Program, args: tuple[Any, ...]) -> Any:
    """What the reference returns, or the name of what it raises."""
    try:
        return compiled(program.source, program.name)(*copy.deepcopy(args))
    except ValueError:
        return "ValueError"


@cache
def compiled(source: str, name: str) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)
    return space[name]


def drawn(template: str, count: int) -> list[Program]:
    rng = random.Random(f"test {template}")
    return [make(template, rng) for _ in range(count)]


def cases(program: Program, count: int) -> list[tuple[Any, ...]]:
    rng = random.Random(program.name)
    return [program.inputs(rng).args for _ in range(count)]


# --- what a name says --------------------------------------------------------------------------------------------

_NOUN = r"(?:values|numbers|items|scores|prices|sizes|integers|digits|cells)"


def said(name: str, x: int) -> bool:
    """Whether ``x`` qualifies by the words of a name, read without the generator's tables."""
    checks = []
    if match := re.search(rf"(even|odd|positive|negative|nonzero)(?:_and_|_{_NOUN}|$)", name):
        checks.append(
            {"even": x % 2 == 0, "odd": x % 2 == 1, "positive": x > 0, "negative": x < 0, "nonzero": x != 0}[match[1]]
        )
    if match := re.search(r"below_(\d+)_or_above_(\d+)", name):
        return x not in range(int(match[1]), int(match[2]) + 1)
    if match := re.search(r"between_(\d+)_and_(\d+)", name):
        return x in range(int(match[1]), int(match[2]) + 1)
    if match := re.search(
        r"(above|at_least|below|at_most|not_equal_to|equal_to|not_divisible_by|divisible_by)_(\d+)", name
    ):
        k = int(match[2])
        checks.append(
            {
                "above": x - k > 0,
                "at_least": x - k > -1,
                "below": x - k < 0,
                "at_most": x - k < 1,
                "equal_to": x - k == 0,
                "not_equal_to": x - k != 0,
                "divisible_by": x % k == 0,
                "not_divisible_by": x % k > 0,
            }[match[1]]
        )
    assert checks, f"{name} names no predicate"
    return all(checks)


def chosen(name: str, xs: list[int]) -> list[int]:
    return [x for x in xs if said(name, x)]


def missing(name: str) -> Any:
    """What the end of a name promises when nothing qualifies."""
    spoken = re.search(r"_or_(none|0|minus_1|error)$", name)
    return {"none": None, "0": 0, "minus_1": -1, "error": "ValueError"}[spoken[1]]


def index(name: str, xs: list[int]) -> int | str:
    at = [i for i, x in enumerate(xs) if said(name, x)]
    return missing(name) if not at else at[0] if name.startswith("first") else at[-1]


def extreme(name: str, xs: list[int]) -> int | str | None:
    return missing(name) if not xs else max(xs) if name.startswith("largest") else min(xs)


def clamped(name: str, x: int, *bounds: int) -> int:
    low, high = bounds or map(int, re.findall(r"\d+", name))
    return sorted((low, x, high))[1]


def bounded(name: str, xs: list[int], target: int) -> int:
    found = {
        "first_index_at_least": bisect_left(xs, target),
        "first_index_above": bisect_right(xs, target),
        "last_index_below": bisect_left(xs, target) - 1,
        "last_index_at_most": bisect_right(xs, target) - 1,
        "count_below": sum(x < target for x in xs),
        "count_at_most": sum(x <= target for x in xs),
        "count_above": sum(x > target for x in xs),
        "count_at_least": sum(x >= target for x in xs),
    }
    return found[re.match(r"(.*?)_(?:target|wanted)_in", name)[1]]


def quantified(name: str, xs: list[int]) -> bool:
    holds = [said(name, x) for x in xs]
    return {"all": all(holds), "any": any(holds), "no": not any(holds)}[name.split("_")[0]]


def merged(name: str, a: list[int], b: list[int]) -> list[int] | int:
    common = sorted((Counter(a) & Counter(b)).elements(), reverse="falling" in name)
    if name.startswith("merge"):
        return sorted(a + b, reverse="falling" in name)
    return len(common) if name.startswith("count") else common


def kth(name: str, xs: list[int]) -> Any:
    step = ["second", "third", "fourth"].index(re.search(r"every_(\w+?)_of", name)[1]) + 2
    part = xs[int(name[-1]) :: step]
    return {"sum": sum, "product": math.prod, "list": list, "count": len}[name.split("_")[0]](part)


def base_digits(name: str, number: int) -> list[int]:
    base, out = int(re.search(r"base_(\d)", name)[1]), []
    while number:
        number, digit = divmod(number, base)
        out.append(digit)
    return out if name.endswith("lowest_first") else out[::-1]


def gcd_family(name: str, a: int, b: int) -> int | bool:
    if name.startswith("are"):
        return math.gcd(a, b) == 1
    return math.lcm(a, b) if name.startswith("least") else math.gcd(a, b)


SPECS: dict[str, Callable[..., Any]] = {
    "sum_where": lambda name, xs: sum(chosen(name, xs)),
    "count_where": lambda name, xs: len(chosen(name, xs)),
    "product_where": lambda name, xs: math.prod(chosen(name, xs)),
    "list_where": lambda name, xs: chosen(name, xs),
    "recursive_fold": lambda name, xs: {"sum": sum, "count": len, "product": math.prod, "list": list}[
        name.split("_")[1]
    ](chosen(name, xs)),
    "average_where": lambda name, xs: fmean(chosen(name, xs)) if chosen(name, xs) else missing(name),
    "partition_where": lambda name, xs: sorted(xs, key=lambda x: not said(name, x)),
    "extremum": extreme,
    "extremum_where": lambda name, xs: extreme(name, chosen(name, xs)),
    "index_where": index,
    "quantified": quantified,
    "binary_search": bounded,
    "clamp": clamped,
    "merged": merged,
    "every_kth": kth,
    "to_base": base_digits,
    "gcd_like": gcd_family,
    "distinct_count": lambda name, xs: {"sum": sum, "count": len}[name.split("_")[0]](set(chosen(name, xs))),
    "cells_where": lambda name, rows: {"sum": sum, "count": len}[name.split("_")[0]](
        chosen(name, [x for row in rows for x in row])
    ),
    "digit_fold": lambda name, n: {"sum": sum, "count": len, "product": math.prod}[name.split("_")[0]](
        chosen(name, [int(c) for c in str(n)] if n else [])
    ),
}


@pytest.mark.parametrize("template", SPECS)
def test_the_name_alone_predicts_the_code(template: str) -> None:
    for program in drawn(template, 60):
        for args in cases(program, 12):
            want = SPECS[template](program.name, *copy.deepcopy(args))
            got = outcome(program, args)
            assert got == want and (type(got) is type(want) or isinstance(got, float)), (program.source, args)


def test_one_name_is_one_function() -> None:
    """Loop style, order of statements and identifiers vary under a name; what it computes does not."""
    by_name: dict[str, dict[str, Program]] = defaultdict(dict)
    for template in TEMPLATES:
        for program in drawn(template, 60):
            by_name[program.name][program.source] = program
    compared = 0
    for variants in by_name.values():
        first, *others = variants.values()
        for other in others[:3]:
            compared += 1
            for args in cases(first, 12):
                # lifted defaults are a variant with more parameters; its extra arguments are not shared
                shared = args[: min(len(p.source.partition(")")[0].split(",")) for p in (first, other))]
                assert outcome(first, shared) == outcome(other, shared), (first.source, other.source, shared)
    assert compared > 250


# --- shape of the programs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_gives_short_programs_with_telling_inputs(template: str) -> None:
    constant = 0
    for program in drawn(template, 12):
        tree = ast.parse(program.source)
        (function,) = tree.body
        assert isinstance(function, ast.FunctionDef) and function.name == program.name
        assert program.template == template and program.family and program.issue.endswith(".")
        lines = program.source.splitlines()
        assert 3 <= len(lines) <= 14 and max(map(len, lines)) <= 100 and program.source.endswith("\n")
        inputs = cases(program, 60)
        assert len({repr(args) for args in inputs}) >= 10
        constant += len({repr(outcome(program, args)) for args in inputs}) == 1
        case = program.inputs(random.Random(0))
        assert case.call == program.name and not case.kwargs and not case.then and case.raises is None
    assert constant <= 3


def test_inputs_are_plain_and_repeatable() -> None:
    for program in generate_many(5, 300):
        first, second = cases(program, 5), cases(program, 5)
        assert first == second
        for args in first:
            assert ast.literal_eval(repr(args)) == args
            before = copy.deepcopy(args)
            again = [outcome(program, args) for _ in range(2)]
            assert again[0] == again[1] and args == before


@pytest.mark.parametrize(
    ("template", "boundary"),
    [("count_where", lambda args, k: k in args[0]), ("clamp", lambda args, k: args[0] == k)],
)
def test_inputs_visit_the_constants(template: str, boundary: Callable[[tuple, int], bool]) -> None:
    for program in drawn(template, 30):
        for k in {int(k) for k in re.findall(r"(?<=_)\d+", program.name)}:
            assert any(boundary(args, k) for args in cases(program, 60)), program.name


def test_empty_single_tied_and_negative_lists_occur() -> None:
    lists = [args[0] for program in drawn("sum_where", 20) for args in cases(program, 20)]
    share = {
        "empty": sum(not xs for xs in lists),
        "single": sum(len(xs) == 1 for xs in lists),
        "tied": sum(len(set(xs)) < len(xs) for xs in lists),
        "negative": sum(any(x < 0 for x in xs) for xs in lists),
    }
    assert all(count > len(lists) // 20 for count in share.values()), share


# --- variety and determinism -------------------------------------------------------------------------------------


def test_many_are_unique_spread_and_quick() -> None:
    started = time.perf_counter()
    programs = generate_many(0, 2600)
    assert time.perf_counter() - started < 5
    assert len(programs) == 2600
    assert len({p.name for p in programs}) == len({p.source for p in programs}) == 2600
    spread = Counter(p.template for p in programs)
    assert set(spread) == set(TEMPLATES) and len(TEMPLATES) >= 24
    assert max(spread.values()) < 2600 // 20
    assert len({p.family for p in programs}) >= 8


def test_six_thousand_are_possible() -> None:
    assert len({p.source for p in generate_many(1, 6000)}) == 6000


def test_the_same_seed_gives_the_same_programs() -> None:
    def texts(seed: int, count: int) -> list[tuple[str, str, str, Any]]:
        return [(p.name, p.source, p.issue, p.inputs(random.Random(1)).args) for p in generate_many(seed, count)]

    assert texts(3, 200) == texts(3, 200)
    assert texts(3, 50) == texts(3, 200)[:50]
    assert texts(3, 50) != texts(4, 50)
    assert generate(random.Random(9)).source == generate(random.Random(9)).source


def test_asking_for_too_many_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "TEMPLATES", ("extremal_word", "count_of_extremum"))
    with pytest.raises(BadInput, match=r"count=500 is more .* at most 24$"):
        generate_many(0, 500)
