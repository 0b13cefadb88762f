"""Where a policy is unsure: mean entropy by position in a turn, for a whole batch at once.

Taken from the entropies that verl computes without gradient before the update (the ``entropy`` field that
``_compute_old_log_prob`` leaves), since the metrics of a loss are averages of averages over micro-batches and ranks.
"""

from __future__ import annotations

import torch

from verl_ext.objective.selector import flat_rows, position_after_observation

# First position of each bucket; a bucket ends before the next one begins, the last has no end.
POSITIONS = (0, 1, 2, 3, 4, 8, 16, 32, 64)
AFTER, AFTER_SHARE = "entropy/after_observation/", "entropy/after_observation_share/"
FIRST, FIRST_SHARE = "entropy/first_turn/", "entropy/first_turn_share/"
ALL = "entropy/all"


def entropy_by_position(entropy: torch.Tensor, response_mask: torch.Tensor) -> dict[str, float]:
    """Mean entropy of policy tokens by their distance from the observation before them.

    Args:
        entropy: Nats a token, padded ``(R, L)`` or jagged nested ``(R, *)``.
        response_mask: Non-zero on policy tokens, in the same layout.

    Returns:
        ``entropy/after_observation/<p>`` for each of :data:`POSITIONS` that has tokens: the mean from position p up to
        the next one. ``entropy/first_turn/<p>``: the same for the turns that answer a prompt, to compare with. For
        both ``..._share/<p>``: how much of all policy tokens that is. ``entropy/all``: the mean over all of them.
        Empty when there are none.
    """
    nats = flat_rows(entropy)[0].double()
    after = flat_rows(position_after_observation(response_mask))[0]
    both = flat_rows(position_after_observation(response_mask, first_turn=True))[0]
    policy = both >= 0
    if not policy.any():
        return {}
    metrics = {ALL: float(nats[policy].mean())}
    begins = torch.tensor(POSITIONS, device=both.device)
    for name, share, chosen in ((AFTER, AFTER_SHARE, after >= 0), (FIRST, FIRST_SHARE, policy & (after < 0))):
        bucket = torch.bucketize(both[chosen], begins, right=True) - 1
        counts = torch.bincount(bucket, minlength=len(POSITIONS)).tolist()
        sums = torch.bincount(bucket, weights=nats[chosen], minlength=len(POSITIONS)).tolist()
        for first, nats_in_all, count in zip(POSITIONS, sums, counts, strict=True):
            if count:
                metrics[f"{name}{first}"] = nats_in_all / count
                metrics[f"{share}{first}"] = count / int(policy.sum())
    return metrics


def share_of_entropy(entropy: torch.Tensor, weight: torch.Tensor, response_mask: torch.Tensor) -> float:
    """Share of all policy tokens' entropy that stands on tokens with a bonus; all in one layout, 0 without entropy."""
    nats, weights, mask = (flat_rows(tensor)[0] for tensor in (entropy, weight, response_mask))
    nats = nats.double()
    whole = float(nats[mask != 0].sum())
    return float(nats[weights > 0].sum()) / whole if whole else 0.0
