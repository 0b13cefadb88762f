"""The hand-written programs: well-formed, deterministic, and drawn on inputs that tell right from wrong."""

import ast
import builtins
import copy
import functools
import io
import random
import tokenize

import pytest

from verl_ext.gym.catalogue import PROGRAMS
from verl_ext.types import Case

by_name = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
DRAWS = 60
ALLOWED = {
    "ValueError",
    "KeyError",
    "IndexError",
    "ZeroDivisionError",
    "TypeError",
    "RuntimeError",
    "LookupError",
    "OverflowError",
}


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
            assert what in ALLOWED and hasattr(builtins, what)
    assert sum(kind == "value" for kind, _ in outcomes) >= DRAWS / 2


@by_name
def test_exceptions_are_part_of_the_stated_intent(program):
    """An input that raises is fair only where the issue names the exception."""
    raised = {what for case in draw(program, 1) for kind, what in [run(program, case)] if kind == "raises"}
    assert all(name in program.issue for name in raised)


def test_no_draw_changes_with_the_order_of_programs():
    """Draws take all their randomness from the generator they are given."""
    random.seed(1)
    first = [draw(program, 3, 2) for program in PROGRAMS]
    random.seed(2)
    assert first[::-1] == [draw(program, 3, 2) for program in reversed(PROGRAMS)]
