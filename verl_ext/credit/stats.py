"""What an estimate was made of: a record for metrics, and how much the anchors of a table repeat."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from verl_ext.credit.segments import codes_of, pair_codes
from verl_ext.credit.table import TurnTable
from verl_ext.types import BadInput

_ZERO = 1e-12  # what subtracting a mean from its equals can leave


@dataclass(frozen=True)
class CreditStats:
    """Statistics of one estimate, over trainable sessions and their turns.

    Attributes:
        episode_term: Mean over turns of the absolute episode term. For an estimator without such a term
            (``potential``): of the session's mean advantage.
        step_term: Mean over turns of the absolute step term, times its weight. For an estimator without such a term:
            of the turn's difference from the session's mean advantage.
        groups: Groups with a trainable session.
        degenerate_groups: Groups of two or more trainable sessions that teach nothing: every advantage is 0.
        lone_groups: Groups without two trainable sessions; their turns get 0.
        shared_turns: Share of turns whose anchor another turn of the group has too.
        variance: Mean over sessions of the sum of their turns' squared advantages: the variance of a session's gradient
            estimate if the turns' score functions were uncorrelated and of unit length.
    """

    episode_term: float
    step_term: float
    groups: int
    degenerate_groups: int
    lone_groups: int
    shared_turns: float
    variance: float


@dataclass(frozen=True)
class AnchorStats:
    """How much the anchors of a table repeat, over trainable sessions.

    Attributes:
        groups: Step groups: distinct anchors, each group of sessions for itself.
        repeated_groups: Step groups of more than one turn.
        contested_groups: Step groups with more than one action.
        repeated_turns: Share of turns that are in a repeated step group.
        contested_turns: Share of turns that are in a contested step group.
    """

    groups: int
    repeated_groups: int
    contested_groups: int
    repeated_turns: float
    contested_turns: float


def anchor_stats(table: TurnTable, action: Sequence[Hashable]) -> AnchorStats:
    """Count step groups of more than one turn, and of more than one action: only the latter can rank actions.

    Args:
        table: The turns.
        action: What was done in each turn, in the order of the rows that the table was built from; compared by
            equality.
    """
    if len(action) != len(table.sorted_row):
        raise BadInput(f"anchor_stats: action has {len(action)} entries, the table {len(table.sorted_row)}")
    codes = np.empty(len(action), dtype=np.int64)
    codes[table.sorted_row] = codes_of(action.tolist() if hasattr(action, "tolist") else list(action))[0]
    anchor = table.anchor_T[table.trainable_T]
    pair, pairs = pair_codes(anchor, codes[table.trainable_T])
    turns_A = np.bincount(anchor, minlength=table.anchors)
    anchor_of_pair = np.zeros(pairs, dtype=np.int64)
    anchor_of_pair[pair] = anchor
    actions_A = np.bincount(anchor_of_pair, minlength=table.anchors)
    return AnchorStats(
        groups=int((turns_A > 0).sum()),
        repeated_groups=int((turns_A > 1).sum()),
        contested_groups=int((actions_A > 1).sum()),
        repeated_turns=_mean(turns_A[anchor] > 1),
        contested_turns=_mean(actions_A[anchor] > 1),
    )


def credit_stats(table: TurnTable, advantage_T: np.ndarray, episode_T: np.ndarray, step_T: np.ndarray) -> CreditStats:
    """The record of an estimate.

    Args:
        table: The turns.
        advantage_T: The estimate, sorted.
        episode_T, step_T: Its two terms, sorted.
    """
    turn = table.trainable_T
    anchor = table.anchor_T[turn]
    sessions_G = np.bincount(table.group_S, weights=table.trainable_S, minlength=len(table.groups))
    largest_G = np.zeros(len(table.groups))
    np.maximum.at(largest_G, table.group_T, np.abs(advantage_T))
    return CreditStats(
        episode_term=_mean(np.abs(episode_T[turn])),
        step_term=_mean(np.abs(step_T[turn])),
        groups=int((sessions_G > 0).sum()),
        degenerate_groups=int(((sessions_G > 1) & (largest_G <= _ZERO)).sum()),
        lone_groups=int((sessions_G < 2).sum()),
        shared_turns=_mean(np.bincount(anchor, minlength=table.anchors)[anchor] > 1),
        variance=_mean(table.sum_by_session(advantage_T**2)[table.trainable_S]),
    )


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
