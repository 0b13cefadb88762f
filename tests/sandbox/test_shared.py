"""Tests beside the solution: what cannot cross the proxy works, and made-up success is found out."""

import pytest

from tests.attacks.suite import FUNCTION
from verl_ext.sandbox import Limits, open_sandbox
from verl_ext.types import Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOLUTION = """
import json

class Base:
    def name(self): return "base"
    def greet(self): return f"hello {self.name()}"

def read(path): return json.load(open(path))
def each(values, call): return [call(value) for value in values]
def same(value): return value
"""

NEEDS_ITS_PROCESS = """
import pytest
import solution
from solution import Base, each, read, same

class Named(Base):
    def name(self): return "named"

def test_subclass():
    assert Named().greet() == "hello named"
    assert isinstance(Named(), Base)

def test_patch(monkeypatch, tmp_path):
    monkeypatch.setattr(solution.json, "load", lambda file: 42)
    (tmp_path / "x").write_text("")
    assert read(tmp_path / "x") == 42

@pytest.mark.parametrize("n", [1, 2])
def test_callback(n):
    assert each([n], lambda v: v + 1) == [n + 1]

class TestIdentity:
    def test_it(self):
        value = object()
        assert same(value) is value
"""


async def grade(sandbox, solution, tests, **limits):
    files = {"test_it.py": tests} if isinstance(tests, str) else tests
    verdict = await sandbox.grade({"solution.py": solution}, Tests(files=files, shared=True), Limits(**limits))
    assert verdict.trust == "shared"
    return verdict


async def test_what_cannot_cross_the_proxy_passes_here(sandbox):
    verdict = await grade(sandbox, SOLUTION, NEEDS_ITS_PROCESS)
    assert verdict.passed, verdict
    assert {case.name for case in verdict.cases} == {
        "test_it.py::test_subclass",
        "test_it.py::test_patch",
        "test_it.py::test_callback[1]",
        "test_it.py::test_callback[2]",
        "test_it.py::TestIdentity::test_it",
    }


async def test_a_wrong_solution_fails_where_it_is_wrong(sandbox):
    verdict = await grade(sandbox, SOLUTION.replace("return value", "return [value]"), NEEDS_ITS_PROCESS)
    assert [case.name for case in verdict.cases if not case.passed] == ["test_it.py::TestIdentity::test_it"]
    assert verdict.failure == "wrong"


async def test_a_conftest_of_the_data_set_is_used_and_one_of_the_policy_is_not(sandbox):
    files = {
        "conftest.py": "import pytest\n@pytest.fixture\ndef three(): return 3\n",
        "test_it.py": "from solution import same\ndef test_a(three): assert same(three) == 3\n",
    }
    assert (await grade(sandbox, SOLUTION, files)).passed
    hostile = {"solution.py": SOLUTION, "conftest.py": "collect_ignore_glob = ['*']"}
    assert (await sandbox.grade(hostile, Tests(files=files, shared=True))).passed


@pytest.mark.parametrize(
    "tests",
    [
        "import pytest\ndef test_a(): pytest.skip()",
        "import pytest\n@pytest.mark.xfail\ndef test_a(): assert 0",
        "x = 1",
        "import pytest\npytest.skip(allow_module_level=True)\ndef test_a(): pass",
        "import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert 0\ndef test_a(f): pass",
    ],
)
async def test_what_is_no_evidence_does_not_pass(sandbox, tests):
    verdict = await grade(sandbox, SOLUTION, tests)
    assert not verdict.passed and verdict.failure == "wrong"


FOUND_OUT = {
    "pytest_runs_nothing": "protocol",
    "pytest_reports_success": "protocol",
    "exit_at_import": "import",
    "hard_exit_in_call": "died",
    "spin": "timeout",
    "own_assertion_error": "exception",
}


@pytest.mark.parametrize("name", FOUND_OUT)
async def test_made_up_success_is_found_out(sandbox, name):
    (attack,) = (attack for attack in FUNCTION.attacks if attack.name == name)
    tests = Tests(files={"test_it.py": FUNCTION.pytest}, shared=True)
    verdict = await sandbox.grade(attack.sources, tests, Limits(total_seconds=8.0))
    assert not verdict.passed
    assert verdict.failure == FOUND_OUT[name], verdict


async def test_an_object_that_equals_everything_still_fools_it(sandbox):
    """Said in docs/sandbox.md; should it ever fail, say so there."""
    (attack,) = (attack for attack in FUNCTION.attacks if attack.name == "always_equal")
    verdict = await sandbox.grade(attack.sources, Tests(files={"test_it.py": FUNCTION.pytest}, shared=True))
    assert verdict.passed and verdict.trust == "shared"


async def test_it_works_without_isolation_too():
    with pytest.warns(UserWarning, match="isolation='none'"):
        plain = await open_sandbox(isolation="none", workers=1)
    try:
        assert (await grade(plain, SOLUTION, NEEDS_ITS_PROCESS)).passed
    finally:
        await plain.aclose()
