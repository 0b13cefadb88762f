"""The columns of the loss through verl's own actor step: what they say, their way to the workers, loss and metrics."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf

pytest.importorskip("verl")
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss

from tests.trainer.samples import Rows
from verl_ext.agent.settings import ContextConfig
from verl_ext.demo.plan import compose_recipe
from verl_ext.objective.loss import ENTROPY_WEIGHT, LOSS_WEIGHT, weighted_ppo_loss, with_entropy_bonus
from verl_ext.objective.settings import EntropyConfig
from verl_ext.trainer import loss
from verl_ext.trainer.sync import BugFixTrainerSync

PROMPTS, SESSIONS = 2, 2  # of a mini-batch; the eight rows make two of them
# P: a policy token in the loss; x: one that rollout correction took out of it; o: an observation.
ROWS = ("PPoPPP", "PoP", "Poxx", "PPPoPoPP", "PoxPP", "PP", "xxoP", "o")
# With tokens=2 and without first turns. A rejected token uses up one of the two, and is no observation.
SELECTED = ("...ss.", "..s", "....", "....s.ss", "...s.", "..", "...s", ".")
# The first two rows are one session, and so are the fourth and fifth; the last one is padding.
KEYS = ("a_0_0", "a_0_1", "a_1_0", "b_0_1", "b_0_0", "b_1_0", "c_0_0", "pad_0_0")
# By hand: from 0.4 to 0.1 in three steps, of which the third one has gone two.
SCHEDULE = EntropyConfig(where="after_observation", coeff=0.4, tokens=2, decay_steps=3, end_coeff=0.1)
COEFF = 0.2


def rows(entropy: bool = True) -> Rows:
    """One row for each of :data:`ROWS`; a token's entropy is its position."""
    store = Rows()
    for key, text in zip(KEYS, ROWS, strict=True):
        fields = {
            "response_mask": torch.tensor([int(token == "P") for token in text]),
            "loss_mask": torch.tensor([int(token in "Px") for token in text]),
            "tag": {"is_padding": text == "o"},
        }
        if entropy:
            fields["entropy"] = torch.arange(len(text), dtype=torch.float32)
        store[key] = fields
    return store


class Workers:
    """A worker group that keeps what its workers would fetch: the fields that the batch names, and no others."""

    def __init__(self, store: Rows):
        self.store, self.losses = store, []

    def set_loss_fn(self, loss):
        self.losses.append(loss)

    def update_actor(self, batch):
        self.batch = batch
        self.fetched = self.store.kv_batch_get(batch.keys, batch.partition_id, batch.fields)
        return {"metrics": {"mfu": [0.0]}}


def update(
    store: Rows, monkeypatch, settings: EntropyConfig = SCHEDULE, weighting: str = "session", **actor
) -> tuple[Workers, dict, object]:
    """verl's actor step on the rows, with a worker group that trains nothing; also the metrics and the batch."""
    monkeypatch.setattr(loss, "tq", store)
    trainer = BugFixTrainerSync.__new__(BugFixTrainerSync)
    base = {"ppo_mini_batch_size": PROMPTS, "ppo_epochs": 1, "calculate_entropy": True, "entropy_coeff": 0.0}
    base |= {"loss_agg_mode": "token-mean", "shuffle": False, "data_loader_seed": 42, "loss_scale_factor": None}
    rollout = {"n": SESSIONS, "temperature": 1.0}
    trainer.config = OmegaConf.create(
        {"data": {"train_batch_size": 4}, "actor_rollout_ref": {"actor": base | actor, "rollout": rollout}}
    )
    trainer.ours = SimpleNamespace(entropy=settings, context=ContextConfig(segment_weighting=weighting))
    trainer.actor_rollout_wg, trainer.global_steps, trainer.parameter_sync_step = Workers(store), 3, 1
    metrics: dict[str, float] = {}
    batch = trainer._update_actor(store.batch(list(store)), metrics)
    return trainer.actor_rollout_wg, metrics, batch


def check(column, rows_of_weights):
    for found, expected in zip(column.unbind(), rows_of_weights, strict=True):
        assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mode", "weights"),
    [
        ("token-mean", [2 / 20] * 8),  # twenty trained tokens in two steps
        # Five sessions with trained tokens, of 7, 1, 9, 2 and 1.
        ("seq-mean-token-mean", [2 / 35] * 2 + [2 / 5] + [2 / 45] * 2 + [2 / 10, 2 / 5, 0]),
    ],
)
def test_a_token_weighs_its_share_of_a_session_whatever_rows_there_are(mode, weights, monkeypatch):
    workers, _, _ = update(rows(), monkeypatch, EntropyConfig(), loss_agg_mode=mode)
    check(
        workers.fetched[LOSS_WEIGHT],
        [[weight * (token == "P") for token in text] for text, weight in zip(ROWS, weights, strict=True)],
    )


