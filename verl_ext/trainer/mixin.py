"""What every verl_ext trainer adds to a V1 trainer: session metrics, the exactness check, a session dump, a quick poll.

A mixin over verl's trainer classes (``sync`` now; the asynchronous modes take the same one). It changes no numbers: the
batch, the advantages and the update are verl's.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.workers.utils.padding import response_to_nested

from verl_ext.config import parse
from verl_ext.gym.flags import FLAGS
from verl_ext.plugin import cpu_platform
from verl_ext.types import StopReason


def rows_of(column: Any) -> list[Any]:
    """A TransferQueue column as a list of rows, whatever container the backend answers with."""
    return [getattr(row, "data", row) if not isinstance(row, torch.Tensor) else row for row in list(column)]


def session_metrics(extra_fields: list[dict[str, Any]], groups: list[str], scores: list[float]) -> dict[str, float]:
    """Means over a step's sessions.

    Args:
        extra_fields: One entry a session, as the agent loop wrote them.
        groups: Group id of each session (verl's ``uid``).
        scores: Reward of each session.

    Returns:
        ``session/*``: turns, invalid and redundant actions a session, shares of stop reasons, flags and tools, seconds
        in the sandbox, and the share of groups whose sessions all have the same reward (they teach GRPO nothing).
    """
    records = [fields["session"] for fields in extra_fields]
    turns = [record["turns"] for record in records]
    tools = Counter(turn["tool"] or "none" for session in turns for turn in session)
    stops = Counter(record["stop"] for record in records)
    by_group: dict[str, set[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        by_group.setdefault(group, set()).add(score)
    metrics = {
        "session/turns": np.mean([len(session) for session in turns]),
        "session/invalid": np.mean([sum(not turn["valid"] for turn in session) for session in turns]),
        "session/redundant": np.mean([sum(turn["redundant"] for turn in session) for session in turns]),
        "session/hard_coded": np.mean([any(turn["hard_coded"] for turn in session) for session in turns]),
        "session/public_share": np.mean([fields["public_share"] for fields in extra_fields]),
        "session/sandbox_s": np.mean([record["sandbox_s"] for record in records]),
        "session/generate_s": np.mean([record["generate_s"] for record in records]),
        "session/degenerate_groups": np.mean([len(rewards) == 1 for rewards in by_group.values()]),
    }
    for reason in StopReason:
        if not reason.infrastructure:
            metrics[f"session/stop/{reason}"] = stops[reason] / len(records)
    flagged = Counter(flag for fields in extra_fields for flag in fields["flags"])
    for flag in FLAGS:
        metrics[f"session/flag/{flag}"] = flagged[flag] / len(records)
    for tool, count in sorted(tools.items()):
        metrics[f"session/tool/{tool}"] = count / len(records)
    return {key: float(value) for key, value in metrics.items()}


def only_sessions(keys: list[str], padding: list[bool]) -> list[str]:
    """Keys of the real rows whose group has no other session; a key is ``{group}_{session}_{row}``."""
    rows: dict[str, list[str]] = {}
    for key, pad in zip(keys, padding, strict=True):
        if not pad:
            rows.setdefault(key.split("_")[0], []).append(key)
    return [key for group in rows.values() if len({key.rsplit("_", 1)[0] for key in group}) == 1 for key in group]


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
        super().__init__(config=config)
        self.replay_buffer.poll_interval = self.ours.poll_interval_s

    def get_llm_client(self) -> Any:
        manager = self.llm_server_manager
        if cpu_platform() and self.base_mode == "sync" and len(manager.get_replicas()) == 1:
            from verl_ext.cpu.client import OneServerClient

            return manager.get_client(client_cls=OneServerClient)
        return super().get_llm_client()

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_old_log_prob(batch, metrics)
        fields = ["old_log_probs", "rollout_log_probs", "response_mask"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        sampler = response_to_nested(data["rollout_log_probs"].to_padded_tensor(0.0), data["response_mask"])
        gap = (data["old_log_probs"].values() - sampler.values()).abs()[data["response_mask"].values().bool()]
        if gap.numel():
            metrics["exactness/log_prob_gap_max"] = gap.max().item()
            metrics["exactness/log_prob_gap_mean"] = gap.mean().item()
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        # verl gives the only session of a group its raw reward as advantage. When infrastructure took the others there
        # is no baseline to compare it with, and nothing to learn.
        alone = only_sessions(batch.keys, [tag.get("is_padding", False) for tag in batch.tags])
        metrics["session/groups_of_one"] = len(alone)
        if alone:
            data = tq.kv_batch_get(keys=alone, partition_id=batch.partition_id, select_fields=["advantages"])
            nothing = TensorDict({"advantages": data["advantages"] * 0}, batch_size=len(alone))
            tq.kv_batch_put(keys=alone, partition_id=batch.partition_id, fields=nothing)
        return batch

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
        data = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields", "rm_scores", "uid"]
        )
        extra_fields = rows_of(data["extra_fields"])
        scores = [float(row.sum()) for row in data["rm_scores"].unbind()]
        metrics.update(session_metrics(extra_fields, [str(uid) for uid in rows_of(data["uid"])], scores))
        expected = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        sessions = {key.rsplit("_", 1)[0] for key in keys}
        metrics["session/left_out"] = expected - len(sessions)
        if self.ours.session_dir:
            self._dump_sessions(batch, keys, kwargs["global_steps"])

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
