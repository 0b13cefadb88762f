"""GiGPO: what a session was worth, plus what each turn was worth among turns on the same state."""

from __future__ import annotations

import numpy as np

from verl_ext.credit import options, verl_agent
from verl_ext.credit.episode import EPISODE_NORMS, STD_FLOOR, episode_term
from verl_ext.credit.segments import next_of_run, normalise, pair_codes
from verl_ext.credit.stats import CreditStats, credit_stats
from verl_ext.credit.table import TurnTable
from verl_ext.types import BadInput

STEP_NORMS = ("mean", "mean_std")
VISITS = ("every", "first")


def gigpo(
    table: TurnTable,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    episode_norm: str = "mean",
    step_norm: str = "mean",
    visits: str = "every",
    std_floor: float = STD_FLOOR,
    shaping_weight: float = 0.0,
    invalid_penalty: float = 0.0,
    compat: str | None = None,
) -> tuple[np.ndarray, CreditStats]:
    """A = A^E + step_weight · A^S (arXiv 2505.10978, equations 3 to 8).

    A^E compares the session's plain sum of rewards with those of its group, one entry a session. A^S compares the
    turn's discounted return G with those of the turns of the same group on the same anchor.

    Args:
        table: The turns.
        gamma: Discount a turn, in (0, 1], of the returns that A^S compares.
        step_weight: Weight of A^S, 0 or more.
        episode_norm: ``mean``: minus the group's mean; ``mean_std``: also divided by the unbiased standard deviation;
            ``leave_one_out``: minus the mean of the other sessions.
        step_norm: ``mean`` or ``mean_std``, among the members of a step group.
        visits: ``every``: every turn on an anchor is a member of its step group, as in the paper. ``first``: a session
            is one member, whatever its visits: the mean is over first visits, and in the variance a session's visits
            share one weight. Later visits are measured against the same numbers, so that the action that at last leads
            out of a loop keeps its credit. A step group of one member contributes 0.
        std_floor: Smallest standard deviation divided by, above 0. (``compat`` adds it instead.)
        shaping_weight: w, 0 or more: G is taken of r + w(γΦ(s') − Φ(s)), with Φ 0 after the last turn, which makes it
            G − wΦ(s). So shaping changes A^S only where one anchor carries different potentials. A^E stays as it is:
            the discounted sum of the shaping is −wΦ(s_0), and an undiscounted one would change what is optimal.
        invalid_penalty: Subtracted from the reward of an invalid turn, 0 or more; earlier turns see it discounted.
        compat: ``verl_agent`` reproduces the published code (:mod:`verl_ext.credit.verl_agent`), which differs from
            the paper: its mean and deviation of returns are over turns, so that long sessions weigh more (a group of
            one winner in 2 turns and one loser in 8 gets the mean 0.2, not 0.5); the penalty is taken off the turn's
            discounted return and off the session's return of that turn only, so that neither earlier turns nor the
            session as a whole see it; a group of one turn gets its raw return. The default differs because a session
            is the unit that is sampled: weights by length favour what makes sessions long, not what makes them good.

    Returns:
        Advantages, float64, one a turn in the order that the table was given, and their statistics.

    Raises:
        BadInput: A setting out of range, or one that needs a column that the table lacks.
    """
    options.discount("gamma", gamma)
    options.weight("step_weight", step_weight)
    options.choice("episode_norm", episode_norm, EPISODE_NORMS)
    options.choice("step_norm", step_norm, STEP_NORMS)
    options.choice("visits", visits, VISITS)
    options.number("std_floor", std_floor, "a finite number above 0", open_low=True)
    options.weight("shaping_weight", shaping_weight)
    options.weight("invalid_penalty", invalid_penalty)
    options.choice("compat", compat, (None, "verl_agent"))
    if compat == "verl_agent":
        verl_agent.check(episode_norm, step_norm, visits, shaping_weight)
        episode_T, step_T = verl_agent.terms(table, gamma, step_norm, std_floor, invalid_penalty)
    else:
        reward_T = table.reward_T - table.penalty(invalid_penalty)
        episode_T = episode_term(table, reward_T, episode_norm, std_floor)[table.session_T]
        if shaping_weight > 0:
            reward_T = reward_T + shaping_weight * _shaping(table, gamma, shaping_weight)
        step_T = step_term(table, table.returns_to_go(reward_T, gamma), step_norm, visits, std_floor)
    step_T = step_weight * step_T
    advantage_T = episode_T + step_T
    return table.in_order_given(advantage_T), credit_stats(table, advantage_T, episode_T, step_T)


def step_term(table: TurnTable, value_T: np.ndarray, norm: str, visits: str, std_floor: float) -> np.ndarray:
    """A^S of each turn (T,): its value relative to its step group; 0 in a step group of one member.

    Args:
        table: The turns.
        value_T: What is compared, in GiGPO the discounted return.
        norm: ``mean`` or ``mean_std``.
        visits: See :func:`gigpo`.
        std_floor: Smallest standard deviation for ``mean_std``.
    """
    counts = table.counts_S[table.session_T].astype(float)
    member, weight = counts, counts
    if visits == "first":
        visit, pairs = pair_codes(table.anchor_T, table.session_T)
        first = np.empty(pairs, dtype=np.int64)
        first[visit[::-1]] = np.arange(len(visit))[::-1]  # of several visits, the assignment made last stays
        member = counts * (first[visit] == np.arange(len(visit)))
        weight = counts / np.bincount(visit, minlength=pairs)[visit]
    return counts * normalise(value_T, table.anchor_T, table.anchors, member, weight, norm, std_floor)


def _shaping(table: TurnTable, gamma: float, shaping_weight: float) -> np.ndarray:
    if table.potential_T is None:
        raise BadInput(f"credit shaping_weight={shaping_weight!r}: the turn table has no column potential")
    return gamma * next_of_run(table.potential_T, table.length_S) - table.potential_T
