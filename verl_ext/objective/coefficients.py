"""What each token's loss counts in a step's update, where whole sessions are averaged and not their rows.

verl averages over the rows of a mini-batch. A session that was folded into several rows would weigh more under the
``seq-mean`` modes, rows of padding would dilute it, and the last mini-batch of a step would weigh something of its own.
Here each token gets the coefficient that verl's aggregation would give it if every session were one row and nothing
else were in the batch. It is the derivative of verl's own ``agg_loss`` by that token's loss, so that no aggregation
mode is written a second time. The loss is then the plain sum of coefficient times token loss, which nothing about rows,
mini-batches, ranks or micro-batches can change.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from verl.trainer.ppo.core_algos import agg_loss

from verl_ext.objective.selector import flat_rows, rows_like


@dataclass(frozen=True)
class Aggregation:
    """How the token losses of a step become the losses of its mini-batches.

    Attributes:
        mode: ``actor.loss_agg_mode``.
        unit_R: What each row belongs to, as a number: rows of a unit are aggregated as if they were one row. The order
            of a unit's rows does not matter, since every mode takes sums over a row.
        tokens: What ``token-mean`` divides by: the tokens of a mini-batch.
        sequences: What the ``seq-mean`` modes divide by: the units of a mini-batch.
        loss_scale_factor: ``actor.loss_scale_factor``.
    """

    mode: str
    unit_R: torch.Tensor
    tokens: float
    sequences: float
    loss_scale_factor: int | None = None

    @classmethod
    def over_sessions(
        cls, mask: torch.Tensor, session_R: torch.Tensor, mode: str, steps: int, loss_scale_factor: int | None = None
    ) -> Aggregation:
        """Each of a step's ``steps`` mini-batches has its share of the trained tokens and sessions of the whole step.

        A session counts when at least one of its tokens is trained. One that is masked out, rejected or padding changes
        no other session's weight.

        Args:
            mask: Non-zero on trained tokens: padded ``(R, L)`` or jagged nested ``(R, *)``.
            session_R: The session of each row, as a number.
            mode, loss_scale_factor: See the attributes.
            steps: Optimiser steps in which the batch is trained once.
        """
        trained = _tokens_of(mask)[1]
        sessions = len(session_R[trained].unique())
        return cls(mode, session_R, len(trained) / steps, sessions / steps, loss_scale_factor)

    @classmethod
    def over_rows(
        cls, policy_mask: torch.Tensor, mode: str, steps: int, loss_scale_factor: int | None = None
    ) -> Aggregation:
        """verl's own divisors, with the step's mean number of tokens a mini-batch in place of each one's.

        Args:
            policy_mask: verl's ``loss_mask``, which it takes the number of tokens from.
            mode, steps, loss_scale_factor: As above.
        """
        rows = len(flat_rows(policy_mask)[1]) - 1
        tokens = len(_tokens_of(policy_mask)[1])
        return cls(mode, torch.arange(rows), tokens / steps, rows / steps, loss_scale_factor)

    def coefficients(self, mask: torch.Tensor) -> torch.Tensor:
        """What the loss of each token under ``mask`` is multiplied with.

        Args:
            mask: Non-zero on the tokens to aggregate: padded ``(R, L)`` or jagged nested ``(R, *)``.

        Returns:
            float32 in the layout of ``mask``, 0 on all other tokens.
        """
        at, row = _tokens_of(mask)
        flat = torch.zeros(flat_rows(mask)[0].shape, dtype=torch.float32)
        if len(at):  # agg_loss would say 0/0
            unit = self.unit_R[row].unique(return_inverse=True)[1]
            counts = unit.bincount()
            order = unit.argsort(stable=True)
            place = torch.empty_like(unit)
            place[order] = torch.arange(len(unit)) - (counts.cumsum(0) - counts)[unit[order]]
            inside = torch.zeros((len(counts), int(counts.max())), dtype=torch.bool)
            inside[unit, place] = True
            losses = torch.zeros(inside.shape, dtype=torch.float64, requires_grad=True)
            loss = agg_loss(
                losses,
                inside,
                self.mode,
                batch_num_tokens=self.tokens,
                global_batch_size=self.sequences,
                loss_scale_factor=self.loss_scale_factor,
            )
            flat[at] = torch.autograd.grad(loss, losses)[0][unit, place].float()
        return rows_like(flat, mask)


def _tokens_of(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Place in the flat rows, and row, of each token under a mask."""
    flat, bounds = flat_rows(mask)
    at = flat.nonzero().squeeze(-1)
    return at, torch.bucketize(at, bounds[1:], right=True)
