"""The bonus weight of every token of a training batch, as a column that travels with the rows.

Computed once a step by the trainer, which sees the whole batch. So no worker needs to know anything about the rest of
its mini-batch, and the update is the same however verl splits it over ranks and micro-batches.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import tensordict_utils as tu

from verl_ext.objective.selector import after_observation, jagged_like
from verl_ext.objective.settings import EntropyConfig

# What agg_loss divides by is the same for both masks and cancels in the ratio of the totals.
_ANY = {"dp_size": 1, "batch_num_tokens": 1, "global_batch_size": 1, "loss_scale_factor": 1}


def mini_batches(rows: int, dp_size: int, mini_batch_size: int, *, shuffle: bool, seed: int) -> torch.Tensor:
    """The mini-batch in which verl trains each row of a batch.

    verl cuts the batch into one run of rows a rank; mini-batch k is the k-th slice of every rank's run, in an order
    drawn by that rank when ``shuffle`` is set (``TrainingWorker.train_mini_batch``, whose iterator is called here).

    Args:
        rows: Rows of the batch, a multiple of ``mini_batch_size``.
        dp_size: Data-parallel ranks.
        mini_batch_size: Rows of a mini-batch over all ranks, a multiple of ``dp_size``.
        shuffle: ``actor.shuffle``.
        seed: ``actor.data_loader_seed``.

    Returns:
        int64 ``(rows,)``.
    """
    found = torch.empty(rows, dtype=torch.int64)
    for rank, of_rank in enumerate(torch.arange(rows).chunk(dp_size)):
        batches = tu.make_iterator(
            TensorDict({"row": of_rank}, batch_size=len(of_rank)),
            mini_batch_size=mini_batch_size // dp_size,
            epochs=1,
            seed=seed + rank,
            dataloader_kwargs={"shuffle": shuffle},
        )
        for number, batch in enumerate(batches):
            found[batch["row"]] = number
    return found


def bonus_weights(
    settings: EntropyConfig,
    step: int,
    response_mask: torch.Tensor,
    policy_mask: torch.Tensor,
    mini_batch: torch.Tensor,
    loss_agg_mode: str,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Weight of each token's entropy *before* aggregation with ``loss_agg_mode``.

    The bonus of a mini-batch is ``agg_loss(weight * entropy, weight > 0)``. With ``match: total`` the weight is
    coeff * agg_loss(1, response_mask) / agg_loss(1, selected), both over the whole mini-batch: the sum of what every
    token's entropy is multiplied with then equals that of a uniform bonus.

    Args:
        settings: Of the run.
        step: Training step, from 1; moves the coefficient along its schedule.
        response_mask: Tokens in the loss: padded ``(R, L)`` or jagged nested ``(R, *)``.
        policy_mask: Tokens that the policy wrote (verl's ``loss_mask``). Differs from ``response_mask`` where rejection
            sampling took tokens out of the loss; those are neither selected nor mistaken for observations.
        mini_batch: ``(R,)`` from :func:`mini_batches`.
        loss_agg_mode: ``actor.loss_agg_mode``.

    Returns:
        float32 in the layout of ``response_mask``, 0 on tokens without bonus; and metrics: the coefficient, the factor
        by which ``match`` changed it (mean over the mini-batches), and the share of loss tokens that have a bonus.
    """
    loss = _padded(response_mask)
    if settings.where == "uniform":
        selected = loss
    else:
        selected = _padded(after_observation(policy_mask, settings.tokens, settings.first_turn)) & loss
    factors = torch.ones(int(mini_batch.max()) + 1, dtype=torch.float64)
    if settings.match == "total":
        for number in range(len(factors)):
            rows = mini_batch == number
            ours, uniform = (_total(mask[rows], loss_agg_mode) for mask in (selected, loss))
            factors[number] = uniform / ours if ours else 0.0
    coeff = settings.at(step)
    padded = (coeff * factors[mini_batch].unsqueeze(-1) * selected).float()
    if response_mask.is_nested:
        lengths = response_mask.offsets().diff()
        inside = torch.arange(padded.shape[1]) < lengths.unsqueeze(-1)
        column = jagged_like(padded[inside], response_mask)
    else:
        column = padded
    return column, {
        "entropy/bonus/coeff": coeff,
        "entropy/bonus/factor": float(factors.mean()),
        "entropy/bonus/token_share": float(selected.sum() / loss.sum().clamp(min=1)),
    }


def _total(mask: torch.Tensor, loss_agg_mode: str) -> float:
    """Sum of the factors with which verl's aggregation multiplies the entries under a mask, up to its divisors."""
    return float(agg_loss(torch.ones(mask.shape, dtype=torch.float64), mask, loss_agg_mode, **_ANY))


def _padded(mask: torch.Tensor) -> torch.Tensor:
    if mask.is_nested:
        lengths = mask.offsets().diff()
        mask = mask.to_padded_tensor(0, output_size=(len(lengths), int(lengths.max())))
    return mask != 0