@pytest.mark.parametrize(
    ("weighting", "mode", "weights"),
    [
        # 0.2 in all, for each of two steps, on eight tokens.
        ("session", "token-mean", [COEFF * 2 / 8] * 8),
        # Four sessions with a selected token, of 3, 3, 1 and 1... the second has no such token.
        ("session", "seq-mean-token-mean", [COEFF * 2 / 9] * 2 + [0] + [COEFF * 2 / 12] * 2 + [0, COEFF * 2 / 3, 0]),
        # verl divides by its own number of tokens, rejected ones included.
        ("row", "token-mean", [COEFF * 20 / 8 * 2 / 25] * 8),
        # Seven rows with a trained token against five with a selected one; verl's four rows a mini-batch.
        (
            "row",
            "seq-mean-token-mean",
            [COEFF * 7 / 5 / 4 / n for n in (2, 1)]
            + [0]
            + [COEFF * 7 / 5 / 4 / n for n in (3, 1)]
            + [0, COEFF * 7 / 20, 0],
        ),
    ],
)
def test_the_bonus_by_hand(weighting, mode, weights, monkeypatch):
    workers, metrics, _ = update(rows(), monkeypatch, weighting=weighting, loss_agg_mode=mode)
    check(
        workers.fetched[ENTROPY_WEIGHT],
        [[weight * (token == "s") for token in text] for text, weight in zip(SELECTED, weights, strict=True)],
    )
    assert metrics["entropy/bonus/coeff"] == pytest.approx(COEFF)
    assert metrics["entropy/bonus/token_share"] == pytest.approx(8 / 20)
    if mode == "token-mean":
        assert metrics["entropy/bonus/factor"] == pytest.approx(20 / 8)
    # Positions of the selected tokens over those of all loss tokens, row by row.
    assert metrics["entropy/bonus/share"] == pytest.approx((7 + 2 + 0 + 17 + 3 + 0 + 3) / (13 + 2 + 0 + 20 + 7 + 1 + 3))


def test_verl_gets_a_batch_that_names_the_columns_and_what_it_named_before(monkeypatch):
    store = rows()
    workers, _, returned = update(store, monkeypatch)
    assert set(workers.batch.fields) == {"response_mask", "loss_mask", "entropy", LOSS_WEIGHT, ENTROPY_WEIGHT}
    assert workers.batch.keys == list(store) and returned is workers.batch


@pytest.mark.parametrize(("weighting", "rows_of_a_step"), [("session", 2), ("row", 4)])
def test_optimiser_steps_are_those_of_the_prompts_or_grow_with_the_rows(weighting, rows_of_a_step, monkeypatch):
    """Eight rows of sessions of which the configuration makes four mini-batches: verl would make two of them."""
    store, actor = rows(), {"ppo_mini_batch_size": 1 if weighting == "session" else 2}
    workers, _, _ = update(store, monkeypatch, weighting=weighting, **actor)
    info = workers.batch.extra_info
    assert info["mini_batch_size"] == info["global_batch_size"] == rows_of_a_step
    assert info["temperature"] == 1.0 and info["epochs"] == 1  # verl's own step ran
    assert not hasattr(workers.update_actor, "__wrapped__") and workers.update_actor.__self__ is workers


def test_without_entropies_there_is_a_column_but_no_share_of_entropy(monkeypatch):
    workers, metrics, _ = update(rows(entropy=False), monkeypatch)
    assert workers.fetched[ENTROPY_WEIGHT][0].tolist() == pytest.approx([0, 0, 0, 0.05, 0.05, 0])
    assert "entropy/bonus/share" not in metrics and "entropy/bonus/token_share" in metrics


def test_with_rows_that_weigh_and_no_bonus_the_batch_is_verls(monkeypatch):
    workers, metrics, _ = update(rows(), monkeypatch, EntropyConfig(), "row")
    assert set(workers.batch.fields) == {"response_mask", "loss_mask", "entropy"}
    assert workers.batch.extra_info["mini_batch_size"] == PROMPTS * SESSIONS
    assert not [name for name in metrics if name.startswith("entropy/")]


def test_entropy_metrics_of_a_batch_with_and_without_entropies(monkeypatch):
    store = rows()
    for fields in store.values():  # rollout correction rejects later, in the advantage step
        fields["response_mask"] = fields["loss_mask"]
    monkeypatch.setattr(loss, "tq", store)
    found = loss.entropy_metrics(store.batch(list(store)))
    assert found["entropy/after_observation/0"] == pytest.approx((3 + 2 + 2 + 4 + 6 + 2 + 3) / 7)
    assert found["entropy/all"] == pytest.approx((13 + 2 + 5 + 20 + 9 + 1 + 4 + 0) / 25)
    store = rows(entropy=False)
    monkeypatch.setattr(loss, "tq", store)
    assert loss.entropy_metrics(store.batch(list(store))) == {}


@pytest.mark.parametrize("where", ["after_observation", "uniform", "none"])
@pytest.mark.parametrize("weighting", ["session", "row"])
def test_the_workers_get_a_loss_that_knows_the_actors_settings(where, weighting, monkeypatch):
    config = compose_recipe("bugfix_entropy", "actor_rollout_ref.actor.clip_ratio_high=0.28")
    monkeypatch.setattr(PPOTrainer, "_setup", lambda self: None)
    trainer = BugFixTrainerSync.__new__(BugFixTrainerSync)
    context = ContextConfig(segment_weighting=weighting)
    trainer.config, trainer.ours = (
        config,
        SimpleNamespace(entropy=EntropyConfig(where=where, coeff=0.1), context=context),
    )
    trainer.actor_rollout_wg = Workers(rows())
    trainer._setup()
    losses = trainer.actor_rollout_wg.losses
    if where == "none" and weighting == "row":
        assert not losses
        return
    (found,) = losses
    if where != "none":
        assert found.func is with_entropy_bonus
        (found,) = found.args
    assert isinstance(found, partial) and found.func is (weighted_ppo_loss if weighting == "session" else ppo_loss)
    (actor,) = found.args
    assert isinstance(actor, ActorConfig) and actor.clip_ratio_high == 0.28
    assert actor.loss_agg_mode == config.actor_rollout_ref.actor.loss_agg_mode
