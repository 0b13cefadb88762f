"""Rows of a training batch, in a dictionary instead of TransferQueue."""

from __future__ import annotations

import torch
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import FixedKLController
from verl.trainer.ppo.v1 import trainer_base
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_ext.trainer import mixin
from verl_ext.trainer.settings import credit_settings
from verl_ext.trainer.sync import BugFixTrainerSync


class Rows(dict):
    """The calls of TransferQueue that a trainer's step makes, over a dictionary of rows; ``tag`` is no field."""

    def kv_batch_get(self, keys, partition_id, select_fields=None):
        wanted = [name for name in self[keys[0]] if name != "tag" and name in (select_fields or self[keys[0]])]
        found = list_of_dict_to_tensordict([{name: self[key][name] for name in wanted} for key in keys])
        for name in wanted:  # nested also where all rows have one length, as TransferQueue answers
            rows = [self[key][name] for key in keys]
            if isinstance(rows[0], torch.Tensor):
                found[name] = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        return found

    def kv_batch_put(self, keys, partition_id, fields, tags=None):
        for i, key in enumerate(keys):
            row = self.setdefault(key, {})
            row.update({name: fields[name][i] for name in fields.keys()})  # noqa: SIM118 a TensorDict
            if tags is not None:
                row["tag"] = tags[i]
        return self.batch(keys, partition_id)

    def batch(self, keys, partition_id="train"):
        """The rows' metadata; as in TransferQueue it names every field that they have by now."""
        names = [name for name in self[keys[0]] if name != "tag"]
        tags = [self[key]["tag"] for key in keys]
        return KVBatchMeta(partition_id=partition_id, keys=list(keys), tags=tags, fields=names)


def row(
    group: str,
    score: float,
    spans: list[tuple[int, int]],
    anchors: str,
    kl: float = 0.0,
    padding: bool = False,
    first: int = 0,
    reward: float = 0.0,
) -> dict:
    """A row whose turns have the given spans; the trainer's log-prob of each token is ``kl`` above the reference's. Its
    turns count from ``first``, and each has this reward."""
    length = spans[-1][1]
    mask = torch.zeros(length, dtype=torch.int64)
    turns = []
    for index, ((start, end), anchor) in enumerate(zip(spans, anchors, strict=True)):
        mask[start:end] = 0 if padding else 1
        entry = {"index": first + index, "start": start, "end": end, "anchor": anchor, "valid": True}
        turns.append(entry | {"action": str(index), "reward": reward, "potential": 0.0})
    scores = torch.zeros(length)
    scores[-1] = score
    log_probs = torch.full((length,), -1.0) * mask
    return {
        "uid": group,
        "response_mask": mask,
        "rm_scores": scores,
        "rollout_log_probs": log_probs.clone(),
        "old_log_probs": log_probs,
        "ref_log_prob": log_probs - kl * mask,
        "extra_fields": {"session": {"turns": turns}},
        "tag": {"is_padding": padding, "seq_len": 100 + length},
    }


def advantages(store: Rows, monkeypatch, **algorithm) -> tuple[dict[str, list[float]], dict[str, float]]:
    """What the trainer writes for each row, rounded, and its metrics."""
    monkeypatch.setattr(trainer_base, "tq", store)
    monkeypatch.setattr(mixin, "tq", store)
    trainer = BugFixTrainerSync.__new__(BugFixTrainerSync)
    base = {"adv_estimator": "gigpo", "gamma": 1.0, "lam": 1.0, "use_kl_in_reward": False}
    trainer.config = OmegaConf.create(
        {"algorithm": base | algorithm, "actor_rollout_ref": {"rollout": {"n": 2}}}, flags={"allow_objects": True}
    )
    trainer.kl_ctrl_in_reward = FixedKLController(0.1)
    trainer.credit = credit_settings(trainer.config.algorithm)
    batch = KVBatchMeta(partition_id="train", keys=list(store), tags=[fields["tag"] for fields in store.values()])
    metrics: dict[str, float] = {}
    trainer._compute_advantage(batch, metrics)
    return {key: [round(value, 6) for value in fields["advantages"].tolist()] for key, fields in store.items()}, metrics
