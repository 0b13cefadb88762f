"""The loss of the actor's workers, the columns of a batch that it reads, and the metrics of entropy."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

from verl_ext.objective.coefficients import Aggregation
from verl_ext.objective.loss import ENTROPY_WEIGHT, LOSS_WEIGHT, weighted_ppo_loss, with_entropy_bonus
from verl_ext.objective.metrics import entropy_by_position, share_of_entropy
from verl_ext.objective.settings import EntropyConfig
from verl_ext.objective.weights import bonus_weights


def install(actor: Any, worker_group: Any, *, sessions: bool, bonus: bool) -> None:
    """Have the actor's workers train with a loss of ours; with neither, verl's own stays.

    Args:
        actor: ``config.actor_rollout_ref.actor``.
        worker_group: The trainer's ``actor_rollout_wg``.
        sessions: Whether sessions weigh, and not rows.
        bonus: Whether there is an entropy bonus.
    """
    if not (sessions or bonus):
        return
    loss_fn = partial(weighted_ppo_loss if sessions else ppo_loss, omega_conf_to_dataclass(actor))
    worker_group.set_loss_fn(partial(with_entropy_bonus, loss_fn) if bonus else loss_fn)


def entropy_metrics(batch: Any) -> dict[str, float]:
    """``entropy/*`` of a batch, from the entropies that verl's log-prob pass leaves; none where it leaves none."""
    fields = ["entropy", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    return entropy_by_position(data["entropy"], data["response_mask"]) if "entropy" in data else {}


def put_columns(
    entropy: EntropyConfig, actor: Any, batch: Any, *, sessions: bool, steps: int, global_steps: int
) -> tuple[Any, dict[str, float]]:
    """Write the columns that the installed loss reads.

    Args:
        entropy: Of the run.
        actor: ``config.actor_rollout_ref.actor``.
        batch: The step's rows.
        sessions: Whether sessions weigh, and not rows.
        steps: Optimiser steps in which the batch is trained once.
        global_steps: The training step, from 1.

    Returns:
        The batch, which now names the columns (workers fetch only what it names), and metrics.
    """
    bonus = entropy.where != "none"
    if not (sessions or bonus):
        return batch, {}
    fields = ["entropy", "response_mask", "loss_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    mask, how = data["response_mask"], (actor.loss_agg_mode, steps, actor.loss_scale_factor)
    aggregation = (
        Aggregation.over_sessions(mask, _sessions(batch.keys), *how)
        if sessions
        else Aggregation.over_rows(data["loss_mask"], *how)
    )
    columns, metrics = {}, {}
    if sessions:
        columns[LOSS_WEIGHT] = aggregation.coefficients(mask)
    if bonus:
        weights, metrics = bonus_weights(entropy, global_steps, mask, data["loss_mask"], aggregation)
        columns[ENTROPY_WEIGHT] = weights
        if "entropy" in data:
            metrics["entropy/bonus/share"] = share_of_entropy(data["entropy"], weights, mask)
    column = TensorDict(columns, batch_size=len(batch))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=column), metrics


def _sessions(keys: list[str]) -> torch.Tensor:
    """The session of each row, as a number."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(key.rsplit("_", 1)[0], len(numbers)) for key in keys])
