"""Estimators through verl's own advantage step: ``PPOTrainer._compute_advantage``, with rows in a dictionary instead of
TransferQueue."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("verl")
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from tests.trainer.samples import Rows, advantages, row
from verl_ext.types import BadInput


def rows() -> Rows:
    """Two sessions of a group, two turns each; padding that copies the first one's fields; a session left alone."""
    return Rows(
        {
            "g_0_0": row("g", 1.0, [(0, 2), (4, 6)], "ax"),
            "g_1_0": row("g", 0.0, [(0, 3), (4, 5)], "ay"),
            "pad_0_0": row("pad", 0.0, [(0, 1)], "a", padding=True),
            "h_0_0": row("h", 1.0, [(0, 1)], "a"),
        }
    )


CREDIT = {"gamma": 0.5, "episode_norm": "mean", "step_norm": "mean"}


def test_gigpo_by_hand(monkeypatch):
    found, metrics = advantages(rows(), monkeypatch, credit=CREDIT)
    # Episode: 1 and 0 about 0.5. Step, on anchor a: discounted 0.5 and 0 about 0.25; x and y are visited once.
    assert found["g_0_0"] == [0.75, 0.75, 0, 0, 0.5, 0.5]
    assert found["g_1_0"] == [-0.75, -0.75, -0.75, 0, -0.5]
    assert found["pad_0_0"] == [0] and found["h_0_0"] == [0]  # nothing to compare a lone session with
    assert metrics["session/groups_of_one"] == 0.5 and metrics["credit/degenerate_groups"] == 0


def test_potential_sees_the_states_it_went_through(monkeypatch):
    store = rows()
    for key, potentials in (("g_0_0", (0.25, 0.75)), ("g_1_0", (0.25, 0.0))):
        for turn, value in zip(store[key]["extra_fields"]["session"]["turns"], potentials, strict=True):
            turn["potential"] = value
    found, _ = advantages(store, monkeypatch, adv_estimator="potential", credit={"lam": 0.0, "gamma": 1.0})
    # With lam=0 a turn has its own step in potential: +0.5 then 1 - 0.75, against -0.25 then 0.
    better = found["g_0_0"][0] - found["g_0_0"][-1]
    assert better == pytest.approx(0.5 - 0.25)
    assert found["g_1_0"][0] - found["g_1_0"][-1] == pytest.approx(-0.25)
    assert found["g_0_0"][2:4] == [0, 0] and found["pad_0_0"] == [0]


def test_kl_penalty_in_the_reward_is_seen(monkeypatch):
    store = rows()
    store["g_0_0"]["ref_log_prob"] = row("g", 1.0, [(0, 2), (4, 6)], "ax", kl=1.0)["ref_log_prob"]
    found, metrics = advantages(
        store, monkeypatch, credit=CREDIT | {"step_weight": 0.0}, use_kl_in_reward=True, kl_penalty="kl"
    )
    # Four tokens of 0.1 off the winner's reward: 0.6 and 0 about 0.3.
    assert found["g_0_0"] == [0.3, 0.3, 0, 0, 0.3, 0.3] and found["g_1_0"][0] == -0.3
    assert metrics["actor/reward_kl_penalty_coeff"] == 0.1
    assert store["g_0_0"]["token_level_rewards"].sum().item() == pytest.approx(0.6)


def test_rollout_correction_weighs_and_rejects_as_for_any_estimator(monkeypatch):
    store = rows()
    store["g_0_0"]["rollout_log_probs"] = store["g_0_0"]["old_log_probs"] - math.log(1.5)
    store["g_1_0"]["rollout_log_probs"] = (
        store["g_1_0"]["old_log_probs"] - math.log(4.0) * store["g_1_0"]["response_mask"]
    )
    correction = {
        "rollout_is": "token",
        "rollout_is_threshold": 2.0,
        "rollout_rs": "token_k1",
        "rollout_rs_threshold": "0.5_3.0",
    }
    found, _ = advantages(store, monkeypatch, credit=CREDIT, rollout_correction=correction)
    assert store["g_0_0"]["rollout_is_weights"].tolist() == pytest.approx([1.5, 1.5, 0, 0, 1.5, 1.5])
    # Rejected tokens leave the loss; the session's reward stays in the group's statistics.
    assert store["g_1_0"]["response_mask"].sum() == 0 and found["g_1_0"] == [0] * 5
    assert found["g_0_0"] == [0.75, 0.75, 0, 0, 0.5, 0.5]


def test_an_estimator_called_without_turns_says_which_trainer_to_set():
    for name in ("gigpo", "potential"):
        with pytest.raises(
            BadInput, match=rf"adv_estimator={name} .* set trainer.v1.trainer_mode to one of bugfix_sync"
        ):
            get_adv_estimator_fn(name)(torch.zeros(1, 2), torch.ones(1, 2), config=SimpleNamespace(), index=["g"])


@pytest.mark.parametrize("estimator", ["reinforce_plus_plus", "gae"])
def test_an_estimator_without_groups_is_left_alone(monkeypatch, estimator):
    """Every session was alone in its group, and got the advantage 0: a run that trained on nothing."""
    sessions = {"g": (1.0, 2), "h": (0.0, 3), "i": (0.0, 4)}
    store = Rows({f"{name}_0_0": row(name, score, [(0, end)], "a") for name, (score, end) in sessions.items()})
    for fields in store.values():
        fields["values"] = torch.zeros(len(fields["rm_scores"]))
    found, metrics = advantages(store, monkeypatch, adv_estimator=estimator)
    assert found["g_0_0"][0] > 0 > found["h_0_0"][0]
    assert "session/groups_of_one" not in metrics


def test_grpo_is_verls_but_for_a_session_without_a_group(monkeypatch):
    found, metrics = advantages(rows(), monkeypatch, adv_estimator="grpo", norm_adv_by_std_in_grpo=False)
    assert found["g_0_0"] == [0.5, 0.5, 0, 0, 0.5, 0.5] and found["h_0_0"] == [0]
    assert metrics["session/groups_of_one"] == 0.5
    assert not [name for name in metrics if name.startswith("credit/")]
