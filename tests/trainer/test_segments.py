"""Sessions of several rows through verl's own advantage step: what a session is worth does not depend on its rows."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

pytest.importorskip("verl")
from verl.trainer.ppo.v1 import trainer_base

from tests.trainer.samples import Rows, advantages, row

PLAIN = {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False}
ESTIMATORS = [PLAIN, {"adv_estimator": "gigpo"}, {"adv_estimator": "potential"}]


def folded(rewards: float = 0.0) -> Rows:
    """A winner in three rows, a loser in one, another in two; a lone session in two; padding like the first row."""
    return Rows(
        {
            "g_0_1": row("g", 1.0, [(0, 2)], "b", first=1),
            "g_1_0": row("g", 0.0, [(0, 3), (4, 5)], "ay", reward=rewards),
            "g_0_0": row("g", 1.0, [(0, 2)], "a"),
            "pad_0_0": row("pad", 0.0, [(0, 1)], "a", padding=True),
            "g_0_2": row("g", 1.0, [(0, 1), (2, 3)], "cd", first=2),
            "g_2_0": row("g", 0.0, [(0, 1)], "a"),
            "g_2_1": row("g", 0.0, [(0, 1)], "z", first=1),
            "h_0_0": row("h", 1.0, [(0, 1)], "a"),
            "h_0_1": row("h", 1.0, [(0, 1)], "a", first=1),
        }
    )


def test_group_statistics_are_per_session_and_not_per_segment(monkeypatch):
    found, metrics = advantages(folded(), monkeypatch, **PLAIN)
    win, loss = round(1 - 1 / 3, 6), round(-1 / 3, 6)  # the mean of three sessions, not of six rows
    assert found["g_0_0"] == found["g_0_1"] == [win, win] and found["g_0_2"] == [win, 0, win]
    assert found["g_1_0"] == [loss] * 3 + [0, loss] and found["g_2_0"] == found["g_2_1"] == [loss]
    assert found["h_0_0"] == found["h_0_1"] == found["pad_0_0"] == [0]
    assert metrics["session/groups_of_one"] == 0.5


def test_the_deviation_is_over_sessions_too(monkeypatch):
    found, _ = advantages(folded(), monkeypatch, adv_estimator="grpo", norm_adv_by_std_in_grpo=True)
    assert found["g_0_0"][0] == pytest.approx((2 / 3) / np.std([1, 0, 0], ddof=1), abs=1e-5)


REJECTION = {"rollout_is": None, "rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_3.0"}


def reject(store: Rows, key: str) -> None:
    fields = store[key]
    fields["rollout_log_probs"] = fields["old_log_probs"] - math.log(4.0) * fields["response_mask"]


@pytest.mark.parametrize("algorithm", ESTIMATORS, ids=lambda a: a["adv_estimator"])
def test_rejecting_the_last_segment_takes_only_its_own_tokens(algorithm, monkeypatch):
    """verl reads a session's advantage off its last row; rejected, that says 0 for all of them."""
    before, _ = advantages(folded(), monkeypatch, **algorithm)
    store = folded()
    reject(store, "g_0_2")
    found, _ = advantages(store, monkeypatch, rollout_correction=REJECTION, **algorithm)
    assert not any(found.pop("g_0_2")) and any(before.pop("g_0_2"))
    assert found == before
    if algorithm is PLAIN:
        store = folded()
        reject(store, "g_0_2")
        monkeypatch.setattr("verl_ext.trainer.mixin.SessionTrainerMixin._grpo_over_sessions", lambda *_: None)
        verls, _ = advantages(store, monkeypatch, rollout_correction=REJECTION, **algorithm)
        assert verls["g_0_0"] == [0, 0]  # the fault, while verl has it


@pytest.mark.parametrize("algorithm", ESTIMATORS, ids=lambda a: a["adv_estimator"])
def test_fractional_process_rewards_are_not_cut_to_integers(algorithm, monkeypatch):
    """Two turns of -0.125 in one session."""
    without, charged = (advantages(folded(reward), monkeypatch, **algorithm)[0] for reward in (0.0, -0.125))
    assert charged["g_1_0"][0] < without["g_1_0"][0]
    if algorithm is PLAIN:
        assert charged["g_1_0"][0] == pytest.approx(-0.25 - 0.75 / 3, abs=1e-6)
        assert charged["g_2_0"] == charged["g_2_1"] == [pytest.approx(-0.25, abs=1e-6)]


def test_one_row_a_session_without_rewards_of_turns_has_verls_own_numbers(monkeypatch):
    store = Rows({key: folded()[key] for key in ("g_1_0", "g_2_0", "pad_0_0")})
    store["g_3_0"] = row("g", 1.0, [(0, 1), (2, 4)], "ab")
    found, _ = advantages(store, monkeypatch, adv_estimator="grpo")
    batch = store.batch(list(store))
    ours = {key: store[key]["advantages"].clone() for key in store}
    algorithm = {"adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0, "use_kl_in_reward": False}
    config = OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 2}}})
    trainer_base.PPOTrainer._compute_advantage(SimpleNamespace(config=config), batch, {})
    assert all(torch.equal(store[key]["advantages"], ours[key]) for key in store)
    assert found["g_3_0"][0] > 0


@pytest.mark.parametrize("algorithm", ESTIMATORS, ids=lambda a: a["adv_estimator"])
@settings(deadline=None, max_examples=20)
@given(st.data())
def test_cutting_sessions_into_segments_changes_no_advantage(algorithm, draw):
    """The same sessions as one row each and cut anywhere, with charges on some turns: the whole advantage step."""
    random = np.random.default_rng(draw.draw(st.integers(0, 2**32 - 1)))
    whole, cut, at = Rows(), Rows(), {}
    for session in range(4):
        count, score = int(random.integers(1, 6)), float(random.integers(0, 2))
        anchors, reward = "".join(random.choice(list("abc"), count)), float(random.choice([0.0, -0.125]))
        spans = [(3 * i, 3 * i + 2) for i in range(count)]
        whole[f"g_{session}_0"] = row("g", score, spans, anchors, reward=reward)
        edges = sorted({0, count, *random.integers(0, count + 1, size=2).tolist()})
        for segment, (begin, end) in enumerate(itertools.pairwise(edges)):
            key, length = f"g_{session}_{segment}", end - begin
            cut[key] = row("g", score, spans[:length], anchors[begin:end], first=begin, reward=reward)
            at[key] = (f"g_{session}_0", 3 * begin)
    order = random.permutation(list(cut)).tolist()
    cut = Rows({key: cut[key] for key in order})
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected, _ = advantages(whole, monkeypatch, **algorithm)
        found, _ = advantages(cut, monkeypatch, **algorithm)
    for key, values in found.items():
        session, begin = at[key]
        assert values == pytest.approx(expected[session][begin : begin + len(values)], abs=2e-6), key
