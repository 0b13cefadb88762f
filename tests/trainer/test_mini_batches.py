"""Which rows are trained together: whole sessions, in as many optimiser steps as the prompts say, through verl's own
padding, dispatch and mini-batches."""

from __future__ import annotations

import inspect
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

pytest.importorskip("verl")
from tensordict import TensorDict
from verl.protocol import BatchData
from verl.trainer.ppo import padding_utils
from verl.trainer.ppo.v1 import trainer_base
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import TrainingWorker

from tests.trainer.samples import Rows
from verl_ext.agent.settings import ContextConfig
from verl_ext.trainer import mini_batches
from verl_ext.trainer.mini_batches import cell_multiple, deal, optimiser_steps
from verl_ext.trainer.separate_async import BugFixTrainerSeparateAsync
from verl_ext.trainer.sync import BugFixTrainerSync


def trained_together(rows: int, ranks: int, mini_batch_size: int, shuffle: bool = False) -> list[set[int]]:
    """verl's dispatch and its ``train_mini_batch`` with everything but the grouping left out."""
    found: dict[int, set[int]] = {}
    for rank, of_rank in enumerate(BatchData(TensorDict({"row": torch.arange(rows)}, batch_size=rows)).chunk(ranks)):
        groups: list[list[int]] = []
        worker = SimpleNamespace(
            engine=SimpleNamespace(
                get_data_parallel_size=lambda: ranks,
                get_data_parallel_rank=lambda rank=rank: rank,
                train_mode=lambda **_: nullcontext(),
                is_mp_src_rank_with_outputs=lambda: False,
            ),
            profiler=SimpleNamespace(step=lambda: None),
            train_batch=lambda data, groups=groups: groups.append(data["row"].tolist()),
        )
        of_rank = of_rank.clone()  # unlocked
        keywords = {"shuffle": shuffle}
        tu.assign_non_tensor(of_rank, mini_batch_size=mini_batch_size, epochs=1, seed=3, dataloader_kwargs=keywords)
        inspect.unwrap(TrainingWorker.train_mini_batch)(worker, of_rank)
        assert len({len(group) for group in groups}) == 1
        for number, group in enumerate(groups):
            found.setdefault(number, set()).update(group)
    return list(found.values())


def sampled(segments: dict[str, int]) -> Rows:
    """Rows of sessions, ``{"group_session": number of segments}``, with what verl's padding needs; lengths vary."""
    store = Rows()
    for name, count in segments.items():
        for segment in range(count):
            length = 1 + 7 * (len(store) % 5)
            store[f"{name}_{segment}"] = {
                "prompts": torch.ones(3, dtype=torch.int64),
                "responses": torch.ones(length, dtype=torch.int64),
                "response_mask": torch.ones(length, dtype=torch.int64),
                "tag": {"seq_len": 3 + length, "prompt_len": 3, "response_len": length},
            }
    return store


def balance(store: Rows, monkeypatch, cls=BugFixTrainerSync, ranks=2, weighting="session", sync_step=1, **config):
    """The batch as a trainer of ours hands it to verl's workers, and the trainer."""
    monkeypatch.setattr(padding_utils, "tq", store)
    trainer = cls.__new__(cls)
    actor = {"ppo_mini_batch_size": 2, "use_dynamic_bsz": True} | config
    rollout = {"n": 2, "log_prob_use_dynamic_bsz": actor["use_dynamic_bsz"], "log_prob_micro_batch_size_per_gpu": 4}
    node = {"actor": actor, "rollout": rollout}
    trainer.config = OmegaConf.create(
        {"data": {"train_batch_size": 4}, "trainer": {"critic_warmup": 0}, "actor_rollout_ref": node}
    )
    trainer.ours = SimpleNamespace(context=ContextConfig(segment_weighting=weighting))
    trainer.use_critic = trainer.use_reference_policy = False
    trainer.parameter_sync_step, trainer.global_steps = sync_step, 1
    trainer.tokenizer = SimpleNamespace(eos_token_id=0)
    processes = [rank for rank in range(ranks) for _ in range(2)]  # two processes a rank
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={}, _query_dispatch_info=lambda mesh: processes)
    metrics: dict[str, float] = {}
    batch = trainer._balance_batch(store.batch(list(store)), metrics=metrics)
    assert metrics["global_seqlen/balanced_max"] >= metrics["global_seqlen/balanced_min"] > 0
    return batch, trainer


