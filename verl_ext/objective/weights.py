"""The bonus on each token's entropy, as a column that travels with the rows.

Computed once a step by the trainer, which sees the whole batch. So no worker needs to know anything about the rest of
its mini-batch, and the update is the same however verl splits it.
"""

from __future__ import annotations

import torch

from verl_ext.objective.coefficients import Aggregation
from verl_ext.objective.selector import after_observation, flat_rows, rows_like
from verl_ext.objective.settings import EntropyConfig


def bonus_weights(
    settings: EntropyConfig,
    step: int,
    response_mask: torch.Tensor,
    policy_mask: torch.Tensor,
    aggregation: Aggregation,
) -> tuple[torch.Tensor, dict[str, float]]:
    """What each token's entropy is multiplied with in the loss.

    It is coeff * factor * the coefficient that the token has when the selected tokens alone are aggregated. With
    ``match: total`` the factor makes the step's sum of these coefficients that of a uniform bonus.

    Args:
        settings: Of the run.
        step: Training step, from 1; moves the coefficient along its schedule.
        response_mask: Tokens in the loss: padded ``(R, L)`` or jagged nested ``(R, *)``.
        policy_mask: Tokens that the policy wrote (verl's ``loss_mask``). Differs from ``response_mask`` where rejection
            sampling took tokens out of the loss; those are neither selected nor mistaken for observations.
        aggregation: Of the run, for this batch.

    Returns:
        float32 in the layout of ``response_mask``, 0 on tokens without bonus; and metrics: the coefficient, the factor,
        and the share of loss tokens that have a bonus.
    """
    loss = flat_rows(response_mask)[0] != 0
    selected = loss
    if settings.where == "after_observation":
        selected = loss & flat_rows(after_observation(policy_mask, settings.tokens, settings.first_turn))[0]
    weights = aggregation.coefficients(rows_like(selected, response_mask))
    factor = 1.0
    if settings.where == "after_observation" and settings.match == "total":
        ours, uniform = (_total(column) for column in (weights, aggregation.coefficients(response_mask)))
        factor = uniform / ours if ours else 0.0
    coeff = settings.at(step)
    column = rows_like(coeff * factor * flat_rows(weights)[0], response_mask)
    return column, {
        "entropy/bonus/coeff": coeff,
        "entropy/bonus/factor": factor,
        "entropy/bonus/token_share": float(selected.sum() / loss.sum().clamp(min=1)),
    }


def _total(column: torch.Tensor) -> float:
    return float(flat_rows(column)[0].double().sum())
