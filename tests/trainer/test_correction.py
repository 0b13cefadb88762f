"""Each choice of ``recipes/correction`` through the trainer's own advantage step, on ratios whose weights and masks are
worked out by hand."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("verl")
from verl.trainer.ppo.v1 import trainer_base

from tests.trainer.samples import Rows, row
from verl_ext.demo.plan import compose_recipe
from verl_ext.trainer import mixin
from verl_ext.trainer.separate_async import BugFixTrainerSeparateAsync
from verl_ext.trainer.settings import credit_settings

# pi_old / pi_rollout of each token; 7 stands on an observation, which must not matter.
RATIOS = {
    "g_0_0": [3.0, 0.4, 7.0, 1.0],  # product of the policy's: 1.2
    "g_1_0": [0.25, 6.0],  # 1.5
    "h_0_0": [4.0, 4.0],  # 16
    "h_1_0": [0.6, 0.4],  # 0.24
}
MASKS = {"g_0_0": [1, 1, 0, 1], "g_1_0": [1, 1], "h_0_0": [1, 1], "h_1_0": [1, 1]}
REJECTED = MASKS | {"h_0_0": [0, 0], "h_1_0": [0, 0]}


def corrected(correction: str, monkeypatch) -> tuple[Rows, dict[str, float]]:
    """verl's step 7 on two groups of two sessions, with the recipe's configuration."""
    spans = {"g_0_0": [(0, 2), (3, 4)]}
    store = Rows()
    for key, ratios in RATIOS.items():
        fields = row(key[0], float(key[2] == "0"), spans.get(key, [(0, len(ratios))]), "ab"[: len(spans.get(key, "a"))])
        fields["old_log_probs"] = fields["rollout_log_probs"] + torch.tensor(ratios).log()
        store[key] = fields
    monkeypatch.setattr(trainer_base, "tq", store)
    monkeypatch.setattr(mixin, "tq", store)
    trainer = BugFixTrainerSeparateAsync.__new__(BugFixTrainerSeparateAsync)
    trainer.config = compose_recipe("bugfix_fully_async", f"correction={correction}")
    trainer.credit = credit_settings(trainer.config.algorithm)
    metrics: dict[str, float] = {}
    trainer._compute_advantage(store.batch(list(store)), metrics)
    return store, metrics


@pytest.mark.parametrize(
    ("correction", "weights", "masks"),
    [
        ("none", None, MASKS),
        (
            "token_tis",
            {"g_0_0": [2, 0.4, 0, 1], "g_1_0": [0.25, 2], "h_0_0": [2, 2], "h_1_0": [0.6, 0.4]},
            MASKS,
        ),
        (
            "sequence_tis",
            {"g_0_0": [1.2, 1.2, 0, 1.2], "g_1_0": [1.5, 1.5], "h_0_0": [2, 2], "h_1_0": [0.24, 0.24]},
            MASKS,
        ),
        (
            "icepop",
            {"g_0_0": [3, 0, 0, 1], "g_1_0": [0, 0], "h_0_0": [4, 4], "h_1_0": [0.6, 0]},
            MASKS,
        ),
        ("sequence_mask", None, REJECTED),
        (
            "decoupled_ppo",
            {"g_0_0": [3, 0.4, 0, 1], "g_1_0": [0.25, 6], "h_0_0": [4, 4], "h_1_0": [0.6, 0.4]},
            MASKS,
        ),
    ],
)
def test_weights_and_masks_by_hand(correction, weights, masks, monkeypatch):
    store, metrics = corrected(correction, monkeypatch)
    for key, fields in store.items():
        assert fields["response_mask"].tolist() == masks[key]
        if weights is None:
            assert "rollout_is_weights" not in fields
        else:
            assert fields["rollout_is_weights"].tolist() == pytest.approx(weights[key], rel=1e-5)
    assert "rollout_corr/kl" in metrics  # the mismatch is reported whatever is done about it


def test_rejection_leaves_the_others_their_advantage(monkeypatch):
    """The baseline is that of all sessions of the group, and the rejected ones have nothing to learn from."""
    store, _ = corrected("sequence_mask", monkeypatch)
    assert store["h_0_0"]["advantages"].tolist() == [0, 0] == store["h_1_0"]["advantages"].tolist()
    plain, _ = corrected("none", monkeypatch)
    assert store["g_0_0"]["advantages"].tolist() == plain["g_0_0"]["advantages"].tolist() != [0, 0, 0, 0]


def test_a_ratio_beyond_any_bound_is_not_truncated_by_decoupled_ppo(monkeypatch):
    monkeypatch.setitem(RATIOS, "h_0_0", [1e6, 1.0])
    store, metrics = corrected("decoupled_ppo", monkeypatch)
    assert store["h_0_0"]["rollout_is_weights"].tolist() == pytest.approx([1e6, 1.0], rel=1e-3)
    assert metrics["rollout_corr/rollout_is_ratio_fraction_high"] == 0
