"""Turn-level credit: an advantage for every turn, as pure functions of a turn table (NumPy only).

    from verl_ext.credit import TurnTable, gigpo

    table = TurnTable.from_columns(group, session, turn, anchor, reward)
    advantages, stats = gigpo(table, gamma=0.95)

What each estimator computes, and why: docs/credit.md.
"""

from verl_ext.credit.episode import grpo, leave_one_out
from verl_ext.credit.gigpo import gigpo
from verl_ext.credit.potential import potential
from verl_ext.credit.stats import AnchorStats, CreditStats, anchor_stats
from verl_ext.credit.table import TurnTable

__all__ = ["AnchorStats", "CreditStats", "TurnTable", "anchor_stats", "gigpo", "grpo", "leave_one_out", "potential"]
