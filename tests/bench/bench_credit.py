"""CPU time of a turn table and GiGPO on it, against plain loops, and how it grows with the number of turns.

    python tests/bench/bench_credit.py [--most TURNS] [--repeats N]

Every figure includes TurnTable.from_columns. Exit status 1 when 64 groups of 8 sessions of 50 turns take more than the
goal of 50 ms, or when a turn costs much more in a large table than in that one.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.credit import reference
from verl_ext.credit import TurnTable, gigpo, potential

GOAL = 0.050  # seconds of CPU time
GROWTH = 4.0  # caches end somewhere; n log n or worse would be seen beyond it
SESSIONS, TURNS, ANCHORS = 8, 50, 40  # sessions a group, turns a session, anchors a group


def columns(turns: int, turns_a_session: int = TURNS, shuffled: bool = False) -> dict[str, list | np.ndarray]:
    """Columns of a batch: text for groups and anchors, as a trainer has them."""
    rng = np.random.default_rng(0)
    sessions = turns // turns_a_session
    group = np.repeat(np.arange(sessions) // SESSIONS, turns_a_session)
    digests = np.array([f"{k:016x}" for k in rng.integers(0, 2**63, (group[-1] + 1) * ANCHORS)], dtype=object)
    order = rng.permutation(turns) if shuffled else np.arange(turns)
    uids = np.array([f"uid-{k}" for k in range(group[-1] + 1)], dtype=object)
    return {
        "group": uids[group[order]],
        "session": np.repeat(np.arange(sessions) % SESSIONS, turns_a_session)[order],
        "turn": np.tile(np.arange(turns_a_session), sessions)[order],
        "anchor": digests[group * ANCHORS + rng.integers(0, ANCHORS, turns)][order],
        "reward": rng.random(turns)[order],
        "potential": rng.random(turns)[order],
    }


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Least CPU time of several runs: what other work on the machine adds is no part of the cost."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def _gigpo(given: dict) -> None:
    gigpo(TurnTable.from_columns(**given))


def main() -> int:
    """Measure, print a table, compare with the goals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=10_000_000, help="turns of the largest table")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each of the small tables; large ones get 2")
    args = parser.parse_args()
    small = 64 * SESSIONS * TURNS
    given = columns(small)
    rows = list(zip(*(given[name] for name in ("group", "session", "turn", "anchor", "reward")), strict=True))
    rows = [(*row, True) for row in rows]
    cases = {
        "gigpo": lambda: gigpo(TurnTable.from_columns(**given)),
        "gigpo, visits=first, mean_std": lambda: gigpo(
            TurnTable.from_columns(**given), 0.95, 1.0, "mean_std", "mean_std", "first"
        ),
        "potential": lambda: potential(TurnTable.from_columns(**given), lam=0.95),
        "plain loops: gigpo": lambda: reference.gigpo(rows, 0.95),
        "plain loops: compat=verl_agent": lambda: reference.verl_agent(rows, 0.95, 1.0, "mean"),
    }
    taken = {name: cpu_seconds(work, args.repeats) for name, work in cases.items()}
    print(f"{small:,} turns (64 groups of 8 sessions of 50 turns)")
    for name, seconds in taken.items():
        print(f"  {name:32} {seconds * 1e3:9.1f} ms  {seconds / taken['gigpo']:7.1f} x gigpo")
    goal_met = taken["gigpo"] <= GOAL

    print("growth: CPU microseconds a turn, gigpo, rows session by session / rows shuffled / sessions of 50,000 turns")
    worst = 0.0
    for turns in (size for size in (10_000, 100_000, 1_000_000, 10_000_000) if size <= args.most):
        cost = []
        for settings in ({}, {"shuffled": True}, {"turns_a_session": min(50_000, turns // SESSIONS)}):
            work = partial(_gigpo, columns(turns, **settings))
            cost.append(cpu_seconds(work, args.repeats if turns <= 100_000 else 2) / turns * 1e6)
        worst = max(worst, cost[0] / (taken["gigpo"] / small * 1e6))
        print(f"  {turns:>12,}  {cost[0]:6.2f} / {cost[1]:6.2f} / {cost[2]:6.2f}")
    print(f"goal {GOAL * 1e3:.0f} ms: {'met' if goal_met else 'MISSED'}")
    print(f"cost of a turn, session by session: at most {worst:.1f} times that above (allowed: {GROWTH})")
    return 0 if goal_met and worst <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
