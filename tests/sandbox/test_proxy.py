"""The import proxy: ordinary pytest files judge a jailed solution, and no answer of it can steer pytest."""

import pytest

from verl_ext.sandbox import Limits
from verl_ext.types import Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOLUTION = """
from collections import Counter, deque
from decimal import Decimal

class Short(Exception):
    def __init__(self, need):
        super().__init__(f"need {need}")
        self.need = need

class Overdrawn(Short): pass

class Account:
    rate = 2
    def __init__(self, n=0): self.n = n
    def pay(self, x):
        if x > self.n: raise Overdrawn(x - self.n)
        self.n -= x
        return self
    def __len__(self): return self.n
    def __contains__(self, x): return x <= self.n
    def __getitem__(self, i): return [self.n, i]
    def __add__(self, other): return Account(self.n + other.n)
    def __enter__(self): return self
    def __exit__(self, *_): self.n = -1
    def __eq__(self, other): return True
    def __bool__(self): return True
    def __hash__(self): return 1

def sort(xs): xs.sort()
def fill(d, *, key): d[key].append(1); d["new"] = (key,)
def count(s): return Counter(s)
def library(): return Decimal("1.5"), deque([1]), 2j, range(3)
def numbers(n): yield from range(n)
def total(accounts): return sum(a.n for a in accounts)
def number(text): return int(text)
def missing(d): return d["gone"]
"""

HONEST = """
import pytest
import solution
from solution import *
from solution import Account as Konto, Short

def test_objects():
    a = Account(5)
    assert a.pay(2).n == 3
    assert len(a) == 3 and 2 in a and 4 not in a and a[7] == [3, 7]
    a.n = 10
    assert (a + Konto(1)).n == 11
    assert solution.Account.rate == 2
    with a as same:
        assert same.n == 10
    assert a.n == -1
    assert total([Account(1), Account(2)]) == 3

def test_exceptions():
    with pytest.raises(Short, match="need 3") as caught:
        Account(2).pay(5)
    assert caught.value.need == 3
    assert type(caught.value) is solution.Overdrawn
    with pytest.raises(ValueError, match="invalid literal"):
        number("x")
    with pytest.raises(KeyError) as caught:
        missing({})
    assert caught.value.args == ("gone",)

def test_arguments_changed_in_place():
    xs = [3, 1, 2]
    sort(xs)
    assert xs == [1, 2, 3]
    inner = []
    d = {"a": inner}
    fill(d, key="a")
    assert d == {"a": [1], "new": ("a",)}

def test_library_values():
    from collections import deque
    from decimal import Decimal
    assert count("aab") == {"a": 2, "b": 1}
    assert library() == (Decimal("1.5"), deque([1]), 2j, range(3))
    assert list(numbers(3)) == [0, 1, 2]

@pytest.mark.parametrize("n", [0, 4])
def test_parameters(n):
    assert len(list(numbers(n))) == n

class TestInAClass:
    @pytest.fixture
    def account(self):
        return Account(7)

    def test_fixture(self, account):
        assert account.n == 7
"""


async def grade(sandbox, solution, tests, **limits):
    verdict = await sandbox.grade({"solution.py": solution}, Tests(files={"test_it.py": tests}), Limits(**limits))
    assert verdict.trust == "proxy"
    return verdict


async def test_an_honest_solution_passes(sandbox):
    verdict = await grade(sandbox, SOLUTION, HONEST)
    assert verdict.passed, verdict
    assert [case.name for case in verdict.cases] == [
        "test_it.py::test_objects",
        "test_it.py::test_exceptions",
        "test_it.py::test_arguments_changed_in_place",
        "test_it.py::test_library_values",
        "test_it.py::test_parameters[0]",
        "test_it.py::test_parameters[4]",
        "test_it.py::TestInAClass::test_fixture",
    ]


async def test_a_wrong_solution_fails_where_it_is_wrong(sandbox):
    verdict = await grade(sandbox, SOLUTION.replace("xs.sort()", "pass"), HONEST)
    assert [case.passed for case in verdict.cases] == [True, True, False, True, True, True, True]
    assert verdict.failure == "wrong"
    assert "[3, 1, 2]" in verdict.cases[2].error


