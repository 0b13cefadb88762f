"""Which policy tokens stand right after an observation: from a response mask alone, for any ragged batch.

A response mask is 1 on tokens that the policy wrote and 0 on tokens of observations, and on padding. A *turn* is a
maximal run of ones within a row. A turn that begins its row is a *first turn*: it answers the prompt, and no
observation stands before it. Needs torch only; no loop over rows.
"""

from __future__ import annotations

import torch


def position_after_observation(
    response_mask: torch.Tensor, *, first_turn: bool = False, offsets: torch.Tensor | None = None
) -> torch.Tensor:
    """Distance of each policy token from the observation before it: 0 for the first token of a turn, then 1, 2, ...

    Args:
        response_mask: Non-zero on policy tokens. Padded ``(R, L)``, jagged nested ``(R, *)``, or packed ``(N,)`` with
            ``offsets``.
        first_turn: Whether tokens of first turns get a position too, counted from the end of the prompt.
        offsets: ``(R + 1,)`` row boundaries of a packed mask.

    Returns:
        int64 in the layout of ``response_mask``; -1 on all other tokens.
    """
    flat, bounds = flat_rows(response_mask, offsets)
    policy = flat != 0
    index = torch.arange(policy.numel(), device=policy.device)
    row_begin = torch.zeros_like(policy)
    row_begin[bounds[:-1][bounds[:-1] < policy.numel()]] = True  # an empty last row begins past the end
    after_policy = torch.zeros_like(policy)
    after_policy[1:] = policy[:-1]
    begins = policy & (row_begin | ~after_policy)
    begin = torch.where(begins, index, 0).cummax(0).values if policy.numel() else index
    counted = policy if first_turn else policy & ~row_begin[begin]
    return rows_like(torch.where(counted, index - begin, -1), response_mask)


def after_observation(
    response_mask: torch.Tensor, tokens: int, first_turn: bool, *, offsets: torch.Tensor | None = None
) -> torch.Tensor:
    """The first ``tokens`` policy tokens after each observation, or fewer where a turn is shorter.

    Args:
        response_mask: As in :func:`position_after_observation`.
        tokens: How many a turn, at least 1.
        first_turn: Whether first turns count.
        offsets: ``(R + 1,)`` row boundaries of a packed mask.

    Returns:
        bool in the layout of ``response_mask``.
    """
    if tokens < 1:
        raise ValueError(f"tokens={tokens} must be at least 1")
    position = position_after_observation(response_mask, first_turn=first_turn, offsets=offsets)
    flat, _ = flat_rows(position, offsets)
    return rows_like((flat >= 0) & (flat < tokens), response_mask)


def flat_rows(tensor: torch.Tensor, offsets: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """``(N,)`` values and ``(R + 1,)`` row boundaries of a tensor in any of the three layouts."""
    if tensor.is_nested:
        return tensor.values(), tensor.offsets()
    if tensor.dim() == 2:
        rows, width = tensor.shape
        return tensor.reshape(-1), torch.arange(rows + 1, device=tensor.device) * width
    if offsets is None:
        raise ValueError(f"a packed mask of shape {tuple(tensor.shape)} needs offsets")
    return tensor, offsets


def rows_like(values: torch.Tensor, template: torch.Tensor) -> torch.Tensor:
    """Flat values in the layout of ``template``, the inverse of :func:`flat_rows`."""
    if not template.is_nested:
        return values.reshape(template.shape)
    # With its longest row, or verl would pad to all of them.
    lengths = template.offsets().diff()
    shortest, longest = int(lengths.min()), int(lengths.max())
    return torch.nested.nested_tensor_from_jagged(values, template.offsets(), min_seqlen=shortest, max_seqlen=longest)
