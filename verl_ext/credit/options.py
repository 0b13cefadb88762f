"""Checks of an estimator's settings: one line that names the key, the value and what is allowed."""

from __future__ import annotations

import math
from numbers import Real

from verl_ext.types import BadInput


def choice(name: str, value: object, allowed: tuple[str | None, ...]) -> None:
    """Refuse a value that is not one of ``allowed``."""
    if value not in allowed:
        raise BadInput(f"credit {name}={value!r}: must be {' or '.join(map(str, allowed))}")


def number(name: str, value: object, allowed: str, low: float = 0.0, high: float = math.inf, open_low=False) -> None:
    """Refuse what is not a finite number within bounds; ``allowed`` says the bounds in words."""
    good = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and low <= value <= high
    if not good or (open_low and value == low):
        raise BadInput(f"credit {name}={value!r}: must be {allowed}")


def discount(name: str, value: object) -> None:
    """Refuse a discount outside (0, 1]."""
    number(name, value, "in (0, 1]", high=1.0, open_low=True)


def weight(name: str, value: object) -> None:
    """Refuse a negative or infinite weight."""
    number(name, value, "a finite number, 0 or more")