NOT_A_PASS = {
    "skip": "import pytest\ndef test_a(): pytest.skip()",
    "xfail": "import pytest\n@pytest.mark.xfail\ndef test_a(): assert 0",
    "unexpected_pass": "import pytest\n@pytest.mark.xfail\ndef test_a(): pass",
    "module_skip": "import pytest\npytest.skip(allow_module_level=True)\ndef test_a(): pass",
    "no_tests": "x = 1",
    "broken_teardown": "import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert 0\ndef test_a(f): pass",
    "objects_compared": "from solution import Account\ndef test_a(): assert Account(1) == Account(2)",
    "object_as_truth": "from solution import Account\ndef test_a(): assert Account(1)",
    "object_hashed": "from solution import Account\ndef test_a(): assert {Account(1): 0}",
    "refusal_caught": "import pytest\nfrom solution import Account\ndef test_a():\n"
    "    with pytest.raises(BaseException): assert Account(1) == Account(2)",
    "callback": "from solution import sort\ndef test_a(): sort(lambda: 0)",
    "isinstance": "from solution import Account\ndef test_a(): assert isinstance(Account(1), Account)",
}


@pytest.mark.parametrize("name", NOT_A_PASS)
async def test_what_is_no_evidence_does_not_pass(sandbox, name):
    verdict = await grade(sandbox, SOLUTION, NOT_A_PASS[name])
    assert len(verdict.cases) == 1
    assert not verdict.passed and not verdict.cases[0].passed
    assert verdict.failure == "wrong" if name != "module_skip" else True


ADD_TEST = "import pytest\nfrom solution import add\ndef test_a(): assert add(2, 3) == 5\n" + (
    "def test_b():\n    with pytest.raises(Exception): add(None, 1)\n"
)

ATTACKS = {
    "exit_in_call": ("died", "import os\ndef add(a, b): os._exit(0)"),
    "exit_at_import": ("died", "import os; os._exit(0)"),
    "import_error": ("import", "raise RuntimeError('no')"),
    "spin": ("timeout", "def add(a, b):\n    while True: pass"),
    "always_equal": ("wrong", "class Y(int):\n    __eq__ = lambda s, o: True\ndef add(a, b): return Y()"),
    "skip": (
        "exception",
        "class SkipTest(Exception): pass\nSkipTest.__module__ = 'unittest.case'\ndef add(a, b): raise SkipTest",
    ),
    "keyboard_interrupt": ("exception", "def add(a, b): raise KeyboardInterrupt"),
    "system_exit": ("exception", "def add(a, b): raise SystemExit(0)"),
    "patch_pytest": (
        "wrong",
        "import sys, types\nsys.modules['pytest'] = sys.modules['_pytest'] = types.ModuleType('pytest')\n"
        "def add(a, b): return 0",
    ),
    "broken_answers": (
        "protocol",
        "from verl_ext.sandbox import handles\nhandles.refs.pack = lambda *a: {'$': 'ref', 'v': ['error', 'x']}\n"
        "def add(a, b): return 0",
    ),
    "mark_module_as_skipped": (
        "wrong",
        "class M:\n    name = 'skip'; args = (); kwargs = {}\npytestmark = [M()]\n__test__ = False\n"
        "def add(a, b): return 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
async def test_attacks_fail_as_the_policys_fault(sandbox, name):
    kind, solution = ATTACKS[name]
    verdict = await grade(sandbox, solution, ADD_TEST, cpu_seconds=0.3, call_seconds=2.0)
    assert not verdict.passed
    assert not verdict.cases[0].passed
    assert verdict.failure == kind, verdict


async def test_a_death_is_no_exception_of_the_solution(sandbox):
    """``pytest.raises(Exception)`` must not take a dead worker for the exception it waits for."""
    tests = "import pytest, solution\ndef test_a():\n    with pytest.raises(BaseException): solution.add(None, 1)\n"
    verdict = await grade(sandbox, "import os\ndef add(a, b): os._exit(0)", tests)
    assert not verdict.passed
    assert verdict.failure == "died"


async def test_cases_and_files_together_and_packages(sandbox):
    from verl_ext.types import Case

    sources = {"shop/__init__.py": "", "shop/price.py": "def total(xs): return sum(xs)"}
    tests = Tests(
        module="shop.price",
        cases=(Case("total", ([1, 2],), expected=3),),
        files={
            "test_price.py": "from shop.price import total\nimport shop.price\ndef test_a(): assert total([4]) == 4"
        },
    )
    verdict = await sandbox.grade(sources, tests)
    assert verdict.passed, verdict
    assert [case.name for case in verdict.cases] == ["total([1, 2])", "test_price.py::test_a"]
