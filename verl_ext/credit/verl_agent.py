"""GiGPO's numbers as the published code computes them: github.com/langfengQ/verl-agent, gigpo/core_gigpo.py.

There one row of the batch is one turn, and what the paper takes over sessions is taken over rows:

- every row carries its session's plain sum of rewards, and a group's mean and unbiased standard deviation are over its
  rows (``compute_mean_std_cross_steps=True``, the default), so that a session counts as often as it has turns;
- a group of a single row gets its raw return (mean 0, deviation 1);
- the penalty of an invalid turn is taken, after discounting, off that row's two values only (``ray_trainer.py``,
  ``apply_invalid_action_penalty``);
- one ``mode`` serves both terms, and 1e-6 is added to the deviation.

The published code computes in float32, knows no untrainable sessions (here they are left out, as always), and copies
random rows to fill a batch before it takes statistics (here no row is copied).
"""

from __future__ import annotations

import numpy as np

from verl_ext.credit.segments import normalise
from verl_ext.credit.table import TurnTable
from verl_ext.types import BadInput


def check(episode_norm: str, step_norm: str, visits: str, shaping_weight: float) -> None:
    """Refuse what the published code cannot do."""
    if episode_norm != step_norm:
        both = f"credit episode_norm={episode_norm!r}, step_norm={step_norm!r}"
        raise BadInput(f"{both}: compat=verl_agent has one norm for both terms, mean or mean_std")
    if visits != "every":
        raise BadInput(f"credit visits={visits!r}: compat=verl_agent has every only")
    if shaping_weight != 0:
        raise BadInput(f"credit shaping_weight={shaping_weight!r}: compat=verl_agent has no shaping; leave it at 0")


def terms(
    table: TurnTable, gamma: float, norm: str, epsilon: float, invalid_penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Episode and step term of each turn (T,), the step term unweighted.

    Args:
        table: The turns.
        gamma: Discount a turn.
        norm: ``mean`` or ``mean_std``, for both terms.
        epsilon: Added to the standard deviation.
        invalid_penalty: Taken off the values of invalid turns.
    """
    penalty_T = table.penalty(invalid_penalty)
    row = table.trainable_T.astype(float)
    score_T = table.return_S[table.session_T] - penalty_T
    value_T = table.returns_to_go(table.reward_T, gamma) - penalty_T
    groups = len(table.groups)
    alone_T = (np.bincount(table.group_T, weights=row, minlength=groups) == 1)[table.group_T]
    raw_T = score_T / (1 + epsilon) if norm == "mean_std" else score_T
    episode_T = np.where(alone_T, raw_T, _relative(score_T, table.group_T, groups, row, norm, epsilon))
    return row * episode_T, row * _relative(value_T, table.anchor_T, table.anchors, row, norm, epsilon)


def _relative(
    value: np.ndarray, code: np.ndarray, groups: int, row: np.ndarray, norm: str, epsilon: float
) -> np.ndarray:
    deviation = normalise(value, code, groups, row, row, "mean", epsilon)
    if norm == "mean":
        return deviation
    others = np.maximum(np.bincount(code, weights=row, minlength=groups) - 1, 1)
    squares = np.bincount(code, weights=row * deviation**2, minlength=groups)
    return deviation / (np.sqrt(squares / others) + epsilon)[code]
