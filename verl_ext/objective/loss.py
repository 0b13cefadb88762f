"""The policy loss of the actor's workers: verl's PPO loss with a weight on every token, and an entropy bonus.

Both read a column that the trainer sends with the rows and that holds the final coefficient of each token, so all that
is left to do in a worker is a sum. Both have the signature that all of verl's engines call
(``loss_fn(model_output, data, dp_group)``; FSDP: ``forward_step``, Megatron: ``postprocess_micro_batch_func``, which
scales what it gets here by the number of micro-batches itself).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import kl_penalty
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

LOSS_WEIGHT, ENTROPY_WEIGHT = "loss_weight", "entropy_weight"


def weighted_ppo_loss(
    config: ActorConfig, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """verl's ``ppo_loss`` with the column :data:`LOSS_WEIGHT` in place of ``config.loss_agg_mode``.

    verl's policy losses multiply each token's loss with ``rollout_is_weights`` before they aggregate
    (:data:`verl_ext.objective.settings.WEIGHABLE` lists them), so the weight goes in there and ``token-sum`` does the
    rest. The entropy and KL terms are summed here.

    Args:
        config: The actor's.
        model_output: ``log_probs`` and, where the run computes it, ``entropy``, jagged over prompt and response.
        data: A micro-batch; beside verl's fields the column ``(R, L)``, see
            :meth:`verl_ext.objective.coefficients.Aggregation.coefficients`.
        dp_group: Not used; the column carries all that depends on other ranks.

    Returns:
        The loss, and verl's metrics under verl's names.
    """
    log_prob = no_padding_2_padding(model_output["log_probs"], data)
    weight = _column(data, LOSS_WEIGHT, log_prob)
    correction = _column(data, "rollout_is_weights", log_prob) if "rollout_is_weights" in data else 1.0
    weighted = data.copy()
    weighted["rollout_is_weights"] = weight * correction
    summed = replace(config, loss_agg_mode="token-sum", entropy_coeff=0, use_kl_loss=False)
    loss, metrics = ppo_loss(summed, {"log_probs": model_output["log_probs"]}, weighted, dp_group)
    if model_output.get("entropy") is not None:
        entropy = _sum(no_padding_2_padding(model_output["entropy"], data), weight, data)
        loss = loss - config.entropy_coeff * entropy
        metrics["actor/entropy_loss"] = Metric(AggregationType.SUM, entropy)
    if config.use_kl_loss:
        reference = _column(data, "ref_log_prob", log_prob)
        kl = _sum(kl_penalty(log_prob, reference, config.kl_loss_type), weight, data)
        loss = loss + config.kl_loss_coef * kl
        metrics["kl_loss"], metrics["kl_coef"] = Metric(AggregationType.SUM, kl), config.kl_loss_coef
    return loss, metrics


def with_entropy_bonus(
    loss_fn: Callable, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Another loss minus the sum of :data:`ENTROPY_WEIGHT` times entropy.

    Install with ``set_loss_fn(partial(with_entropy_bonus, partial(ppo_loss, config=actor_config)))``.

    Args:
        loss_fn: The other loss.
        model_output: ``log_probs`` and ``entropy`` with gradient, jagged over prompt and response.
        data: A micro-batch; beside verl's fields the column ``(R, L)``, see
            :func:`verl_ext.objective.weights.bonus_weights`.
        dp_group: Handed on.

    Returns:
        The loss, and the other one's metrics with ``actor/entropy_bonus``: what was subtracted, over a mini-batch.
    """
    if model_output.get("entropy") is None:
        raise RuntimeError("the engine gave no entropy; set actor_rollout_ref.actor.calculate_entropy=true")
    entropy = no_padding_2_padding(model_output["entropy"], data)
    bonus = _sum(entropy, _column(data, ENTROPY_WEIGHT, entropy), data)
    loss, metrics = loss_fn(model_output=model_output, data=data, dp_group=dp_group)
    metrics["actor/entropy_bonus"] = Metric(AggregationType.SUM, bonus)
    return loss - bonus, metrics


def _column(data: TensorDict, name: str, like: torch.Tensor) -> torch.Tensor:
    """A column of the batch, padded as the model's output is."""
    if name not in data:
        raise RuntimeError(f"the batch has no column {name}; this loss needs a verl_ext trainer")
    column = data[name]
    return column.to_padded_tensor(0.0, output_size=like.shape) if column.is_nested else column


def _sum(values: torch.Tensor, weight: torch.Tensor, data: TensorDict) -> torch.Tensor:
    """Sum over a mini-batch, once verl's engine has added micro-batches and averaged ranks; outside the weights nothing
    counts, whatever it is."""
    return (torch.where(weight > 0, values, 0.0) * weight).sum() * data["dp_size"]
