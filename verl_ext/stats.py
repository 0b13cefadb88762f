"""Intervals for pass rates: Wilson for a share, and a normal interval for a paired difference, clustered by task.

Sessions of one task are alike, so that the task, not the session, is the unit of independence: every task contributes
one number, its pass rate or its difference of pass rates. Sources: Wilson (1927), "Probable inference, the law of
succession, and statistical inference"; Miller (2024), arXiv 2411.00640, for paired and clustered evaluation errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from verl_ext.types import BadInput


@dataclass(frozen=True)
class Estimate:
    """A value with its interval.

    Attributes:
        value: The point estimate.
        low, high: Bounds of the interval.
        tasks: Number of independent units.
    """

    value: float
    low: float
    high: float
    tasks: int


def wilson(passed: float, total: int, level: float = 0.95) -> Estimate:
    """Wilson score interval for a share.

    Args:
        passed: Number of successes, 0 to ``total``.
        total: Number of independent trials.
        level: Coverage, in (0, 1).

    Raises:
        BadInput: ``total`` is not positive or ``passed`` lies outside 0 to ``total``.
    """
    if total <= 0 or not 0 <= passed <= total:
        raise BadInput(f"a share needs 0 <= passed <= total and total > 0, not {passed} of {total}")
    z = _z(level)
    share = passed / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    low = 0.0 if passed == 0 else centre - half  # exact ends, where rounding would cross them
    high = 1.0 if passed == total else centre + half
    return Estimate(share, low, high, total)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Mean of independent values with the interval ``mean ± t · s / sqrt(n)``, s the unbiased deviation.

    Args:
        values: One number for each independent unit.
        level: Coverage, in (0, 1).

    Raises:
        BadInput: No value. With a single one the interval is unbounded (``-inf`` to ``inf``).
    """
    n = len(values)
    if n == 0:
        raise BadInput("an interval needs at least one value")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, -math.inf, math.inf, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = student_t(level, n - 1) * math.sqrt(variance / n)
    return Estimate(mean, mean - half, mean + half, n)


def pass_rates(sessions: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Pass rate of each task, from ``(task_id, passed)`` of its sessions."""
    by_task: dict[str, list[float]] = {}
    for task_id, passed in sessions:
        by_task.setdefault(task_id, []).append(float(passed))
    return {task_id: math.fsum(values) / len(values) for task_id, values in by_task.items()}


def rate(rates: Mapping[str, float], level: float = 0.95) -> Estimate:
    """Mean pass rate over tasks, clustered: one number a task."""
    estimate = mean_interval(list(rates.values()), level)
    return Estimate(estimate.value, max(0.0, estimate.low), min(1.0, estimate.high), estimate.tasks)


def paired_difference(before: Mapping[str, float], after: Mapping[str, float], level: float = 0.95) -> Estimate:
    """Mean over tasks of ``after - before``, with its interval; the pairing takes out how hard each task is.

    Args:
        before, after: Pass rate by task, over the same tasks.
        level: Coverage, in (0, 1).

    Raises:
        BadInput: The tasks differ.
    """
    if before.keys() != after.keys():
        only = sorted(before.keys() ^ after.keys())
        raise BadInput(f"a paired difference needs the same tasks on both sides; {len(only)} differ, e.g. {only[0]}")
    return mean_interval([after[task] - before[task] for task in sorted(before)], level)


def _z(level: float) -> float:
    if not 0 < level < 1:
        raise BadInput(f"a coverage level lies between 0 and 1, not {level}")
    return NormalDist().inv_cdf(0.5 + level / 2)


def student_t(level: float, freedom: int) -> float:
    """Two-sided critical value of Student's t: ``P(|T| <= t) = level``, by bisection on the exact distribution."""
    _z(level)
    low, high = 0.0, 1.0
    while _t_within(high, freedom) < level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, freedom) < level else (low, middle)
    return (low + high) / 2


def _t_within(t: float, freedom: int) -> float:
    """``P(|T| <= t)`` in closed form for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
