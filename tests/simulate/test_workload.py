"""Distributions and drawn sessions."""

import random
import statistics

import pytest

from verl_ext.simulate.workload import Parameters, Resampled, Session, StepCosts, distribution, measured
from verl_ext.types import BadInput


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("2.5", 2.5),
        ("constant:2.5", 2.5),
        ("uniform:1:4", 2.5),
        ("exponential:2", 2),
        ("lognormal:2:0.8", 2),
        ("pareto:2:3", 2),
    ],
)
def test_a_distribution_has_the_mean_it_is_given(text, mean):
    found, rng = distribution(text), random.Random(0)
    values = [found.draw(rng) for _ in range(40_000)]
    assert found.mean == pytest.approx(mean)
    assert statistics.fmean(values) == pytest.approx(mean, rel=0.03)
    assert min(values) >= 0


def test_a_pareto_tail_has_its_exponent():
    rng = random.Random(0)
    values = [distribution("pareto:3:1.5").draw(rng) for _ in range(40_000)]
    assert min(values) == pytest.approx(1, rel=0.01)
    for above in (4, 16):  # P(X > x) = x^-1.5 with a least value of 1
        assert sum(value > above for value in values) / len(values) == pytest.approx(above**-1.5, rel=0.1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fast", "'fast' is no distribution; write a number"),
        ("normal:1:2", "is no distribution"),
        ("uniform:1", "is no distribution"),
        ("lognormal:a:b", "is no distribution"),
        ("pareto:1:2:3", "is no distribution"),
        ("", "is no distribution"),
        ("-1", "negative"),
        ("nan", "not finite"),
        ("exponential:inf", "not finite"),
        ("uniform:4:1", "wrong way round"),
        ("pareto:2:1", "has no mean"),
    ],
)
def test_what_is_no_distribution_is_refused_in_one_line(text, says):
    with pytest.raises(BadInput, match=says) as error:
        distribution(text)
    assert "\n" not in str(error.value)


def _parameters(turns="uniform:1:4", seed=0):
    return Parameters(seed, distribution(turns), distribution("exponential:1"), distribution("2"), distribution("0.5"))


def test_a_group_depends_on_seed_and_number_alone():
    groups = [_parameters().group(number, 3) for number in (0, 1, 0)]
    assert groups[0] == groups[2] != groups[1]
    assert _parameters(seed=1).group(0, 3) != groups[0]


def test_turns_are_whole_and_at_least_one():
    sessions = _parameters("uniform:0:3").group(0, 200)
    assert {len(session.turns) for session in sessions} == {1, 2, 3}
    assert all(len(session.tools) == len(session.turns) and session.after == 0.5 for session in sessions)


def test_seconds_of_a_session_are_all_its_parts():
    assert Session((1.0, 2.0), (0.5, 0.25), 4.0).seconds == 7.75


MEASURED = [[Session((1.0,), (9.0,)), Session((2.0,), (9.0,))], [Session((8.0,), (0.0,))]]


def test_measured_sessions_stay_with_their_prompt():
    workload = Resampled(0, MEASURED, 1.0, distribution("3"))
    drawn = [workload.group(number, 2) for number in range(50)]
    kinds = {tuple(sorted(session.turns[0] for session in group)) for group in drawn}
    assert kinds == {(1.0, 2.0), (8.0, 8.0)}  # whole where the size is right, else with replacement
    assert all(session.after == 3 for group in drawn for session in group)


def test_measured_generation_is_brought_to_full_speed_and_tools_are_not():
    drawn = [s for number in range(20) for s in Resampled(0, MEASURED, 0.5, distribution("0")).group(number, 2)]
    assert {(session.turns[0], session.tools[0]) for session in drawn} == {(0.5, 9.0), (1.0, 9.0), (4.0, 0.0)}


def test_step_costs_are_drawn_by_step():
    costs = StepCosts(0, measured([1.0, 2.0, 6.0]), distribution("exponential:1"))
    drawn = [costs.step(number) for number in range(60)]
    assert {train for train, _ in drawn} == {1.0, 2.0, 6.0}
    assert drawn == [costs.step(number) for number in range(60)]
    assert measured([1.0, 2.0, 6.0]).mean == 3
