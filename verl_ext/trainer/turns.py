"""From training rows to a turn table and back: which reward belongs to which turn, and which tokens get its advantage.

Pure functions over what verl's TransferQueue holds; no verl, no Ray. Axis names: ``_R`` rows, ``_L`` response tokens,
``_T`` turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verl_ext.credit import TurnTable
from verl_ext.types import BadInput

_NEEDED = ("index", "start", "end", "anchor", "action", "reward", "potential", "valid")


@dataclass(frozen=True)
class Row:
    """One training row: a segment of a session, or padding.

    Attributes:
        key: verl's row key, ``{group}_{session}_{segment}``.
        turns: Its turns as ``Turn`` records, in order, ``start`` and ``end`` in this row's response; none for padding.
    """

    key: str
    turns: tuple[Mapping[str, Any], ...]

    @property
    def session(self) -> tuple[str, str]:
        """Group and session."""
        group, session, _ = self.key.rsplit("_", 2)
        return group, session

    @property
    def segment(self) -> int:
        """Position of the row in its session."""
        return int(self.key.rsplit("_", 1)[1])


def rows_with_turns(
    keys: Sequence[str], padding: Sequence[bool], extra_fields: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """Rows of a batch, in its order.

    Args:
        keys, padding: verl's key of each row, and whether it is padding (which copies another row's fields).
        extra_fields: What the agent loop wrote; ``session.turns`` is read.

    Raises:
        BadInput: A row that is not padding has no turns, or a turn lacks something or has no tokens of its own.
    """
    rows = []
    for key, pad, fields in zip(keys, padding, extra_fields, strict=True):
        turns = () if pad else tuple((fields.get("session") or {}).get("turns") or ())
        if not turns and not pad:
            raise BadInput(
                f"session {key} has no turn data, which turn-level credit needs; use an agent loop that writes "
                "extra_fields['session']['turns'], as actor_rollout_ref.rollout.agent.default_agent_loop=bugfix does"
            )
        _check_turns(key, turns)
        rows.append(Row(key, turns))
    return rows


def _check_turns(key: str, turns: Sequence[Mapping[str, Any]]) -> None:
    at = 0
    for number, turn in enumerate(turns):
        if missing := [name for name in _NEEDED if name not in turn]:
            raise BadInput(f"session {key}, turn {turn.get('index', number)}: its record lacks {', '.join(missing)}")
        if not at <= turn["start"] < turn["end"]:
            raise BadInput(
                f"session {key}, turn {turn['index']}: tokens {turn['start']} to {turn['end']} come before {at} or are "
                "none; turns are in order, each with its own tokens"
            )
        at = turn["end"]


def turn_table(rows: Sequence[Row], rewards_RL: torch.Tensor, verdicts_RL: torch.Tensor) -> TurnTable:
    """The turns of a batch, row after row, for an estimator.

    A turn earns the rewards of the tokens from its start to the next turn's, so that nothing is lost, and what its own
    record says. verl copies a session's verdict to each of its rows: only the last row's counts.

    Args:
        rows: As of :func:`rows_with_turns`.
        rewards_RL: ``token_level_rewards``: verdicts, less a KL penalty where one is in the reward.
        verdicts_RL: ``rm_scores``.
    """
    rewards = rewards_RL.double().numpy()
    last = {}
    for row in rows:
        last[row.session] = max(last.get(row.session, 0), row.segment)
    group, session, turn, anchor, reward, potential, valid = [], [], [], [], [], [], []
    for row, tokens, verdict in zip(rows, rewards, verdicts_RL.double().numpy(), strict=True):
        if not row.turns:
            continue
        if row.segment < last[row.session]:
            tokens = tokens - verdict
        starts = [0, *(entry["start"] for entry in row.turns[1:])]
        reward += list(np.add.reduceat(tokens, starts) + [entry["reward"] for entry in row.turns])
        group += [row.session[0]] * len(row.turns)
        session += [row.session[1]] * len(row.turns)
        turn += [entry["index"] for entry in row.turns]
        anchor += [entry["anchor"] for entry in row.turns]
        potential += [entry["potential"] for entry in row.turns]
        valid += [entry["valid"] for entry in row.turns]
    return TurnTable.from_columns(group, session, turn, anchor, reward, potential=potential, valid=valid)


def place(rows: Sequence[Row], advantages_T: np.ndarray, mask_RL: torch.Tensor) -> torch.Tensor:
    """Each turn's advantage on that turn's policy tokens, 0 everywhere else.

    Args:
        rows: As of :func:`rows_with_turns`.
        advantages_T: One entry a turn, row after row.
        mask_RL: ``response_mask``: 1 for policy tokens that are in the loss.

    Raises:
        BadInput: A policy token lies outside its row's turns, or a turn outside the response.
    """
    for row in rows:
        if row.turns and row.turns[-1]["end"] > mask_RL.shape[1]:
            last = row.turns[-1]
            raise BadInput(f"session {row.key}, turn {last['index']} ends at token {last['end']}, after the response")
    placed = torch.zeros(mask_RL.shape, dtype=torch.float32)
    inside = torch.zeros(mask_RL.shape, dtype=torch.bool)
    values = iter(advantages_T.tolist())
    for i, row in enumerate(rows):
        for turn in row.turns:
            placed[i, turn["start"] : turn["end"]] = next(values)
            inside[i, turn["start"] : turn["end"]] = True
    trained = mask_RL.bool()
    if (outside := trained & ~inside).any():
        i, position = outside.nonzero()[0].tolist()
        raise BadInput(f"session {rows[i].key}: policy token {position} of its response belongs to none of its turns")
    return placed * trained
