"""The policy loss with the entropy bonus: verl's PPO loss minus the weighted entropy, aggregated as verl aggregates.

Has the signature that all of verl's engines call (``loss_fn(model_output, data, dp_group)``; FSDP: ``forward_step``,
Megatron: ``postprocess_micro_batch_func``, which scales what it gets here by the number of micro-batches itself).
"""

from __future__ import annotations

from typing import Any

from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

WEIGHT = "entropy_weight"


def ppo_loss_with_entropy_bonus(
    config: ActorConfig, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[Any, dict[str, Any]]:
    """verl's ``ppo_loss`` minus ``agg_loss(weight * entropy, weight > 0)``, with the run's ``loss_agg_mode``.

    Install with ``set_loss_fn(partial(ppo_loss_with_entropy_bonus, config=actor_config))``.

    Args:
        config: The actor's; its ``global_batch_info`` is filled by verl's loss.
        model_output: ``log_probs`` and ``entropy`` with gradient, jagged over prompt and response.
        data: A micro-batch; beside verl's fields the column :data:`WEIGHT` ``(R, L)``, see
            :func:`verl_ext.objective.weights.bonus_weights`.
        dp_group: Not used; the column carries all that depends on other ranks.

    Returns:
        The loss, and verl's metrics with ``actor/entropy_bonus``: what was subtracted, over the whole mini-batch.
    """
    if model_output.get("entropy") is None:
        raise RuntimeError("the engine gave no entropy; set actor_rollout_ref.actor.calculate_entropy=true")
    if WEIGHT not in data:
        raise RuntimeError(f"the batch has no column {WEIGHT}; the entropy bonus needs a verl_ext trainer")
    loss, metrics = ppo_loss(config, model_output, data, dp_group)
    entropy = no_padding_2_padding(model_output["entropy"], data)
    weight = data[WEIGHT]
    if weight.is_nested:
        weight = weight.to_padded_tensor(0.0, output_size=entropy.shape)
    selected = weight > 0
    # Without a selected token the bonus is 0; agg_loss would say 0/0 in a mini-batch that has no token at all.
    if not selected.any():
        metrics["actor/entropy_bonus"] = Metric(AggregationType.SUM, 0.0)
        return loss, metrics
    bonus = agg_loss(entropy * weight, selected, config.loss_agg_mode, **config.global_batch_info)
    metrics["actor/entropy_bonus"] = Metric(AggregationType.SUM, bonus)
    return loss - bonus, metrics
