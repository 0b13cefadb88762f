"""What every verl_ext trainer adds to a V1 trainer: turn-level credit, sessions that weigh alike, the entropy bonus,
session metrics, the check of exactness, a session dump, a quick poll.

A mixin over verl's trainer classes. With ``segment_weighting: row`` and without a turn-level estimator or a bonus the
batch and the update are verl's. So are GRPO's advantages where each session is one row without rewards of its turns,
but for a session that is alone in its group, whose advantage verl takes to be its reward.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.workers.utils.padding import response_to_nested

from verl_ext.config import parse
from verl_ext.credit import grpo
from verl_ext.objective.settings import check as check_entropy
from verl_ext.plugin import cpu_platform
from verl_ext.trainer import exactness, loss, mini_batches, staleness
from verl_ext.trainer.estimators import Turns, turns_at_hand
from verl_ext.trainer.idle import InFlight, idle_metrics
from verl_ext.trainer.lengths import Lengths
from verl_ext.trainer.metrics import (
    lone_rows,
    segment_metrics,
    session_metrics,
    step_group_metrics,
    whole_sessions,
)
from verl_ext.trainer.settings import (
    ESTIMATORS,
    GROUP_RELATIVE,
    bypasses,
    check_correction,
    check_segments,
    credit_settings,
)
from verl_ext.trainer.turns import Row, place, rows_with_turns, turn_table


def rows_of(column: Any) -> list[Any]:
    """A TransferQueue column as a list of rows, whatever container the backend answers with."""
    return [getattr(row, "data", row) if not isinstance(row, torch.Tensor) else row for row in list(column)]


class SessionTrainerMixin:
    """Put before a verl V1 trainer; ``base_mode`` names the built-in mode whose behaviour is kept."""

    base_mode: str

    # verl compares ``trainer_mode`` with its built-in names, so a registered trainer must answer with its base mode.
    @property
    def trainer_mode(self) -> str:
        return self.base_mode

    @trainer_mode.setter
    def trainer_mode(self, value: str) -> None: ...

    def __init__(self, config: Any):
        self.ours = parse(config)
        self.credit = credit_settings(config.algorithm)
        check_entropy(self.ours.entropy, config)
        check_correction(config, bonus=self.ours.entropy.where != "none")
        check_segments(self.ours.context, config)
        super().__init__(config=config)
        self.replay_buffer.poll_interval = self.ours.poll_interval_s
        self.lengths = Lengths()
        if self.base_mode != "sync":  # whose sessions are all trained on in their step
            self.lengths.see_evictions(self.replay_buffer)
        self._in_flight: InFlight | None = None

    def _setup(self) -> None:
        super()._setup()
        bonus = self.ours.entropy.where != "none"
        actor = self.config.actor_rollout_ref.actor
        loss.install(actor, self.actor_rollout_wg, sessions=self.sessions_weigh, bonus=bonus)

    def fit(self, agent_loop_manager: Any) -> None:
        if self.base_mode == "separate_async":
            balancer = self.standalone_server_manager.global_load_balancer
            self._in_flight = InFlight(lambda: ray.get(balancer.get_total_inflight.remote(), timeout=5.0))
            self._in_flight.start()
        try:
            super().fit(agent_loop_manager)
        finally:
            if self._in_flight:
                self._in_flight.end()

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        looks = self._in_flight.take if self._in_flight else lambda: None
        looks()  # seen during validation, saving and the sending of weights
        began = time.perf_counter()
        batch = super().step(metrics, timing_raw)
        metrics.update(idle_metrics(time.perf_counter() - began, timing_raw.get("gen", 0.0), looks()))
        return batch

    def get_llm_client(self) -> Any:
        manager = self.llm_server_manager
        if cpu_platform() and self.base_mode == "sync" and len(manager.get_replicas()) == 1:
            from verl_ext.cpu.client import OneServerClient

            return manager.get_client(client_cls=OneServerClient)
        return super().get_llm_client()

    @property
    def sessions_weigh(self) -> bool:
        """Whether a session weighs as one row in the loss, however many rows it has."""
        return self.ours.context.segment_weighting == "session"

    @property
    def _optimiser_steps(self) -> int:
        return mini_batches.optimiser_steps(self.config, self.parameter_sync_step)

    def _balance_batch(
        self, batch: Any, metrics: dict[str, Any], logging_prefix: str = "global_seqlen", keep_minibatch: bool = False
    ) -> Any:
        if not self.sessions_weigh:
            return super()._balance_batch(batch, metrics, logging_prefix, keep_minibatch)
        steps, ranks = self._optimiser_steps, mini_batches.ranks_of(self.actor_rollout_wg)
        reference = self.use_reference_policy and not self.ref_in_actor
        multiple = mini_batches.cell_multiple(self.config, steps, reference)
        eos = self.tokenizer.eos_token_id
        batch, found = mini_batches.balance(batch, steps, ranks, multiple, eos, logging_prefix)
        metrics.update(found)
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_old_log_prob(batch, metrics)
        if bypasses(self.config.algorithm):  # no log-probs of the trainer's own, so nothing to compare
            return batch
        metrics.update(loss.entropy_metrics(batch))
        metrics.update(exactness.measure(self.ours.exactness, self.config, batch, self.global_steps))
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        estimator = self.config.algorithm.adv_estimator
        padding = [tag.get("is_padding", False) for tag in batch.tags]
        if estimator in ESTIMATORS:
            data = tq.kv_batch_get(
                keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields", "rm_scores"]
            )
            rows = rows_with_turns(batch.keys, padding, rows_of(data["extra_fields"]))
            with turns_at_hand(Turns(rows, data["rm_scores"].to_padded_tensor(0.0), self.credit)) as turns:
                batch = super()._compute_advantage(batch, metrics)
            metrics.update(turns.metrics)
            return batch
        batch = super()._compute_advantage(batch, metrics)
        if estimator == "grpo" and (of_turns := self._grpo_over_sessions(batch, padding)) is not None:
            batch, metrics["session/groups_of_one"] = of_turns
            return batch
        if estimator not in GROUP_RELATIVE:
            return batch
        # verl gives the only session of a group its raw reward as advantage. When infrastructure took the others there
        # is no baseline to compare it with, and nothing to learn.
        alone, metrics["session/groups_of_one"] = lone_rows(batch.keys, padding)
        if alone:
            data = tq.kv_batch_get(keys=alone, partition_id=batch.partition_id, select_fields=["advantages"])
            nothing = TensorDict({"advantages": data["advantages"] * 0}, batch_size=len(alone))
            tq.kv_batch_put(keys=alone, partition_id=batch.partition_id, fields=nothing)
        return batch

    def _grpo_over_sessions(self, batch: Any, padding: list[bool]) -> tuple[Any, float] | None:
        """GRPO on the turn table, in place of verl's, and the share of groups of one session.

        verl reads a session's advantage off its last row, which rollout correction may have rejected, and knows no
        reward of a turn. None where neither can matter: each session is one row without rewards of its own.
        """
        fields = ["extra_fields", "rm_scores", "token_level_rewards", "response_mask"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        rows = rows_with_turns(batch.keys, padding, rows_of(data["extra_fields"]))
        real = [row for row in rows if row.turns]
        if len(real) == len({row.session for row in real}) and not any(t["reward"] for r in real for t in r.turns):
            return None
        mask = data["response_mask"]
        verdicts = data["rm_scores"].to_padded_tensor(0.0)
        rewards = data["token_level_rewards"].to_padded_tensor(0.0) if "token_level_rewards" in data else verdicts
        norm = "mean_std" if self.config.algorithm.get("norm_adv_by_std_in_grpo", True) else "mean"
        advantages_T, found = grpo(turn_table(rows, rewards, verdicts), norm)
        placed = response_to_nested(place(rows, advantages_T, mask.to_padded_tensor(0)), mask)
        columns = TensorDict({"advantages": placed, "returns": placed}, batch_size=len(batch))
        batch = tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=columns)
        return batch, found.lone_groups / max(found.groups, 1)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        actor, sessions = self.config.actor_rollout_ref.actor, self.sessions_weigh
        rows = actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n
        steps = self._optimiser_steps if sessions else len(batch) // rows
        how = {"sessions": sessions, "steps": steps, "global_steps": self.global_steps}
        batch, more = loss.put_columns(self.ours.entropy, actor, batch, **how)
        metrics.update(more)
        if not sessions:
            return super()._update_actor(batch, metrics)
        with mini_batches.told(self.actor_rollout_wg, len(batch) // steps):
            return super()._update_actor(batch, metrics)

    def _val_metrics_update(self, data_sources: list[str], sample_uids: list[str], infos: dict, *rest: Any, **kw: Any):
        # verl draws a bootstrap of every number for every task: minutes on two cores. It is wanted for `acc` alone.
        numbers = {name for name, values in infos.items() if any(isinstance(value, int | float) for value in values)}
        only = {name: values for name, values in infos.items() if name == "acc" or name not in numbers}
        metrics = super()._val_metrics_update(data_sources, sample_uids, only, *rest, **kw)
        # verl's ``val-core`` counts a session that left no row as wrong; here it is left out, and counted.
        for source in sorted(set(data_sources)):
            passed = [acc for acc, of in zip(infos["acc"], data_sources, strict=True) if of == source]
            metrics[f"val/pass_at_1/{source}"] = float(np.mean(passed))
        metrics["val/left_out"] = sum((kw.get("expected_acc_counts") or {}).values()) - len(sample_uids)
        return metrics

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], **kwargs: Any
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, **kwargs)
        real = [i for i, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
        if not real:
            return
        keys = [batch.keys[i] for i in real]
        fields = ["extra_fields", "rm_scores", "response_mask"]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        extra_fields = rows_of(data["extra_fields"])
        rows = rows_with_turns(keys, [False] * len(keys), extra_fields)
        last, sessions = zip(*whole_sessions(rows, extra_fields), strict=True)
        scores = [float(row.sum()) for row in data["rm_scores"].unbind()]
        groups = [rows[i].session[0] for i in last]
        metrics.update(session_metrics(sessions, groups, [scores[i] for i in last]))
        lengths = [batch.tags[i]["seq_len"] for i in real]
        trained = [int(row.sum()) for row in data["response_mask"].unbind()]
        metrics.update(segment_metrics(rows, scores, lengths, trained, padding=len(batch) - len(real)))
        metrics.update(step_group_metrics(rows))
        if self.base_mode != "sync":
            self.lengths.see(self.replay_buffer.partitions[batch.partition_id])
            metrics.update(self.lengths.step(dict(zip(batch.keys, batch.tags, strict=True))))
            versions = staleness.turn_versions(rows, [batch.tags[i] for i in real])
            metrics.update(staleness.age_metrics(versions, kwargs["global_steps"] - 1))
            metrics.update(self._correction_metrics(rows, batch.partition_id))
        expected = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        metrics["session/left_out"] = expected - len(sessions)
        if self.ours.session_dir:
            self._dump_sessions(batch, keys, kwargs["global_steps"])

    def _correction_metrics(self, rows: list[Row], partition: str) -> dict[str, float]:
        if bypasses(self.config.algorithm):
            return {}
        fields = ["old_log_probs", "rollout_log_probs", "loss_mask", "response_mask"]
        data = tq.kv_batch_get(keys=[row.key for row in rows], partition_id=partition, select_fields=fields)
        old, sampler, before, after = (data[name].to_padded_tensor(0) for name in fields)
        correction = self.config.algorithm.get("rollout_correction") or {}
        return staleness.correction_metrics(rows, old - sampler, before, after, correction)

    def _dump_sessions(self, batch: Any, keys: list[str], step: int) -> None:
        tensors = [
            "prompts",
            "responses",
            "response_mask",
            "rollout_log_probs",
            "old_log_probs",
            "advantages",
            "rm_scores",
        ]
        data = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=[*tensors, "extra_fields", "reward_model"]
        )
        columns = {name: [row.tolist() for row in data[name].unbind()] for name in tensors}
        extra, truth = rows_of(data["extra_fields"]), rows_of(data["reward_model"])
        folder = Path(self.ours.session_dir)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{step}.jsonl", "w") as file:
            for i, key in enumerate(keys):
                row = {"key": key, "task_id": truth[i]["ground_truth"], "score": sum(columns["rm_scores"][i])}
                row.update({name: columns[name][i] for name in tensors if name != "rm_scores"})
                row.update({name: extra[i][name] for name in ("session", "final_sources", "reward_extra_info")})
                file.write(json.dumps(row) + "\n")
