"""The entropy bonus through verl's own actor step: the column of weights, its way to the workers, loss and metrics."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

pytest.importorskip("verl")
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu
from verl.workers.config import ActorConfig

from tests.trainer.samples import Rows
from verl_ext.demo.plan import RECIPES
from verl_ext.objective.loss import WEIGHT, ppo_loss_with_entropy_bonus
from verl_ext.objective.settings import EntropyConfig
from verl_ext.trainer import bonus
from verl_ext.trainer.sync import BugFixTrainerSync

RANKS, PROMPTS, SESSIONS = 2, 2, 2  # so a mini-batch has four rows, two a rank
# P: a policy token in the loss; x: one that rollout correction took out of it; o: an observation. The first four rows
# are rank 0's, and each rank trains its first two rows in the first mini-batch.
ROWS = ("PPoPPP", "PoP", "Poxx", "PPPoPoPP", "PoxPP", "PP", "xxoP", "o")
# With tokens=2 and without first turns. A rejected token uses up one of the two, and is no observation.
SELECTED = ("...ss.", "..s", "....", "....s.ss", "...s.", "..", "...s", ".")
# By hand: from 0.4 to 0.1 in three steps, of which the third one has gone two.
SCHEDULE = EntropyConfig(where="after_observation", coeff=0.4, tokens=2, decay_steps=3, end_coeff=0.1)
COEFF = 0.2
FIRST, SECOND = (0, 1, 4, 5), (2, 3, 6, 7)


def rows(entropy: bool = True) -> Rows:
    """One row for each of :data:`ROWS`; a token's entropy is its position."""
    store = Rows()
    for number, text in enumerate(ROWS):
        fields = {
            "response_mask": torch.tensor([int(token == "P") for token in text]),
            "loss_mask": torch.tensor([int(token in "Px") for token in text]),
            "tag": {"is_padding": text == "o"},
        }
        if entropy:
            fields["entropy"] = torch.arange(len(text), dtype=torch.float32)
        store[f"g{number}_0_0"] = fields
    return store


class Workers:
    """A worker group that keeps what its workers would fetch: the fields that the batch names, and no others."""

    def __init__(self, store: Rows):
        self.store, self.losses = store, []
        self._dispatch_info = {"actor": [rank for rank in range(RANKS) for _ in range(2)]}  # two processes a rank

    def set_loss_fn(self, loss):
        self.losses.append(loss)

    def update_actor(self, batch):
        self.batch = batch
        self.fetched = self.store.kv_batch_get(batch.keys, batch.partition_id, batch.fields)
        return {"metrics": {"mfu": [0.0]}}


def update(store: Rows, monkeypatch, settings: EntropyConfig = SCHEDULE, **actor) -> tuple[Workers, dict, object]:
    """verl's step 3 on the rows, with a worker group that trains nothing; also the metrics and the batch returned."""
    monkeypatch.setattr(bonus, "tq", store)
    trainer = BugFixTrainerSync.__new__(BugFixTrainerSync)
    base = {"ppo_mini_batch_size": PROMPTS, "ppo_epochs": 1, "calculate_entropy": True, "entropy_coeff": 0.0}
    base |= {"loss_agg_mode": "token-mean", "shuffle": False, "data_loader_seed": 42}
    rollout = {"n": SESSIONS, "temperature": 1.0}
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"actor": base | actor, "rollout": rollout}})
    trainer.ours = SimpleNamespace(entropy=settings)
    trainer.actor_rollout_wg, trainer.global_steps = Workers(store), 3
    metrics: dict[str, float] = {}
    batch = trainer._update_actor(store.batch(list(store)), metrics)
    return trainer.actor_rollout_wg, metrics, batch


@pytest.mark.parametrize(
    ("loss_agg_mode", "first", "second"),
    [
        # Loss tokens over selected ones: 12/4 and 8/4.
        ("token-mean", 3, 2),
        # Rows with a loss token over rows with a selected one: 4/3 and 3/2.
        ("seq-mean-token-mean", 4 / 3, 3 / 2),
    ],
)
def test_the_column_by_hand(loss_agg_mode, first, second, monkeypatch):
    store = rows()
    workers, metrics, _ = update(store, monkeypatch, loss_agg_mode=loss_agg_mode)
    factors = [first if number in FIRST else second for number in range(len(ROWS))]
    for found, selected, factor in zip(workers.fetched[WEIGHT].unbind(), SELECTED, factors, strict=True):
        assert found.tolist() == pytest.approx([COEFF * factor * (token == "s") for token in selected])
    assert metrics["entropy/bonus/coeff"] == pytest.approx(COEFF)
    assert metrics["entropy/bonus/factor"] == pytest.approx((first + second) / 2)
    assert metrics["entropy/bonus/token_share"] == pytest.approx(8 / 20)
    # Positions of the selected tokens over those of all loss tokens, row by row.
    assert metrics["entropy/bonus/share"] == pytest.approx((7 + 2 + 0 + 17 + 3 + 0 + 3) / (13 + 2 + 0 + 20 + 7 + 1 + 3))


