"""Episode-level advantages: every turn of a session gets the same number."""

from __future__ import annotations

import numpy as np

from verl_ext.credit import options
from verl_ext.credit.segments import normalise
from verl_ext.credit.stats import CreditStats, credit_stats
from verl_ext.credit.table import TurnTable

EPISODE_NORMS = ("mean", "mean_std", "leave_one_out")
# Smallest standard deviation that is divided by; verl's GRPO adds the same number to it (core_algos.py, 0.9.1).
STD_FLOOR = 1e-6


def episode_term(table: TurnTable, reward_T: np.ndarray, norm: str, std_floor: float) -> np.ndarray:
    """A^E of each session (S,): its return relative to its group, one entry a session whatever its turns.

    Args:
        table: The turns.
        reward_T: Reward of each turn; the return is their plain sum.
        norm: One of ``EPISODE_NORMS``.
        std_floor: Smallest standard deviation for ``mean_std``.
    """
    counts = table.counts_S.astype(float)
    value = table.sum_by_session(reward_T)
    return counts * normalise(value, table.group_S, len(table.groups), counts, counts, norm, std_floor)


def grpo(table: TurnTable, episode_norm: str = "mean_std") -> tuple[np.ndarray, CreditStats]:
    """Group-relative advantage of the session's return, the same for all its turns (arXiv 2402.03300, section 4.1.2).

    Args:
        table: The turns.
        episode_norm: ``mean_std``: divided by the unbiased standard deviation over sessions, at least ``STD_FLOOR``;
            ``mean``: not divided (arXiv 2503.20783).

    Returns:
        Advantages, float64, one a turn in the order that the table was given, and their statistics.
    """
    options.choice("episode_norm", episode_norm, ("mean_std", "mean"))
    return _broadcast(table, episode_norm)


def leave_one_out(table: TurnTable) -> tuple[np.ndarray, CreditStats]:
    """Return of the session minus the mean return of the group's other sessions (RLOO, arXiv 2402.14740).

    Summed over turns with the score functions it is an unbiased estimate of the gradient of the expected return: what
    is subtracted does not depend on the session's own actions.

    Returns:
        Advantages, float64, one a turn in the order that the table was given, and their statistics.
    """
    return _broadcast(table, "leave_one_out")


def _broadcast(table: TurnTable, norm: str) -> tuple[np.ndarray, CreditStats]:
    advantage_T = episode_term(table, table.reward_T, norm, STD_FLOOR)[table.session_T]
    stats = credit_stats(table, advantage_T, advantage_T, np.zeros_like(advantage_T))
    return table.in_order_given(advantage_T), stats
