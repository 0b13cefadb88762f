"""Ages, spans and what correction did, by hand; the bound on ages, by playing verl's sampler at its worst."""

from __future__ import annotations

import random

import pytest
import torch
from omegaconf import OmegaConf

from verl_ext.trainer.staleness import (
    age_metrics,
    check_staleness,
    correction_metrics,
    cut_RL,
    largest_age,
    turn_versions,
)
from verl_ext.trainer.turns import Row
from verl_ext.types import BadInput


def turn(index, start, end, versions=None):
    record = {"index": index, "start": start, "end": end}
    return record | ({"versions": versions} if versions else {})


ROWS = [
    Row("g_0_0", (turn(0, 0, 2, [3, 3]), turn(1, 3, 5, [3, 5]))),
    Row("g_0_1", (turn(2, 0, 2, [5, 5]),)),
    Row("g_1_0", (turn(0, 0, 4),)),
    Row("pad", ()),
]
TAGS = [{"min_global_steps": low, "max_global_steps": high} for low, high in [(3, 5), (5, 5), (4, 6), (3, 5)]]


def test_ages_and_spans_by_hand():
    versions = turn_versions(ROWS, TAGS)
    assert versions == {("g", "0"): [(3, 3), (3, 5), (5, 5)], ("g", "1"): [(4, 6)]}  # the last one from its row's tag
    assert age_metrics(versions, trainer_version=6) == {
        "staleness/turn_age/mean": (3 + 3 + 1 + 2) / 4,
        "staleness/turn_age/max": 3,
        "staleness/turn_span/mean": (0 + 2 + 0 + 2) / 4,
        "staleness/turn_span/max": 2,
        "staleness/session_age/mean": (3 + 2) / 2,
        "staleness/session_age/max": 3,
        "staleness/session_span/mean": 2,
        "staleness/session_span/max": 2,
    }
    assert age_metrics({}, 6) == {}


def correction(**settings):
    return {"rollout_is": None, "rollout_is_threshold": 2.0, **settings}


LOG_RATIO = torch.tensor([[3.0, 1.0, 9.0, 0.5, 4.0], [0.25, 8.0, 0.0, 0.0, 0.0]]).clamp(1e-6).log()
MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 0, 0, 0]])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (correction(), [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]),
        (correction(rollout_is="token"), [[1, 0, 0, 0, 1], [0, 1, 0, 0, 0]]),
        (correction(rollout_is="token", rollout_is_threshold="0.5_3.5"), [[0, 0, 0, 0, 1], [1, 1, 0, 0, 0]]),
        (correction(rollout_is="sequence"), [[1, 1, 0, 1, 1], [0, 0, 0, 0, 0]]),  # products 6 and 2
        (correction(rollout_is="token", rollout_is_threshold=1e9), [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]),
    ],
)
def test_cut_weights_by_hand_and_as_verl_cuts_them(settings, expected):
    assert cut_RL(LOG_RATIO, MASK, settings).int().tolist() == expected
    if settings["rollout_is"] is None:
        return
    helper = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper")
    weights, _ = helper.compute_rollout_correction_weights(
        LOG_RATIO, MASK, settings["rollout_is"], settings["rollout_is_threshold"]
    )
    raw = LOG_RATIO.exp() if settings["rollout_is"] == "token" else torch.tensor([[6.0], [2.0]]).expand(2, 5)
    assert ((weights - raw).abs() > 1e-4).logical_and(MASK.bool()).int().tolist() == expected


def test_shares_by_position_of_the_turn():
    rows = [
        Row("g_0_0", (turn(0, 0, 2), turn(3, 3, 5))),
        Row("g_1_0", (turn(9, 0, 2),)),
    ]
    after = MASK.clone()
    after[1] = 0
    found = correction_metrics(rows, LOG_RATIO, MASK, after, correction(rollout_is="token"))
    assert found["staleness/cut"] == pytest.approx(3 / 6)
    assert [found[f"staleness/cut/turn_{i}"] for i in (0, 2, 8)] == [1 / 2, 1 / 2, 1 / 2]
    assert [found[f"staleness/rejected/turn_{i}"] for i in (0, 2, 8)] == [0, 0, 1]
    assert found["staleness/rejected"] == pytest.approx(2 / 6)
    assert found["staleness/log_ratio_abs/turn_8"] == pytest.approx(float(torch.tensor([4.0, 8.0]).log().mean()))
    assert not [name for name in found if name.endswith(("turn_1", "turn_4"))]  # no such turns


def config(threshold, strategy, ahead, mode="separate_async"):
    sampler = {"max_off_policy_threshold": threshold, "max_off_policy_strategy": strategy}
    return OmegaConf.create({"trainer": {"v1": {"sampler": sampler, mode: {"num_warmup_batches": ahead}}}})


@pytest.mark.parametrize("strategy", ["drop", "wait"])
def test_a_threshold_below_the_batches_ahead_is_refused(strategy):
    check_staleness(config(2, strategy, 1), "separate_async")
    check_staleness(config(None, strategy, 3), "separate_async")
    for ahead in (1.5, 2):
        with pytest.raises(BadInput, match=r"threshold=2 with .*: 2 batches ahead span 3 versions"):
            check_staleness(config(2, strategy, ahead), "separate_async")


def play(threshold, strategy, ahead, updates, rng, batch=8, steps=60):
    """verl's ``ReplayBufferAsync`` and trainer loop over prompts that finish in any order; the ages trained on."""
    flying, done, ages = [1] * int(ahead * batch), [], []
    for step in range(1, steps + 1):
        flying += [step] * batch
        for _ in range(updates):
            while True:
                if strategy == "drop":
                    stale = [s for s in done if step - s + 1 > threshold]
                    done = [s for s in done if step - s + 1 <= threshold]
                    flying += [step] * len(stale)
                blocked = strategy == "wait" and any(step - s + 1 >= threshold for s in flying)
                if len(done) >= batch // updates and not blocked:
                    break
                # The newest finish first, as often as not: what ages most.
                next_one = len(flying) - 1 if rng.random() < 0.7 else rng.randrange(len(flying))
                done.append(flying.pop(next_one))
            done.sort()
            taken, done = done[: batch // updates], done[batch // updates :]
            ages += [step - s for s in taken]
    return ages


@pytest.mark.parametrize("strategy", ["drop", "wait"])
@pytest.mark.parametrize(("threshold", "ahead"), [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (2, 0.5), (3, 1.5)])
def test_no_order_of_finishing_exceeds_the_largest_age(strategy, threshold, ahead):
    bound = largest_age(config(threshold, strategy, ahead), "separate_async")
    ages = []
    for seed in range(20):
        ages += play(threshold, strategy, ahead, updates=4 if seed % 2 else 1, rng=random.Random(seed))
    assert threshold - 1 <= bound and max(ages) <= bound


def test_waiting_may_exceed_the_threshold_itself_with_more_than_one_batch_ahead():
    ages = [age for seed in range(20) for age in play(3, "wait", 2, 1, random.Random(seed))]
    assert max(ages) == 3 == largest_age(config(3, "wait", 2), "separate_async")
    assert largest_age(config(None, "wait", 2), "separate_async") is None
