"""Attention over packed sequences without flash-attn, so that training on a CPU need not compute padding.

verl's ``use_remove_padding`` hands a micro-batch to the model as one row of tokens, sequence after sequence, and leaves
it to flash-attn to keep them apart. Here only the attention itself is padded, a tenth of the work; everything else runs
on real tokens. Sessions differ in length by a factor of four, so padding was 40 % of all tokens.

Importing this module registers ``packed_sdpa`` with transformers; :mod:`verl_ext.cpu.engine` puts it into the module.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

NAME = "packed_sdpa"


def packed_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_ids: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sequence of a packed row.

    Args:
        module, attention_mask: As transformers calls it; no mask is made for this implementation.
        query: [1, heads, tokens, head_dim]; ``key`` and ``value`` may have fewer heads.
        key, value: [1, key-value heads, tokens, head_dim].
        scaling: Factor of the scores; None for 1/sqrt(head_dim).
        dropout: Probability to drop a weight.
        position_ids: [1, tokens]; a sequence begins where it is 0.

    Returns:
        [1, tokens, heads, head_dim], and None for the weights.

    Raises:
        ValueError: More than one row, or no position ids: not what verl's ``use_remove_padding`` hands over.
    """
    if position_ids is None or query.shape[0] != 1:
        raise ValueError(f"{NAME} takes one packed row with position_ids; set use_remove_padding=true")
    positions = position_ids[0]
    sequence = (positions == 0).cumsum(0) - 1
    rows, longest = int(sequence[-1]) + 1, int(positions.max()) + 1
    place = sequence * longest + positions

    def pad(packed: torch.Tensor) -> torch.Tensor:
        tokens = packed[0].transpose(0, 1)
        padded = tokens.new_zeros(rows * longest, *tokens.shape[1:]).index_copy(0, place, tokens)
        return padded.unflatten(0, (rows, longest)).transpose(1, 2)

    # A pad stands behind every token of its row, so a causal mask hides it.
    out = scaled_dot_product_attention(
        pad(query), pad(key), pad(value), dropout_p=dropout, is_causal=True, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2).flatten(0, 1).index_select(0, place).unsqueeze(0), None


def _no_mask(*_: object, **__: object) -> None:
    return None


AttentionInterface.register(NAME, packed_sdpa)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _no_mask)
