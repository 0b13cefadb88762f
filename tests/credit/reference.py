"""The estimators once more, slowly: plain loops over dictionaries, written from the formulas and not from the package.

A row is ``(group, session, turn, anchor, reward, valid)``; every function returns one number a row, in order.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, stdev

Row = tuple[object, object, int, str, float, bool]


def sessions_of(rows: list[Row]) -> dict[tuple, list[int]]:
    """Row numbers of each session, in the order of turns."""
    found = defaultdict(list)
    for i, row in enumerate(rows):
        found[row[0], row[1]].append(i)
    return {key: sorted(numbers, key=lambda i: rows[i][2]) for key, numbers in found.items()}


def returns_to_go(rows: list[Row], gamma: float, penalty: float = 0.0) -> list[float]:
    """G of each row, from rewards less penalties."""
    result = [0.0] * len(rows)
    for numbers in sessions_of(rows).values():
        running = 0.0
        for i in reversed(numbers):
            running = rows[i][4] - (0.0 if rows[i][5] else penalty) + gamma * running
            result[i] = running
    return result


def gigpo(
    rows: list[Row],
    gamma: float,
    omega: float = 1.0,
    episode_norm: str = "mean",
    step_norm: str = "mean",
    visits: str = "every",
    floor: float = 1e-6,
    penalty: float = 0.0,
) -> list[float]:
    """The paper's estimator with one entry a session in the episode term."""
    sessions = sessions_of(rows)
    total = {
        key: sum(rows[i][4] - (0.0 if rows[i][5] else penalty) for i in numbers) for key, numbers in sessions.items()
    }
    of_group = defaultdict(list)
    for key in sessions:
        of_group[key[0]].append(key)
    episode = {}
    for keys in of_group.values():
        for key in keys:
            values = [total[other] for other in keys]
            if len(keys) < 2:
                episode[key] = 0.0
            elif episode_norm == "leave_one_out":
                episode[key] = total[key] - fmean(total[other] for other in keys if other != key)
            else:
                episode[key] = total[key] - fmean(values)
                episode[key] /= max(stdev(values), floor) if episode_norm == "mean_std" else 1.0
    value = returns_to_go(rows, gamma, penalty)
    visited: dict[tuple, dict[tuple, list[int]]] = defaultdict(lambda: defaultdict(list))
    for key, numbers in sessions.items():
        for i in numbers:
            visited[key[0], rows[i][3]][key].append(i)
    step = [0.0] * len(rows)
    for (group, _), by_session in visited.items():
        if len(of_group[group]) < 2:
            continue
        if visits == "every":
            members = [i for numbers in by_session.values() for i in numbers]
            mean = fmean(value[i] for i in members)
            squares = sum((value[i] - mean) ** 2 for i in members)
        else:
            members = [numbers[0] for numbers in by_session.values()]
            mean = fmean(value[i] for i in members)
            squares = sum(fmean((value[i] - mean) ** 2 for i in numbers) for numbers in by_session.values())
        if len(members) < 2:
            continue
        scale = max((squares / (len(members) - 1)) ** 0.5, floor) if step_norm == "mean_std" else 1.0
        for numbers in by_session.values():
            for i in numbers:
                step[i] = (value[i] - mean) / scale
    return [episode[row[0], row[1]] + omega * step[i] for i, row in enumerate(rows)]


def verl_agent(rows: list[Row], gamma: float, omega: float, mode: str, penalty: float = 0.0) -> list[float]:
    """What the published code does with one batch row a turn; its epsilon is 1e-6."""
    to_go = returns_to_go(rows, gamma)
    sums = {key: sum(rows[i][4] for i in numbers) for key, numbers in sessions_of(rows).items()}
    lost = [0.0 if row[5] else penalty for row in rows]
    outcome = [sums[row[0], row[1]] - lost[i] for i, row in enumerate(rows)]
    local = [to_go[i] - lost[i] for i in range(len(rows))]
    buckets: dict[object, list[float]] = defaultdict(list)
    for i, row in enumerate(rows):
        buckets["episode", row[0]].append(outcome[i])
        buckets["step", row[0], row[3]].append(local[i])

    moments: dict[object, tuple[float, float]] = {}
    for key, values in buckets.items():
        if len(values) == 1:
            moments[key] = (0.0 if key[0] == "episode" else values[0], 1.0)
        else:
            moments[key] = (fmean(values), stdev(values))

    def relative(key: tuple, x: float) -> float:
        mean, deviation = moments[key]
        return x - mean if mode == "mean" else (x - mean) / (deviation + 1e-6)

    return [
        relative(("episode", row[0]), outcome[i]) + omega * relative(("step", row[0], row[3]), local[i])
        for i, row in enumerate(rows)
    ]
