"""The model against closed forms, and what must hold for any input."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.simulate.samples import AREAL, HEAVY, POLICIES, VERL, play, settings
from verl_ext.simulate.policies import AReaL, OneStepOff, Sync, Verl, one_step
from verl_ext.types import BadInput

QUICK = hypothesis_settings(max_examples=60, deadline=None)


def _mean(histogram):
    return sum(value * count for value, count in histogram.items()) / histogram.total()


# Deterministic times: throughput has a closed form.


def test_a_synchronous_step_is_the_sum_of_its_parts():
    found = play(Sync(3), turns="3", turn_s="2", tool_s="1", after_s="0.5", train_s="5", sync_s="0.5", skip=2)
    generation = 3 * (2 + 1) + 0.5
    assert found.step_s == pytest.approx(generation + 5 + 0.5)
    assert found.sessions_per_s == pytest.approx(3 * 2 / 15)
    assert (found.train, found.wait, found.sync) == pytest.approx((5 / 15, generation / 15, 0.5 / 15))
    assert (found.generate, found.idle) == pytest.approx((6 / 15, (3.5 + 5) / 15))
    assert found.requests == pytest.approx(6 * 6 / 15)
    assert found.age == {0: 10 * 6}
    assert found.span == {1: 10 * 6}


@pytest.mark.parametrize("train", [3, 9])
def test_a_step_of_one_step_off_policy_is_the_longer_part_and_the_sync(train):
    found = play(OneStepOff(3), turn_s="6", train_s=str(train), sync_s="0.5", skip=2)
    assert found.step_s == pytest.approx(max(6, train) + 0.5)
    assert found.wait == pytest.approx((max(6, train) - train) / (max(6, train) + 0.5))
    assert found.age == {1: 10 * 6}
    assert found.span == {1: 10 * 6}


@pytest.mark.parametrize("train", [3, 9])
def test_one_step_ahead_has_two_batches_under_way(train):
    """The next one is handed out before this one has ended, so that a long session does not hold it up."""
    found = play(one_step(3), turn_s="6", train_s=str(train), sync_s="0.5", skip=2)
    assert found.step_s == pytest.approx(max(train, (6 + train) / 2) + 0.5)
    assert found.age == {1: 10 * 6}


@pytest.mark.parametrize("order", ["finished", "submitted"])
@pytest.mark.parametrize("eta", [1, 2, 3])
@pytest.mark.parametrize(("generation", "train"), [(24, 3), (2, 9), (30, 30)])
def test_a_fully_asynchronous_step_without_limits(order, eta, generation, train):
    # A batch is admitted eta versions before its own: eta + 1 steps hold one generation and one training.
    found = play(
        AReaL(2, eta=eta, order=order),
        turn_s=str(generation),
        train_s=str(train),
        sync_s="0.5",
        steps=60,
        skip=12,  # 48 steps, a multiple of every eta + 1: steps may come in bursts
    )
    assert found.step_s == pytest.approx(max(train, (generation + train) / (eta + 1)) + 0.5)
    assert set(found.age) == {eta}


def test_at_the_rollouts_limit_a_step_takes_what_its_sessions_take_of_the_slots():
    found = play(AReaL(4, eta=6), turn_s="3", train_s="1", sync_s="0.5", slots=2, group=1, steps=40, skip=8)
    assert found.step_s == pytest.approx(4 * 3 / 2 + 0.5)
    assert found.generate == pytest.approx(6 / 6.5)
    assert found.idle == pytest.approx(0, abs=1e-12)


def test_at_the_rollouts_limit_a_step_takes_what_its_tokens_take_at_saturation():
    rollout = {"turn_s": "3", "train_s": "1", "sync_s": "0.5", "saturation": 1.5, "group": 1}
    found = play(AReaL(4, eta=0), **rollout)
    assert found.step_s == pytest.approx(4 * 3 / 1.5 + 1 + 0.5)
    found = play(AReaL(4, eta=6), **rollout, steps=84, skip=14)
    assert found.step_s == pytest.approx(4 * 3 / 1.5 + 0.5, rel=0.05)  # equal sessions end at once, in bursts
    assert found.step_s >= 4 * 3 / 1.5 + 0.5


def test_at_the_trainers_limit_it_never_waits():
    found = play(AReaL(4, eta=2), turn_s="3", train_s="7", sync_s="0.5", skip=3)
    assert found.step_s == pytest.approx(7.5)
    assert found.wait == pytest.approx(0, abs=1e-12)


def test_on_one_shared_device_there_is_no_gain_without_tools():
    # Half the speed while both work: the overlap costs what it saves.
    sync = play(Sync(2), turn_s="5", train_s="5")
    shared = play(OneStepOff(2), turn_s="5", train_s="5", overlap_speed=0.5, skip=2)
    assert shared.step_s == pytest.approx(sync.step_s) == pytest.approx(10)
    waits = play(OneStepOff(2), turn_s="0", tool_s="5", train_s="5", overlap_speed=0.5, skip=2)
    assert waits.step_s == pytest.approx(5)  # tools wait beside the trainer


def test_a_look_now_and_then_delays_the_batch_to_the_next_look():
    assert play(Sync(2), turn_s="5", train_s="1", poll_s=3.0).step_s == pytest.approx(6 + 1)


def test_an_interrupted_turn_goes_on_after_the_pause_with_the_new_weights():
    # Two sessions run from 0 to 4 s and are trained by 5 and 6 s. The next two start at these syncs; that at 6 s cuts
    # the first of them with 3 s left, which goes on at 8 s.
    policy, times = AReaL(1, eta=1, order="submitted"), {"turn_s": "4", "train_s": "1", "group": 1, "steps": 4}
    found = play(policy, **times, resume_s=2.0)
    assert found.span == {1: 3, 2: 1}
    assert found.seconds == pytest.approx(8 + 3 + 1 + 1)
    # A sync of 3 s holds it for longer than that; those before it end at 5 and at 8 + 1 s.
    found = play(policy, **times | {"steps": 3}, sync_s="3", resume_s=2.0)
    assert found.seconds == pytest.approx(4 + 2 * (1 + 3) + 3 + 1 + 3)


def test_a_session_that_starts_during_a_sync_has_the_new_version_alone():
    # With one slot each session starts when the one before gets its tool's answer: 0.75 s into a sync of 2 s.
    times = {"turn_s": "0.25", "tool_s": "1", "train_s": "0.5", "sync_s": "2", "group": 1}
    found = play(AReaL(1, eta=3), **times, slots=1)
    assert found.span == {1: 12}
    assert found.age == {0: 1, 1: 11}


# AReaL's rule.


@QUICK
@given(settings(), AREAL)
def test_the_mean_age_is_at_most_eta_whatever_the_order(given, policy):
    # After batch i is taken, at most eta batches are admitted and untrained: Little's law for versions.
    found = play(policy, **given)
    assert sum(age * count for age, count in found.age.items()) <= policy.eta * policy.batch * given["group"] * (
        given["steps"] - 1
    )


@QUICK
@given(settings(), AREAL)
def test_in_order_of_submission_no_session_is_older_than_eta(given, policy):
    policy.order = "submitted"
    assert max(play(policy, **given).age) <= policy.eta


@pytest.mark.parametrize("eta", [0, 1, 2, 5])
def test_the_bound_is_reached(eta):
    found = play(AReaL(2, eta=eta, order="submitted"), turn_s="1", train_s="3", skip=6)
    assert found.age == {eta: 6 * 2 * 2}


def test_by_finished_groups_a_straggler_can_be_older_than_eta():
    heavy = HEAVY | {"train_s": "1", "steps": 60}
    finished, submitted = (play(AReaL(4, eta=1, order=order), **heavy) for order in ("finished", "submitted"))
    assert max(finished.age) > 1
    assert max(submitted.age) == 1
    assert finished.sessions_per_s > submitted.sessions_per_s


@QUICK
@given(settings(), AREAL)
def test_with_eta_0_every_age_is_0(given, policy):
    policy.eta = 0
    assert set(play(policy, **given).age) == {0}


@QUICK
@given(settings(), st.integers(1, 4))
def test_eta_0_is_synchronous_training(given, batch):
    # Slots admit prompts one by one; the sessions of a batch start in the same order.
    sync, areal = play(Sync(batch), **given), play(AReaL(batch, eta=0), **given)
    assert areal.seconds == pytest.approx(sync.seconds)
    assert areal.age == sync.age


@QUICK
@given(settings(sync=False, limits=False), st.integers(1, 4), st.sampled_from(["finished", "submitted"]))
def test_more_staleness_never_takes_longer(given, batch, order):
    # Exact where sessions neither share anything nor are interrupted.
    seconds = [play(AReaL(batch, eta=eta, order=order), **given).seconds for eta in range(4)]
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(seconds))


# verl's V1.


@QUICK
@given(settings(), st.integers(1, 4), st.integers(0, 3))
def test_warm_up_batches_are_areals_eta(given, batch, eta):
    given["slots"] = math.inf  # verl dispatches without asking for room
    areal, verl = play(AReaL(batch, eta=eta), **given), play(Verl(batch, warmup=eta), **given)
    assert verl.seconds == pytest.approx(areal.seconds)
    assert verl.age == areal.age


@QUICK
@given(settings(), VERL)
def test_drop_bounds_the_span_from_dispatch(given, policy):
    policy.strategy = "drop"
    found = play(policy, **given)
    if policy.threshold is not None:
        assert max(found.dispatch_span) <= policy.threshold
    else:
        assert found.counts.dropped == 0


@QUICK
@given(settings(), VERL)
def test_wait_bounds_the_span_by_threshold_and_warm_up(given, policy):
    # What has reached the threshold is finished, but at most a batch of it is trained a step.
    policy.strategy, policy.threshold = "wait", policy.threshold or 2
    found = play(policy, **given)
    new = 1 if policy.threshold == 1 else 0  # the batch of the step itself has reached a threshold of 1
    assert max(found.dispatch_span) <= policy.threshold - 1 + max(math.ceil(policy.warmup) + new, 1)
    assert found.counts.dropped == 0


def test_wait_alone_lets_finished_prompts_grow_older_than_the_threshold():
    found = play(Verl(2, warmup=3, threshold=1, strategy="wait"), turn_s="1", train_s="5")
    assert max(found.dispatch_span) == 4


def test_one_step_off_policy_by_verls_settings():
    assert set(play(one_step(3), turn_s="6", train_s="3", sync_s="0.5", skip=2).dispatch_span) == {2}
    none = play(Verl(3, warmup=1, threshold=1, strategy="wait"), turn_s="6", train_s="3", sync_s="0.5", skip=2)
    assert none.step_s == pytest.approx(6 + 3 + 0.5)  # a threshold of 1 removes the overlap


def test_dropping_prefers_short_sessions():
    heavy = HEAVY | {"train_s": "1", "steps": 60}
    found = play(Verl(4, warmup=1, threshold=2), **heavy)
    assert found.counts.dropped > 10
    assert found.trained_s < 0.9 * found.started_s


def test_updates_of_a_step_need_a_part_of_the_batch_each():
    # Prompts one after the other: the first update starts when half the batch is there.
    found = play(Verl(2, 2, warmup=0), turn_s="3", train_s="4", slots=1, group=1, steps=2)
    assert found.seconds == pytest.approx(2 * (3 + 3 + 2))
    assert play(Verl(2, 1, warmup=0), turn_s="3", train_s="4", slots=1, group=1, steps=2).seconds == pytest.approx(20)


def test_a_batch_that_updates_do_not_divide_is_refused():
    with pytest.raises(BadInput, match="--updates 2 does not divide the batch of 3"):
        Verl(3, 2)


# Any policy.


@QUICK
@given(settings(), POLICIES)
def test_every_prompt_is_trained_once_dropped_or_under_way(given, policy):
    found = play(policy, **given)
    counts = found.counts
    assert counts.trained == policy.batch * given["steps"]
    assert counts.dispatched == counts.trained + counts.dropped + counts.finished + counts.running + counts.waiting
    for histogram in (found.age, found.span, found.dispatch_span):
        assert histogram.total() == counts.trained * given["group"]
    assert min(found.age) >= 0 and min(found.span) >= 1
    assert max(found.age) < max(found.dispatch_span)
    assert max(found.span) - 1 <= max(found.age)


@QUICK
@given(settings(), POLICIES)
def test_shares_of_the_time_sum_to_one(given, policy):
    given["train_s"] = "1"
    found = play(policy, **given)
    assert found.train + found.wait + found.sync == pytest.approx(1)
    assert found.generate + found.idle + found.sync == pytest.approx(1)


@QUICK
@given(settings(), POLICIES)
def test_no_step_is_quicker_than_its_training_and_sync(given, policy):
    given["train_s"] = "1"
    assert play(policy, **given).step_s >= 1 + float(given["sync_s"]) - 1e-9


@QUICK
@given(settings(), POLICIES)
def test_a_seed_gives_the_same_again(given, policy):
    assert play(policy, **given) == play(policy, **given)


@pytest.mark.parametrize("seed", range(4))
def test_with_a_heavy_tail_asynchrony_pays(seed):
    heavy = HEAVY | {"train_s": "6", "sync_s": "0.5", "seed": seed, "steps": 40, "skip": 5}
    rates = [play(policy, **heavy).sessions_per_s for policy in (Sync(4), OneStepOff(4), one_step(4), AReaL(4, eta=3))]
    assert rates == sorted(rates)
    assert rates[-1] > 1.3 * rates[0]


def test_every_mode_meets_the_same_sessions():
    one, other = (play(policy, **HEAVY, steps=20) for policy in (Sync(2), OneStepOff(2)))
    assert one.trained_s == pytest.approx(other.trained_s)


def test_skipped_steps_are_in_no_figure():
    whole, part = (play(OneStepOff(2), turn_s="6", train_s="1", skip=skip) for skip in (0, 1))
    assert (whole.steps, part.steps) == (12, 11)
    assert whole.age == {0: 4, 1: 11 * 4}
    assert part.age == {1: 11 * 4}
    assert _mean(part.dispatch_span) == 2


def test_a_step_without_any_seconds_is_refused():
    with pytest.raises(BadInput, match="no time at all"):
        play(Sync(1), turn_s="0", train_s="0")
