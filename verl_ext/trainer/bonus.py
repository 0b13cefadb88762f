"""The entropy bonus in a trainer: the loss of the actor's workers, the weight column of a batch, and the metrics."""

from __future__ import annotations

from functools import partial
from typing import Any

import transfer_queue as tq
from tensordict import TensorDict
from verl.utils.config import omega_conf_to_dataclass

from verl_ext.objective.loss import WEIGHT, ppo_loss_with_entropy_bonus
from verl_ext.objective.metrics import entropy_by_position, share_of_entropy
from verl_ext.objective.settings import EntropyConfig
from verl_ext.objective.weights import bonus_weights, mini_batches


def install(actor: Any, worker_group: Any) -> None:
    """Have the actor's workers train with the bonus.

    Args:
        actor: ``config.actor_rollout_ref.actor``.
        worker_group: The trainer's ``actor_rollout_wg``.
    """
    worker_group.set_loss_fn(partial(ppo_loss_with_entropy_bonus, config=omega_conf_to_dataclass(actor)))


def entropy_metrics(batch: Any) -> dict[str, float]:
    """``entropy/*`` of a batch, from the entropies that verl's log-prob pass leaves; none where it leaves none."""
    fields = ["entropy", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    return entropy_by_position(data["entropy"], data["response_mask"]) if "entropy" in data else {}


def put_weights(
    settings: EntropyConfig, config: Any, worker_group: Any, batch: Any, global_steps: int
) -> tuple[Any, dict[str, float]]:
    """Write the column of weights that the loss reads, for the batch as it will be cut into mini-batches.

    Args:
        settings: Of the run.
        config: The whole configuration.
        worker_group: The trainer's ``actor_rollout_wg``; tells the number of data-parallel ranks.
        batch: The step's rows, in the order in which they are dispatched.
        global_steps: The training step, from 1.

    Returns:
        The batch, which now names the column (workers fetch only what it names), and metrics.
    """
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    groups = mini_batches(
        len(batch),
        max(worker_group._dispatch_info["actor"]) + 1,
        actor.ppo_mini_batch_size * rollout.n,
        shuffle=actor.shuffle,
        seed=actor.data_loader_seed,
    )
    fields = ["entropy", "response_mask", "loss_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    masks = data["response_mask"], data["loss_mask"]
    weights, metrics = bonus_weights(settings, global_steps, *masks, groups, actor.loss_agg_mode)
    column = TensorDict({WEIGHT: weights}, batch_size=len(batch))
    batch = tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=column)
    if "entropy" in data:
        metrics["entropy/bonus/share"] = share_of_entropy(data["entropy"], weights, data["response_mask"])
    return batch, metrics
