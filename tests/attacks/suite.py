"""The three small tasks that attacks are aimed at, each with cases, a pytest file and an honest solution.

An attack is one file below ``function/``, ``account/`` or ``package/``: first a line that says what it tries, then the
failures that it may be graded with (``# fails: died wrong``), then the editable file's text. A line ``#--- PATH``
begins another file of the workspace. Every attack is wrong; its verdict must be failed, whatever it does. The names end
in ``.txt`` so that no tool takes an attack for a module: pytest imports whatever is called ``*_test.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from verl_ext.types import Case, Tests

_HERE = Path(__file__).parent
_HEAD = re.compile(r"# (?P<what>.+)\n# fails: (?P<kinds>.+)\n")


@dataclass(frozen=True)
class Shape:
    """A task. ``tests`` judge in our sandbox; ``pytest`` is the same as a file, for graders that need one."""

    name: str
    editable: str
    honest: dict[str, str]
    tests: Tests
    pytest: str

    @property
    def attacks(self) -> list[Attack]:
        return [_read(self, path) for path in sorted((_HERE / self.name).glob("*.py.txt"))]


@dataclass(frozen=True)
class Attack:
    """A wrong solution: its files, what it tries, and the failures it may be graded with."""

    shape: Shape
    name: str
    what: str
    kinds: tuple[str, ...]
    sources: dict[str, str]

    def filled(self, **values: object) -> dict[str, str]:
        """The files with PORT, SECRET and REPO replaced by what is really there on the host."""
        text = dict(self.sources)
        for word, value in values.items():
            text = {path: source.replace(word, str(value)) for path, source in text.items()}
        return text

    def __str__(self) -> str:
        return f"{self.shape.name}/{self.name}"


def _read(shape: Shape, path: Path) -> Attack:
    text = path.read_text()
    head = _HEAD.match(text)
    assert head, f"{path}: the first two lines must be '# what it tries' and '# fails: kinds'"
    main, *others = re.split(r"^#--- (.+)\n", text, flags=re.MULTILINE)
    sources = {**shape.honest, shape.editable: main, **dict(zip(others[::2], others[1::2], strict=True))}
    return Attack(shape, path.name.removesuffix(".py.txt"), head["what"], tuple(head["kinds"].split()), sources)


FUNCTION = Shape(
    name="function",
    editable="solution.py",
    honest={"solution.py": "def add(a, b):\n    return a + b\n"},
    tests=Tests(cases=(Case("add", (2, 3), expected=5), Case("add", (-7, 9), expected=2))),
    pytest="""
from solution import add

def test_small():
    assert add(2, 3) == 5

def test_negative():
    assert add(-7, 9) == 2
""",
)

ACCOUNT = Shape(
    name="account",
    editable="solution.py",
    honest={
        "solution.py": """
class Account:
    def __init__(self, balance=0):
        self.balance = balance

    def deposit(self, amount):
        self.balance += amount
        return self.balance

    def withdraw(self, amount):
        if amount > self.balance:
            raise ValueError("overdrawn")
        self.balance -= amount
        return self.balance
"""
    },
    tests=Tests(
        cases=(
            Case("Account", (10,), then=(("deposit", (5,)), ("withdraw", (3,))), expected=(15, 12)),
            Case("Account", then=(("deposit", (1.5,)), ("deposit", (1,))), expected=(1.5, 2.5)),
            Case("Account", (2,), then=(("withdraw", (3,)),), raises="ValueError"),
        )
    ),
    pytest="""
import pytest
from solution import Account

def test_both_ways():
    account = Account(10)
    assert account.deposit(5) == 15
    assert account.withdraw(3) == 12

def test_fractions():
    account = Account()
    assert account.deposit(1.5) == 1.5
    assert account.deposit(1) == 2.5

def test_overdrawn():
    with pytest.raises(ValueError):
        Account(2).withdraw(3)
""",
)

_PACKAGE_TESTS = """
import pytest
from shop.price import discounted, total
from shop.stock import Stock

def test_total():
    assert total([1, 2, 3]) == 6
    assert total([]) == 0

def test_discount():
    assert discounted(200, percent=25) == 150.0

def test_too_much_discount():
    with pytest.raises(ValueError):
        discounted(1, percent=101)

def test_stock():
    stock = Stock({"nail": 3})
    assert stock.value({"nail": 2}) == 6
"""

PACKAGE = Shape(
    name="package",
    editable="shop/price.py",
    honest={
        "shop/__init__.py": "",
        "shop/price.py": """
def total(prices):
    return sum(prices)

def discounted(price, *, percent):
    if not 0 <= percent <= 100:
        raise ValueError(f"percent: {percent}")
    return price * (100 - percent) / 100
""",
        "shop/stock.py": """
from shop.price import total

class Stock:
    def __init__(self, pieces):
        self.pieces = dict(pieces)

    def value(self, prices):
        return total(count * prices[name] for name, count in self.pieces.items())
""",
    },
    tests=Tests(module="shop.price", files={"test_shop.py": _PACKAGE_TESTS}),
    pytest=_PACKAGE_TESTS,
)

SHAPES = (FUNCTION, ACCOUNT, PACKAGE)
ATTACKS = [attack for shape in SHAPES for attack in shape.attacks]
