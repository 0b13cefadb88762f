"""Bug operators: each on an example worked out by hand, and what must hold for every mutant of every program."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_ext.gym.catalogue import PROGRAMS
from verl_ext.gym.edits import apply, compiles
from verl_ext.gym.generator import generate
from verl_ext.gym.operators import OPERATORS, mutants, repair_edits
from verl_ext.types import BadInput

SOURCE = '''\
def pick(values, low, high=1):
    """Words like < and 0 in a docstring stay."""
    if not values:
        raise ValueError("no values")
    best = None
    total = 0
    for i in range(1, len(values)):
        value = values[i]  # a comment
        if low <= value and value in (3, 4):
            best = value
            total += value * 2
    rest = values[1:]
    return divmod(total, high), best
'''

EXAMPLES: dict[str, list[tuple[int, str]]] = {
    "comparison_strictness": [(9, "        if low < value and value in (3, 4):")],
    "comparison_direction": [(9, "        if low >= value and value in (3, 4):")],
    "off_by_one": [
        (7, "    for i in range(2, len(values)):"),
        (7, "    for i in range(0, len(values)):"),
        (7, "    for i in range(1, len(values) + 1):"),
        (7, "    for i in range(1, len(values) - 1):"),
        (8, "        value = values[i + 1]  # a comment"),
        (8, "        value = values[i - 1]  # a comment"),
        (9, "        if low <= value + 1 and value in (3, 4):"),
        (9, "        if low <= value - 1 and value in (3, 4):"),
    ],
    "arithmetic_swap": [
        (11, "            total -= value * 2"),
        (11, "            total += value // 2"),
        (11, "            total += value / 2"),
    ],
    "boolean_swap": [(9, "        if low <= value or value in (3, 4):")],
    "missing_negation": [
        (3, "    if values:"),
        (9, "        if low <= value and value not in (3, 4):"),
    ],
    "wrong_initial_value": [(5, "    best = 0"), (6, "    total = 1")],
    "wrong_default": [(1, "def pick(values, low, high=0):")],
    "wrong_return": [(13, "    return divmod(total, high)"), (13, "    return None")],
    "swapped_arguments": [
        (7, "    for i in range(len(values), 1):"),
        (13, "    return best, divmod(total, high)"),
        (13, "    return divmod(high, total), best"),
    ],
    "wrong_slice": [(12, "    rest = values[2:]"), (12, "    rest = values[0:]"), (12, "    rest = values[:1]")],
    "wrong_accumulator": [(10, "            best += value"), (11, "            total = value * 2")],
    "swallowed_exception": [(4, "        return None"), (4, "        pass")],
}


@pytest.mark.parametrize("operator", EXAMPLES)
def test_example(operator: str) -> None:
    found = mutants(SOURCE, operator)
    lines = SOURCE.splitlines()
    expected = ["\n".join([*lines[: n - 1], text, *lines[n:], ""]) for n, text in EXAMPLES[operator]]
    assert sorted(m.source for m in found) == sorted(expected)
    assert sorted(m.line for m in found) == sorted(n for n, _ in EXAMPLES[operator])
    assert {m.operator for m in found} == {operator}


def test_wrong_variable_takes_locals_bound_above() -> None:
    source = "def f(a, b):\n    c = a\n    d = b.x + g(c)\n    return d\n"
    lines = [(m.line, m.source.splitlines()[m.line - 1]) for m in mutants(source, "wrong_variable")]
    assert lines == [(2, "    c = b"), (3, "    d = b.x + g(a)"), (3, "    d = b.x + g(b)")]


def test_wrong_return_of_a_variable() -> None:
    source = "def f(a):\n    n = 0\n    return n\n"
    assert [m.source.splitlines()[2] for m in mutants(source, "wrong_return")] == [
        "    return a",
        "    return n + 1",
        "    return n - 1",
        "    return None",
    ]


def test_early_return_slips_into_the_loop_above() -> None:
    source = "def f(a):\n    for b in a:\n        a += b\n    return a\n"
    (mutant,) = mutants(source, "early_return")
    assert mutant.source == "def f(a):\n    for b in a:\n        a += b\n        return a\n"
    assert repair_edits(mutant.source, source) == [(4, "dedent")]


def test_missing_base_case_removes_the_guard() -> None:
    source = "def f(n):\n    if n < 2:\n        return n\n    return f(n - 1)\n"
    (mutant,) = mutants(source, "missing_base_case")
    assert mutant.source == "def f(n):\n    return f(n - 1)\n"
    assert mutant.line == 2
    assert repair_edits(mutant.source, source) == []


def test_every_operator_has_an_example() -> None:
    here = {"wrong_variable", "early_return", "missing_base_case"}
    assert set(EXAMPLES) | here == set(OPERATORS)


def test_a_held_out_operator_shares_no_mutant_with_a_trained_one() -> None:
    source = "def f(x, i, j=0):\n    return x[i + 1 :], x[: j - 1], x.get(i, 0)\n"
    held = {m.source for o in ("wrong_slice", "wrong_default") for m in mutants(source, o)}
    shifted = {m.source for o in ("off_by_one", "wrong_initial_value") for m in mutants(source, o)}
    assert held
    assert not held & shifted


def test_non_ascii_text_does_not_move_a_change() -> None:
    source = "def f(x, y):\n    return 'é ü', y if x < y else x\n"
    (mutant,) = mutants(source, "comparison_strictness")
    assert mutant.source == source.replace("<", "<=")
    assert "    return 'é ü', x if x < y else x" in {
        m.source.splitlines()[1] for m in mutants(source, "wrong_variable")
    }


def test_bad_input_says_what_is_wrong() -> None:
    with pytest.raises(BadInput, match="unknown bug operator 'typo'; choose from comparison_strictness"):
        mutants("x = 1\n", "typo")
    with pytest.raises(BadInput, match="does not parse"):
        mutants("def f(:\n", "off_by_one")


def _check(source: str) -> None:
    for operator in OPERATORS:
        found = mutants(source, operator)
        assert len({m.source for m in found}) == len(found)
        for mutant in found:
            assert compiles(mutant.source)
            _one_place(source, mutant.source, mutant.line)
            for line, op in repair_edits(mutant.source, source):
                assert apply(mutant.source, line, op) == source


def _one_place(source: str, mutated: str, line: int) -> None:
    """The lines above and, counted from the end, below the change are the same."""
    before, after = source.splitlines(), mutated.splitlines()
    assert before != after
    assert before[: line - 1] == after[: line - 1]
    tail = 0
    while tail < min(len(before), len(after)) and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    if len(before) == len(after):
        assert len(before) - tail == line
    else:
        assert len(before) > len(after), "only the removal of a block changes the number of lines"


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_mutants_of_generated_programs(seed: int) -> None:
    _check(generate(random.Random(seed)).source)


def test_mutants_of_hand_written_programs() -> None:
    for program in PROGRAMS[::40]:
        _check(program.source)
