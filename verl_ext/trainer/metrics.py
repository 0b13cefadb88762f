"""What a step's sessions did, as numbers. Pure; no verl, no Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from verl_ext.credit import TurnTable, anchor_stats
from verl_ext.gym.flags import FLAGS
from verl_ext.trainer.turns import Row
from verl_ext.types import StopReason


def session_metrics(extra_fields: list[dict[str, Any]], groups: list[str], scores: list[float]) -> dict[str, float]:
    """Means over a step's sessions.

    Args:
        extra_fields: One entry a session, as the agent loop wrote them.
        groups: Group id of each session (verl's ``uid``).
        scores: Reward of each session.

    Returns:
        ``session/*``: turns, sampled tokens, invalid and redundant actions a session, redundant ones a successful
        session, shares of stop reasons, flags and tools, seconds in the sandbox, and the share of groups whose sessions
        all have the same reward (they teach GRPO nothing).
    """
    records = [fields["session"] for fields in extra_fields]
    turns = [record["turns"] for record in records]
    tools = Counter(turn["tool"] or "none" for session in turns for turn in session)
    stops = Counter(record["stop"] for record in records)
    by_group: dict[str, set[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        by_group.setdefault(group, set()).add(score)
    metrics = {
        "session/turns": np.mean([len(session) for session in turns]),
        "session/tokens_sampled": np.mean([sum(turn["end"] - turn["start"] for turn in session) for session in turns]),
        "session/invalid": np.mean([sum(not turn["valid"] for turn in session) for session in turns]),
        "session/redundant": np.mean([sum(turn["redundant"] for turn in session) for session in turns]),
        "session/hard_coded": np.mean([any(turn["hard_coded"] for turn in session) for session in turns]),
        "session/public_share": np.mean([fields["public_share"] for fields in extra_fields]),
        "session/sandbox_s": np.mean([record["sandbox_s"] for record in records]),
        "session/generate_s": np.mean([record["generate_s"] for record in records]),
        "session/degenerate_groups": np.mean([len(rewards) == 1 for rewards in by_group.values()]),
    }
    solved = [turns[i] for i, score in enumerate(scores) if score >= 1.0]
    if solved:
        redundant = [sum(turn["redundant"] for turn in session) for session in solved]
        metrics["session/redundant_per_success"] = np.mean(redundant)
    for reason in StopReason:
        if not reason.infrastructure:
            metrics[f"session/stop/{reason}"] = stops[reason] / len(records)
    flagged = Counter(flag for fields in extra_fields for flag in fields["flags"])
    for flag in FLAGS:
        metrics[f"session/flag/{flag}"] = flagged[flag] / len(records)
    for tool, count in sorted(tools.items()):
        metrics[f"session/tool/{tool}"] = count / len(records)
    return {key: float(value) for key, value in metrics.items()}


def whole_sessions(rows: Sequence[Row], extra_fields: Sequence[Mapping[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Each session once: the number of its last row, and that row's fields with the turns of all its rows."""
    last: dict[tuple[str, str], int] = {}
    turns: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for i, row in enumerate(rows):
        turns.setdefault(row.session, {}).update({turn["index"]: turn for turn in row.turns})
        if row.session not in last or rows[last[row.session]].segment < row.segment:
            last[row.session] = i
    whole = []
    for session, i in last.items():
        ordered = [turn for _, turn in sorted(turns[session].items())]
        whole.append((i, {**extra_fields[i], "session": {**extra_fields[i]["session"], "turns": ordered}}))
    return whole


def segment_metrics(
    rows: Sequence[Row], scores: Sequence[float], lengths: Sequence[int], trained: Sequence[int], padding: int
) -> dict[str, float]:
    """What sessions of several rows come to: means over sessions, beside verl's own means over rows.

    Args:
        rows: Of a batch, without padding.
        scores: Reward of each row; verl copies a session's to all of its rows.
        lengths: Tokens of each row, prompt and response.
        trained: Tokens in the loss of each row.
        padding: Rows of padding in the batch.

    Returns:
        ``session/score`` and ``row/score``: the reward, each session counted once or each row (what verl calls
        ``critic/score/mean``); ``session/context_tokens``: the longest context of a session; ``segments/*``: rows a
        session, rows, share of padding among all rows, trained tokens a session; ``process/<name>``: what a process
        term took off a session.
    """
    last: dict[tuple[str, str], int] = {}
    longest: dict[tuple[str, str], int] = {}
    charges: Counter[str] = Counter()
    for i, row in enumerate(rows):
        if row.session not in last or rows[last[row.session]].segment < row.segment:
            last[row.session] = i
        longest[row.session] = max(longest.get(row.session, 0), lengths[i])
        for turn in row.turns:
            charges.update(turn.get("charges") or {})
    metrics = {
        "session/score": np.mean([scores[i] for i in last.values()]),
        "row/score": np.mean(scores),
        "session/context_tokens": np.mean(list(longest.values())),
        "segments/per_session": len(rows) / len(last),
        "segments/rows": len(rows),
        "segments/padding_share": padding / (len(rows) + padding),
        "segments/tokens_trained": sum(trained) / len(last),
    }
    metrics |= {f"process/{name}": amount / len(last) for name, amount in sorted(charges.items())}
    return {key: float(value) for key, value in metrics.items()}


def lone_rows(keys: Sequence[str], padding: Sequence[bool]) -> tuple[list[str], float]:
    """Keys of the real rows whose group has no other session, and the share of groups that are so."""
    rows: dict[str, list[str]] = {}
    for key, pad in zip(keys, padding, strict=True):
        if not pad:
            rows.setdefault(key.rsplit("_", 2)[0], []).append(key)
    alone = [group for group in rows.values() if len({key.rsplit("_", 1)[0] for key in group}) == 1]
    return [key for group in alone for key in group], len(alone) / max(len(rows), 1)


def step_group_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """``step_groups/*`` of a batch, whatever its estimator: how often sessions of a group meet in a state, and differ.

    A turn can only be compared with others on the same sources (a repeated step group), and only where they did
    something else does that rank actions (a contested one).
    """
    turns = [(*row.session, turn) for row in rows for turn in row.turns]
    groups, sessions, records = zip(*turns, strict=True)
    columns = ([record[name] for record in records] for name in ("index", "anchor", "reward"))
    found = anchor_stats(TurnTable.from_columns(groups, sessions, *columns), [record["action"] for record in records])
    return {f"step_groups/{name}": float(value) for name, value in asdict(found).items()}
