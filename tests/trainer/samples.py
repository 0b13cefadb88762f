"""Rows of a training batch, in a dictionary instead of TransferQueue."""

from __future__ import annotations

import torch
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict


class Rows(dict):
    """The calls of TransferQueue that a trainer's step makes, over a dictionary of rows; ``tag`` is no field."""

    def kv_batch_get(self, keys, partition_id, select_fields):
        return list_of_dict_to_tensordict(
            [{name: self[key][name] for name in select_fields if name in self[key]} for key in keys]
        )

    def kv_batch_put(self, keys, partition_id, fields):
        for i, key in enumerate(keys):
            self[key].update({name: fields[name][i] for name in fields.keys()})  # noqa: SIM118 a TensorDict
        return self.batch(keys, partition_id)

    def batch(self, keys, partition_id="train"):
        """The rows' metadata; as in TransferQueue it names every field that they have by now."""
        names = [name for name in self[keys[0]] if name != "tag"]
        tags = [self[key]["tag"] for key in keys]
        return KVBatchMeta(partition_id=partition_id, keys=list(keys), tags=tags, fields=names)


def row(group: str, score: float, spans: list[tuple[int, int]], anchors: str, kl: float = 0.0, padding=False) -> dict:
    """A row whose turns have the given spans; the trainer's log-prob of each token is ``kl`` above the reference's."""
    length = spans[-1][1]
    mask = torch.zeros(length, dtype=torch.int64)
    turns = []
    for index, ((start, end), anchor) in enumerate(zip(spans, anchors, strict=True)):
        mask[start:end] = 0 if padding else 1
        entry = {"index": index, "start": start, "end": end, "anchor": anchor, "action": str(index), "valid": True}
        turns.append(entry | {"reward": 0.0, "potential": 0.0})
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
        "tag": {"is_padding": padding},
    }