ONE_EACH = {f"{group}_{session}": 1 for group in "abcd" for session in "01"}
FOLDED = {"a_0": 5, "a_1": 1, "b_0": 3, "b_1": 1, "c_0": 1, "c_1": 2, "d_0": 1, "d_1": 4}
LEFT_OUT = {"a_0": 1, "b_0": 2, "b_1": 1}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "segments", [ONE_EACH, FOLDED, LEFT_OUT, {"a_0": 1}], ids=["one", "folded", "left-out", "single"]
)
def test_optimiser_steps_do_not_grow_with_rows(segments, ranks, shuffle, monkeypatch):
    store = sampled(segments)
    batch, trainer = balance(store, monkeypatch, ranks=ranks)
    steps = trainer._optimiser_steps
    assert len(trained_together(len(batch), ranks, len(batch) // steps, shuffle)) == steps == 2


def test_row_weighting_keeps_verls_batch(monkeypatch):
    batch, trainer = balance(sampled(FOLDED), monkeypatch, weighting="row")
    assert len(batch) == 20  # eighteen rows, in five mini-batches of four
    monkeypatch.setattr(padding_utils, "tq", store := sampled(FOLDED))
    verls = trainer_base.PPOTrainer._balance_batch(trainer, store.batch(list(store)), {})
    real = [[key for key in keys if not key.startswith("pad")] for keys in (batch.keys, verls.keys)]
    assert real[0] == real[1]


# In the last one the group of three rows stays together, against a group of one.
@pytest.mark.parametrize(
    ("segments", "uneven"), [(ONE_EACH, 0), (FOLDED, 0), (LEFT_OUT, 2)], ids=["one", "folded", "left-out"]
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_whole_sessions_are_dealt_and_padding_is_spread(segments, uneven, ranks, monkeypatch):
    batch, _ = balance(sampled(segments), monkeypatch, ranks=ranks)
    groups = trained_together(len(batch), ranks, len(batch) // 2)
    keys = [[batch.keys[row] for row in rows] for rows in groups]
    real = [[key.rsplit("_", 1)[0] for key in rows if not key.startswith("pad")] for rows in keys]
    sessions = [set(rows) for rows in real]
    assert sorted(session for part in sessions for session in part) == sorted(segments)  # none is in both
    assert abs(len(sessions[0]) - len(sessions[1])) <= 1
    padding = [len(rows) - len(own) for rows, own in zip(keys, real, strict=True)]
    assert abs(padding[0] - padding[1]) == uneven and min(padding) < ranks  # no more than it takes
    if len(segments) == 8:
        assert all(len({name.split("_")[0] for name in part}) == 2 for part in sessions)  # groups stay together
    tags = dict(zip(batch.keys, batch.tags, strict=True))
    assert all(tags[key].get("is_padding", False) == key.startswith("pad") for key in batch.keys)


def test_padding_copies_no_tokens_of_a_real_row(monkeypatch):
    store = sampled({"a_0": 2, "a_1": 1})
    batch, _ = balance(store, monkeypatch, ranks=2)
    padding = [key for key in batch.keys if key.startswith("pad")]
    assert padding
    for key in padding:
        assert not store[key]["response_mask"].any() and not store[key]["prompts"].any()
        assert len(store[key]["responses"]) == 1


def test_rows_of_a_mini_batch_are_balanced_over_ranks(monkeypatch):
    store = sampled(FOLDED)
    batch, _ = balance(store, monkeypatch, ranks=2)
    lengths = [tag["seq_len"] for tag in batch.tags]
    half = len(batch) // 2
    for number in range(2):
        of_rank = [sum(lengths[start : start + half // 2]) for start in (number * half // 2, half + number * half // 2)]
        assert abs(of_rank[0] - of_rank[1]) <= max(lengths)


def test_a_single_update_of_several_in_a_step_is_one_mini_batch(monkeypatch):
    """``separate_async`` samples a mini-batch of prompts at a time, ``parameter_sync_step`` times a training step."""
    store = sampled({"a_0": 3, "a_1": 1, "b_0": 1, "b_1": 2})
    batch, trainer = balance(store, monkeypatch, cls=BugFixTrainerSeparateAsync, sync_step=2)
    assert trainer._optimiser_steps == 1 and len(batch) == 8


def test_cells_hold_whole_micro_batches_of_a_fixed_size(monkeypatch):
    store = sampled(FOLDED)
    batch, _ = balance(store, monkeypatch, use_dynamic_bsz=False, ppo_micro_batch_size_per_gpu=3)
    cell = len(batch) // 4
    assert cell % 3 == 0 and (2 * cell) % 4 == 0  # two mini-batches a rank pass the log-prob step together


def micro(**changes):
    node = {
        "actor": {"use_dynamic_bsz": False, "ppo_micro_batch_size_per_gpu": 2},
        "rollout": {"log_prob_use_dynamic_bsz": False, "log_prob_micro_batch_size_per_gpu": 3},
        "ref": {"log_prob_use_dynamic_bsz": False, "log_prob_micro_batch_size_per_gpu": 5},
    }
    return OmegaConf.merge(
        OmegaConf.create({"actor_rollout_ref": node}), OmegaConf.create({"actor_rollout_ref": changes})
    )


def test_multiple_of_a_cell_by_hand():
    assert cell_multiple(micro(), 1, reference=False) == 6
    assert cell_multiple(micro(), 3, reference=False) == 2  # three mini-batches make a multiple of three
    assert cell_multiple(micro(), 1, reference=True) == 30
    assert cell_multiple(micro(actor={"use_dynamic_bsz": True}), 1, reference=False) == 3
    dynamic = {"log_prob_use_dynamic_bsz": True}
    assert cell_multiple(micro(actor={"use_dynamic_bsz": True}, rollout=dynamic, ref=dynamic), 1, reference=True) == 1


@pytest.mark.parametrize(
    ("prompts", "sync_step", "size", "steps"), [(16, 1, 16, 1), (16, 1, 4, 4), (16, 4, 4, 1), (10, 1, 4, 3)]
)
def test_optimiser_steps_are_a_number_of_the_configuration(prompts, sync_step, size, steps):
    actor = {"ppo_mini_batch_size": size}
    config = OmegaConf.create({"data": {"train_batch_size": prompts}, "actor_rollout_ref": {"actor": actor}})
    assert optimiser_steps(config, sync_step) == steps


@settings(deadline=None, max_examples=100)
@given(
    st.dictionaries(st.tuples(st.sampled_from("abcdef"), st.sampled_from("0123")), st.integers(1, 6), min_size=1),
    st.integers(1, 5),
)
def test_any_sessions_are_dealt_evenly(segments, steps):
    rows = [session for session, count in segments.items() for _ in range(count)]
    dealt = deal(rows, steps)
    of_session = {
        session: {number for row, number in zip(rows, dealt, strict=True) if row == session} for session in rows
    }
    assert all(len(numbers) == 1 for numbers in of_session.values())
    hands = Counter(number for (number,) in of_session.values())
    counts = [hands[number] for number in range(steps)]
    assert max(counts) - min(counts) <= 1 and sum(counts) == len(segments)


def test_told_gives_the_worker_group_back_also_when_the_update_fails():
    def fails(batch):
        raise RuntimeError(batch.extra_info["mini_batch_size"])

    workers = SimpleNamespace(update_actor=fails)
    with pytest.raises(RuntimeError, match="12"), mini_batches.told(workers, 12):
        workers.update_actor(SimpleNamespace(extra_info={"mini_batch_size": 4}))
    assert workers.update_actor is fails
