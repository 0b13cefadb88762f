"""The hand-written programs: well-formed, deterministic, and drawn on inputs that tell right from wrong."""

import ast
import copy
import dataclasses
import functools
import io
import random
import tokenize

import pytest

from verl_ext.gym.catalogue import PROGRAMS
from verl_ext.types import Case

by_name = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
DRAWS = 60
RAISED = {"ValueError", "KeyError", "IndexError", "ZeroDivisionError"}


def draw(program, seed, count=DRAWS):
    rng = random.Random(seed)
    return [program.inputs(rng) for _ in range(count)]


code = functools.cache(lambda source: compile(source, "solution.py", "exec"))


def run(program, case: Case):
    """What the reference does with a case: ``("value", repr)`` or ``("raises", type name)``."""
    space = {"__name__": "solution"}
    exec(code(program.source), space)
    target = space[case.call]
    args = copy.deepcopy(case.args)
    try:
        result = target(*args, **case.kwargs)
        if case.then:
            result = tuple(copy.deepcopy(getattr(result, method)(*args)) for method, args in copy.deepcopy(case.then))
    except Exception as error:
        return "raises", type(error).__name__
    assert plain(result), f"{program.name} returned {result!r}"
    return "value", repr(result)


def plain(value) -> bool:
    if value is None or type(value) in (bool, int, float, str):
        return True
    if type(value) is dict:
        return all(plain(key) and plain(item) for key, item in value.items())
    return type(value) in (list, tuple, set, frozenset) and all(plain(item) for item in value)


def test_size_and_variety():
    assert len(PROGRAMS) >= 80
    assert len({program.family for program in PROGRAMS}) >= 8
    classes = [program for program in PROGRAMS if program.source.startswith("class ")]
    assert len(classes) >= 12


def test_names_and_sources_are_unique():
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
    assert len({program.source for program in PROGRAMS}) == len(PROGRAMS)
    assert len({program.issue for program in PROGRAMS}) == len(PROGRAMS)


@by_name
def test_source_defines_exactly_its_name(program):
    tree = ast.parse(program.source)
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)][-1] == program.name
    assert 5 <= len(program.source.splitlines()) <= 40
    assert program.source.endswith("\n")
    assert not program.source.startswith("\n")
    assert "print(" not in program.source
    tokens = tokenize.generate_tokens(io.StringIO(program.source).readline)
    assert not [token for token in tokens if token.type == tokenize.COMMENT], "a comment may give a bug away"
    assert max(map(len, program.source.splitlines())) <= 100
    assert program.issue.endswith(".")


@by_name
def test_inputs_are_deterministic_varied_and_telling(program):
    cases = draw(program, 0)
    assert cases == draw(program, 0)
    assert len({repr(case) for case in cases}) >= 12
    for case in cases:
        assert case.call == program.name
        assert case.expected is None and case.raises is None
    outcomes = [run(program, case) for case in cases]
    assert outcomes == [run(program, case) for case in cases]
    assert len(set(outcomes)) >= 2
    for kind, what in outcomes:
        if kind == "raises":
            assert what in RAISED and what in program.issue, "an exception is fair only where the issue names it"
    assert sum(kind == "value" for kind, _ in outcomes) >= DRAWS / 2


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("clamp", "if low > high:", "if low >= high:"),
        ("is_prime", "if number < 2:", "if number < 1:"),
        ("truncate_text", "if width < 3:", "if width <= 3:"),
        ("binary_search", "low <= high", "low < high"),
        ("last_index_of", "index >= 0", "index > 0"),
        ("is_search_tree", "value >= high", "value > high"),
        ("merge_intervals", "start <= merged", "start < merged"),
        ("most_simultaneous", "events.append((end, -1))", "events.append((end, 1))"),
        ("minutes_between", "finish < begin", "finish <= begin"),
        ("days_in_month", "month > 12", "month >= 12"),
        ("parse_integer", 'char > "9"', 'char >= "9"'),
        ("lookup_nested", "except KeyError:\n            return default", "except KeyError:\n            pass"),
        ("Wallet", "if amount > self.cents:", "if amount >= self.cents:"),
        ("Wallet", "cents=0", "cents=1"),
        ("VendingMachine", "self.stock -= 1", "self.stock += 1"),
        ("RateLimiter", "<= now", "< now"),
        ("RecentCache", "self.entries.pop(key)\n        self", "self.entries[key]\n        self"),
        ("BookingCalendar", "start < other_end", "start <= other_end"),
    ],
)
def test_draws_notice_a_subtle_bug(name, right, wrong):
    program = next(program for program in PROGRAMS if program.name == name)
    assert right in program.source
    buggy = dataclasses.replace(program, source=program.source.replace(right, wrong))
    noticed = sum(run(program, case) != run(buggy, case) for case in draw(program, 2))
    assert noticed >= 3, "public and hidden tests each need an input that shows the bug"


def test_no_draw_changes_with_the_order_of_programs():
    """Draws take all their randomness from the generator they are given."""
    random.seed(1)
    first = [draw(program, 3, 2) for program in PROGRAMS]
    random.seed(2)
    assert first[::-1] == [draw(program, 3, 2) for program in reversed(PROGRAMS)]
