"""The edit menu: each transform on lines worked out by hand, and what must hold for every edit of every program."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_ext.gym.catalogue import PROGRAMS
from verl_ext.gym.edits import OPS, applicable, apply, compiles
from verl_ext.gym.generator import generate

HEAD = "def f(values, limit, flag):\n    total = 0\n    for i, value in enumerate(values):\n"
"""The line under test is line 4, in a loop, with values, limit, flag, total, i, value as locals."""

SINGLE = [
    ("strict", "if value < limit: pass", "if value <= limit: pass"),
    ("strict", "if 1 >= value > limit: pass", "if 1 > value > limit: pass"),
    ("strict", "total += value", None),
    ("flip", "if value <= limit: pass", "if value >= limit: pass"),
    ("flip", "if '<' in values: pass", None),
    ("equal", "if value == limit: pass", "if value != limit: pass"),
    ("negate", "if value in values: pass", "if value not in values: pass"),
    ("negate", "if value is  not None: pass", "if value is None: pass"),
    ("negate", "if not flag: pass", "if flag: pass"),
    ("negate", "if flag and value: pass", "if not flag and value: pass"),
    ("negate", "for value in values: pass", None),
    ("plus_one", "total = values[i - 1]", "total = values[i]"),
    ("plus_one", "if value > limit: pass", "if value > limit + 1: pass"),
    ("plus_one", "for i in range(2, len(values) // 2): pass", "for i in range(2, len(values) // 2 + 1): pass"),
    ("plus_one", "for i in range(len(values) - 1, -1, -1): pass", "for i in range(len(values) - 1, 0, -1): pass"),
    ("plus_one", "total = values[1:i]", "total = values[1:i + 1]"),
    ("plus_one", "total = value", None),
    ("plus_one", "values.append('x')", None),
    ("minus_one", "return i", "return i - 1"),
    ("minus_one", "total = value // 10", "total = value // 9"),
    ("arith", "total += value", "total -= value"),
    ("arith", "total = -value * 2 + i", "total = -value // 2 + i"),
    ("arith", "total = -value", None),
    ("arith", "print(*values)", None),
    ("division", "total = value / 2", "total = value // 2"),
    ("division", "total = value % 2", "total = value // 2"),
    ("division", "total //= 2", "total %= 2"),
    ("boolean", "if flag and value or limit: pass", "if flag or value or limit: pass"),
    ("constant", "total = 0", "total = 1"),
    ("constant", "flag = False", "flag = True"),
    ("constant", "limit = float('inf')", "limit = float('-inf')"),
    ("constant", "total += 1", None),
    ("constant", "return -1", None),
    ("variable", "total += value", "total += values"),
    ("variable", "total += i", "total += value"),
    ("variable", "print(values, 'x')", "print(limit, 'x')"),
    ("variable", "total = sum(v for v in values)", "total = sum(v for v in limit)"),
    ("variable", "total = undefined", None),
    ("swap", "total = divmod(value, limit)", "total = divmod(limit, value)"),
    ("swap", "total = limit - value", "total = value - limit"),
    ("swap", "return value, total", "return total, value"),
    ("swap", "total = min(value, limit)", None),
    ("swap", "total = value + limit", None),
    ("accumulate", "total += value", "total = value"),
    ("accumulate", "total = value", "total += value"),
    ("accumulate", "fresh = value", None),
    ("dedent", "return total", None),
]


@pytest.mark.parametrize(("op", "line", "expected"), SINGLE)
def test_one_line(op: str, line: str, expected: str | None) -> None:
    source = f"{HEAD}        {line}\n    return total\n"
    assert apply(source, 4, op) == (expected and f"{HEAD}        {expected}\n    return total\n")


def test_every_op_has_an_example() -> None:
    assert {op for op, _, _ in SINGLE} == set(OPS)


def test_dedent_moves_a_return_out_of_its_loop() -> None:
    inside = "def f(x):\n    for y in x:\n        y += 1\n        return y\n"
    assert apply(inside, 4, "dedent") == "def f(x):\n    for y in x:\n        y += 1\n    return y\n"
    assert apply("def f(x):\n    for y in x:\n        return y\n", 3, "dedent") is None, "would leave an empty loop"


def test_a_variable_bound_below_is_no_candidate() -> None:
    source = "def f(a):\n    b = a\n    c = b\n    return c\n"
    assert apply(source, 2, "variable") is None
    assert apply(source, 3, "variable") == "def f(a):\n    b = a\n    c = a\n    return c\n"
    assert apply(source, 4, "variable") == "def f(a):\n    b = a\n    c = b\n    return a\n"


def test_of_two_edits_with_one_outcome_the_first_stays() -> None:
    source = "def f(x):\n    return x == 0\n"
    assert apply(source, 2, "plus_one") == "def f(x):\n    return x == 1\n"
    assert apply(source, 2, "constant") is None


def test_positions_count_bytes_not_characters() -> None:
    source = "def f(x, y):\n    return 'é' + x if x < y else 'ü'\n"
    assert apply(source, 2, "strict") == source.replace("<", "<=")
    assert apply(source, 2, "variable") == source.replace("x < y", "x < x")


@pytest.mark.parametrize("source", ["", "def f(:\n", "x = '\0'\n"])
def test_nothing_applies_to_what_is_no_program(source: str) -> None:
    assert applicable(source) == []
    assert apply(source, 1, "strict") is None


def test_lines_and_ops_that_do_not_exist() -> None:
    assert apply("x = 0\n", 0, "constant") is None
    assert apply("x = 0\n", 3, "constant") is None
    assert apply("x = 0\n", 1, "no such op") is None


def _check(source: str) -> None:
    edits = applicable(source)
    outcomes = [apply(source, line, op) for line, op in edits]
    assert len(set(outcomes)) == len(outcomes)
    for (line, op), text in zip(edits, outcomes, strict=True):
        assert text is not None
        assert compiles(text)
        before, after = source.splitlines(), text.splitlines()
        assert [i for i, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b] == [line]
        # `not x` outside a condition has no way back; everything else in this list has.
        if op in ("strict", "flip", "equal", "boolean") or (op == "negate" and "if" in before[line - 1]):
            assert apply(text, line, op) == source


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_edits_of_generated_programs(seed: int) -> None:
    _check(generate(random.Random(seed)).source)


def test_edits_of_hand_written_programs() -> None:
    for program in PROGRAMS[::4]:
        _check(program.source)


def test_a_menu_is_short_but_not_empty() -> None:
    sizes = [len(applicable(generate(random.Random(seed)).source)) for seed in range(40)]
    assert min(sizes) >= 1
    assert 8 <= sum(sizes) / len(sizes) <= 20
