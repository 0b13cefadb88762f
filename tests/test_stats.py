"""Intervals against hand-computed and tabulated values (Wilson's also against Newcombe 1998)."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_ext import stats
from verl_ext.types import BadInput


def test_wilson_by_hand():
    # 3 of 10, z = 1.959964: centre (0.3 + 0.192073) / 1.384146 = 0.355506, half 0.247705.
    estimate = stats.wilson(3, 10)
    assert estimate.value == 0.3
    assert estimate.low == pytest.approx(0.1078, abs=5e-5)
    assert estimate.high == pytest.approx(0.6032, abs=5e-5)


def test_wilson_at_the_edges():
    # 0 of n: high = z²/(n + z²) = 3.841459 / 13.841459
    nothing = stats.wilson(0, 10)
    assert (nothing.low, nothing.high) == (pytest.approx(0.0, abs=1e-12), pytest.approx(0.277533, abs=1e-6))
    everything = stats.wilson(10, 10)
    assert (everything.low, everything.high) == (pytest.approx(1 - 0.277533, abs=1e-6), pytest.approx(1.0))


@pytest.mark.parametrize(("passed", "total"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_nonsense(passed, total):
    with pytest.raises(BadInput):
        stats.wilson(passed, total)


@given(st.integers(1, 60), st.data())
def test_wilson_is_the_inverted_score_test(total, data):
    passed = data.draw(st.integers(0, total))
    estimate = stats.wilson(passed, total)
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    for bound in (estimate.low, estimate.high):
        if 1e-9 < bound < 1 - 1e-9:  # at an inner bound the score statistic is exactly z
            z = abs(estimate.value - bound) / math.sqrt(bound * (1 - bound) / total)
            assert z == pytest.approx(1.959964, abs=1e-5)


@pytest.mark.parametrize(
    ("freedom", "level", "table"),
    [
        (1, 0.95, 12.7062),
        (2, 0.95, 4.3027),
        (3, 0.95, 3.1824),
        (4, 0.95, 2.7764),
        (9, 0.95, 2.2622),
        (30, 0.95, 2.0423),
        (100, 0.95, 1.9840),
        (399, 0.95, 1.9659),
        (1, 0.5, 1.0),
        (7, 0.99, 3.4995),
    ],
)
def test_student_t_against_the_table(freedom, level, table):
    assert stats.student_t(level, freedom) == pytest.approx(table, abs=6e-5)


def test_mean_interval_by_hand():
    # 1, 2, 3, 4: mean 2.5, s² = 5/3, standard error sqrt(5/12) = 0.645497, t(3) = 3.182446, half 2.054260.
    estimate = stats.mean_interval([1, 2, 3, 4])
    assert estimate.value == 2.5
    assert estimate.high - estimate.value == pytest.approx(2.054260, abs=1e-5)
    assert estimate.value - estimate.low == pytest.approx(2.054260, abs=1e-5)


def test_one_task_says_nothing_about_others():
    estimate = stats.mean_interval([0.5])
    assert (estimate.low, estimate.high) == (-math.inf, math.inf)
    with pytest.raises(BadInput):
        stats.mean_interval([])


def test_sessions_are_clustered_by_task():
    rates = stats.pass_rates([("a", 1), ("b", 0), ("a", 0), ("b", 0), ("a", True), ("a", 0.0)])
    assert rates == {"a": 0.5, "b": 0.0}
    # Two tasks, however many sessions: t(1) = 12.7062 times 0.25, clipped to a share.
    assert stats.rate(rates) == stats.Estimate(0.25, 0.0, 1.0, 2)


def test_paired_difference_by_hand():
    before = {"a": 0.0, "b": 0.5, "c": 1.0}
    after = {"c": 1.0, "a": 0.5, "b": 1.0}
    # Differences 0.5, 0.5, 0: mean 1/3, s² = 1/12, standard error 1/6, t(2) = 4.302653, half 0.717109.
    estimate = stats.paired_difference(before, after)
    assert estimate.value == pytest.approx(1 / 3)
    assert estimate.high == pytest.approx(1 / 3 + 0.717109, abs=1e-5)
    assert estimate.tasks == 3


def test_constant_gain_has_no_width_however_hard_the_tasks():
    before = {str(i): i / 20 for i in range(10)}
    estimate = stats.paired_difference(before, {task: rate + 0.25 for task, rate in before.items()})
    assert (estimate.low, estimate.high) == (pytest.approx(0.25), pytest.approx(0.25))


def test_unpaired_tasks_are_refused():
    with pytest.raises(BadInput, match=r"1 differ, e\.g\. b"):
        stats.paired_difference({"a": 1.0, "b": 0.0}, {"a": 1.0})


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = random.Random(0)
    covered = 0
    for _ in range(1000):
        gains = [rng.gauss(0.1, 0.3) for _ in range(8)]
        estimate = stats.mean_interval(gains)
        covered += estimate.low <= 0.1 <= estimate.high
    assert 930 <= covered <= 970  # 950 expected, standard error 7


def test_exact_over_every_outcome_of_small_samples():
    # All 2^4 outcomes of four fair coins: the mean of the point estimates is the truth.
    values = [stats.mean_interval(outcome).value for outcome in itertools.product((0, 1), repeat=4)]
    assert sum(values) / len(values) == 0.5