def test_verl_gets_a_batch_that_names_the_column_and_what_it_named_before(monkeypatch):
    store = rows()
    workers, _, returned = update(store, monkeypatch)
    assert set(workers.batch.fields) == {"response_mask", "loss_mask", "entropy", WEIGHT}
    assert workers.batch.keys == list(store) and returned is workers.batch
    assert workers.batch.extra_info["mini_batch_size"] == PROMPTS * SESSIONS  # verl's own step ran


def test_weights_match_within_the_mini_batches_that_a_shuffle_draws(monkeypatch):
    store = rows()
    workers, _, _ = update(store, monkeypatch, shuffle=True, data_loader_seed=5)
    info, drawn = workers.batch.extra_info, {0: [], 1: []}
    for rank in range(RANKS):  # as TrainingWorker.train_mini_batch does, from what verl tells it
        of_rank = tu.get_tensordict({"row": torch.arange(4) + 4 * rank})
        size, seed = info["mini_batch_size"] // RANKS, info["seed"] + rank
        batches = tu.make_iterator(of_rank, size, info["epochs"], seed, info["dataloader_kwargs"])
        for number, batch in enumerate(batches):
            drawn[number] += batch["row"].tolist()
    assert sorted(map(sorted, drawn.values())) != sorted(map(list, (FIRST, SECOND)))
    weights = [float(row.sum()) for row in workers.fetched[WEIGHT].unbind()]
    for numbers in drawn.values():
        tokens = sum(ROWS[number].count("P") for number in numbers)
        assert sum(weights[number] for number in numbers) == pytest.approx(COEFF * tokens)


def test_without_entropies_there_is_a_column_but_no_share_of_entropy(monkeypatch):
    store = rows(entropy=False)
    workers, metrics, _ = update(store, monkeypatch)
    assert workers.fetched[WEIGHT][0].tolist() == pytest.approx([0, 0, 0, 0.6, 0.6, 0])
    assert "entropy/bonus/share" not in metrics and "entropy/bonus/token_share" in metrics


def test_without_a_bonus_the_batch_is_verls(monkeypatch):
    store = rows()
    workers, metrics, _ = update(store, monkeypatch, EntropyConfig())
    assert set(workers.batch.fields) == {"response_mask", "loss_mask", "entropy"}
    assert not [name for name in metrics if name.startswith("entropy/")]


def test_entropy_metrics_of_a_batch_with_and_without_entropies(monkeypatch):
    store = rows()
    for fields in store.values():  # rollout correction rejects later, in the advantage step
        fields["response_mask"] = fields["loss_mask"]
    monkeypatch.setattr(bonus, "tq", store)
    found = bonus.entropy_metrics(store.batch(list(store)))
    assert found["entropy/after_observation/0"] == pytest.approx((3 + 2 + 2 + 4 + 6 + 2 + 3) / 7)
    assert found["entropy/all"] == pytest.approx((13 + 2 + 5 + 20 + 9 + 1 + 4 + 0) / 25)
    store = rows(entropy=False)
    monkeypatch.setattr(bonus, "tq", store)
    assert bonus.entropy_metrics(store.batch(list(store))) == {}


@pytest.mark.parametrize(("where", "installed"), [("after_observation", 1), ("uniform", 1), ("none", 0)])
def test_the_workers_get_a_loss_that_knows_the_actors_settings(where, installed, monkeypatch):
    verl = Path(importlib.util.find_spec("verl").origin).parent
    words = [f"hydra.searchpath=[file://{verl}/trainer/config]", "actor_rollout_ref.actor.clip_ratio_high=0.28"]
    with initialize_config_dir(str(RECIPES), version_base=None):
        config = compose("bugfix_entropy", words)
    monkeypatch.setattr(PPOTrainer, "_setup", lambda self: None)
    trainer = BugFixTrainerSync.__new__(BugFixTrainerSync)
    trainer.config, trainer.ours = config, SimpleNamespace(entropy=EntropyConfig(where=where, coeff=0.1))
    trainer.actor_rollout_wg = Workers(rows())
    trainer._setup()
    losses = trainer.actor_rollout_wg.losses
    assert len(losses) == installed
    for loss in losses:
        assert loss.func is ppo_loss_with_entropy_bonus and not loss.args
        actor = loss.keywords["config"]
        assert isinstance(actor, ActorConfig) and actor.clip_ratio_high == 0.28
        assert actor.loss_agg_mode == config.actor_rollout_ref.actor.loss_agg_mode
