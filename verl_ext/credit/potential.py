"""Potential-based credit: what a turn did to the state's worth, with no critic to learn."""

from __future__ import annotations

import numpy as np

from verl_ext.credit import options
from verl_ext.credit.segments import next_of_run
from verl_ext.credit.stats import CreditStats, credit_stats
from verl_ext.credit.table import TurnTable

BASELINES = ("leave_one_out", "group_mean")


def potential(
    table: TurnTable,
    gamma: float = 1.0,
    lam: float = 1.0,
    baseline: str = "leave_one_out",
    invalid_penalty: float = 0.0,
) -> tuple[np.ndarray, CreditStats]:
    """A = Â − b, with δ_t = r_t + γΦ(s_{t+1}) − Φ(s_t) and Â_t = Σ_{k≥t} (γλ)^{k−t} δ_k; Φ is 0 after the last turn.

    δ is the shaping of Ng, Harada and Russell (1999), Â is generalised advantage estimation (arXiv 1506.02438, eq. 16)
    with a potential for the critic. With λ = 1, Â_t = G_t − Φ(s_t): a potential that predicts returns lowers the
    variance, and one that does not still costs no bias. With λ < 1 the potential is trusted as a value function.

    b is the mean over the group's *other* sessions of their mean Â over turns: it estimates what Φ misses on average,
    weighs a session once whatever its length, and does not depend on the session's own actions. So, with λ = 1, the
    sum over turns of A times the score function is an unbiased estimate of Σ_s d(s) Σ_a ∇π(a|s) Q_γ(s, a), with d the
    expected number of visits (and the turn number a part of s where there is a turn limit). For γ = 1 that is the
    gradient of the expected return. For γ < 1 it is the usual direction without the factor γ^t, which is the gradient
    of no objective (arXiv 1906.07073).

    Args:
        table: The turns. Without a column ``potential``, Φ is 0 everywhere and Â is the discounted return.
        gamma: Discount a turn, in (0, 1].
        lam: λ, in [0, 1].
        baseline: ``leave_one_out``; ``group_mean``: the mean over all sessions, own included, which pulls the estimate
            off the gradient by an amount that falls as one over the number of sessions.
        invalid_penalty: Subtracted from the reward of an invalid turn, 0 or more; earlier turns see it discounted.

    Returns:
        Advantages, float64, one a turn in the order that the table was given, and their statistics.

    Raises:
        BadInput: A setting out of range, or one that needs a column that the table lacks.
    """
    options.discount("gamma", gamma)
    options.number("lam", lam, "in [0, 1]", high=1.0)
    options.choice("baseline", baseline, BASELINES)
    options.weight("invalid_penalty", invalid_penalty)
    delta_T = table.reward_T - table.penalty(invalid_penalty)
    if table.potential_T is not None:
        delta_T = delta_T + gamma * next_of_run(table.potential_T, table.length_S) - table.potential_T
    value_T = table.returns_to_go(delta_T, gamma * lam)
    baseline_S = _baseline(table, table.sum_by_session(value_T) / table.length_S, baseline)
    advantage_T = table.counts_S[table.session_T] * (value_T - baseline_S[table.session_T])
    episode_T = (table.sum_by_session(advantage_T) / table.length_S)[table.session_T]
    return table.in_order_given(advantage_T), credit_stats(table, advantage_T, episode_T, advantage_T - episode_T)


def _baseline(table: TurnTable, mean_S: np.ndarray, baseline: str) -> np.ndarray:
    """What is subtracted from each session's turns (S,)."""
    groups, counts = len(table.groups), table.counts_S.astype(float)
    size = np.bincount(table.group_S, weights=counts, minlength=groups)[table.group_S]
    total = np.bincount(table.group_S, weights=counts * mean_S, minlength=groups)[table.group_S]
    mean = total / np.maximum(size, 1)
    if baseline == "group_mean":
        return mean
    return mean - (mean_S - mean) / np.maximum(size - 1, 1)
