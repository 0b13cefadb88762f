"""Log-probs of all tokens at once, where verl 0.9.1 takes them one by one on a CPU.

``verl/utils/torch_functional.py: logprobs_from_logits_v2`` loops over rows to save memory; without a GPU kernel a row
is one token: 6,000 tokens of a vocabulary of 700 take 0.5 s forward and backward against 0.06 s in one call, with the
same bits.
"""

from __future__ import annotations

import torch
from verl.utils import torch_functional

_row_by_row = torch_functional.logprobs_from_logits_v2
_MAX_ELEMENTS = 1 << 28
"""Larger logits (1 GiB in float32) keep verl's loop, which saves memory."""


def logprobs_from_logits_v2(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-prob of each label, of the shape of ``labels``; logits have one more axis, the vocabulary."""
    if logits.dtype not in (torch.float32, torch.float64) or logits.numel() > _MAX_ELEMENTS:
        return _row_by_row(logits, labels)
    chosen = torch.gather(logits, dim=-1, index=labels.unsqueeze(-1)).squeeze(-1)
    return chosen - torch.logsumexp(logits, dim=-1)


def install() -> None:
    """Replace verl's function in this process."""
    torch_functional.logprobs_from_logits_v2 = logprobs_from_logits_v2
