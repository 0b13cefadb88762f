"""Does training see shorter sessions than the rollout samples? Lengths of those trained on and of all that ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np


class Lengths:
    """Tokens of the sessions that ended, and of those trained on, over the last steps.

    A session that ended waits to be trained on, is trained on, or is thrown away (too old, filtered, failed group).
    Short ones end first, so a trainer that takes what is there, or throws away what is old, may prefer them.

    Args:
        steps: Steps that are looked at together.
    """

    def __init__(self, steps: int = 10):
        self._ended: deque[dict[str, int]] = deque([{}], maxlen=steps)
        self._trained: deque[list[int]] = deque(maxlen=steps)

    def see(self, tags: Mapping[str, Mapping[str, Any]]) -> None:
        """Count sessions that have ended; one that was seen before is not counted again.

        Args:
            tags: verl's tag of each row, by key ``{uid}_{session}_{segment}``; all rows of a session at once.
        """
        seen = {session for step in self._ended for session in step}
        for session, tokens in session_tokens(tags).items():
            if session not in seen:
                self._ended[-1][session] = tokens

    def see_evictions(self, buffer: Any, partition_id: str = "train") -> None:
        """From now on count the groups, too, that verl's replay buffer throws away."""
        clear = buffer._clear_groups

        def counted(partition: str, uids: set[str]) -> None:
            if partition == partition_id:
                tags = buffer.partitions[partition]
                self.see({key: tag for key, tag in tags.items() if key.split("_")[0] in uids})
            clear(partition, uids)

        buffer._clear_groups = counted

    def step(self, trained: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """``staleness/session_tokens/*`` at the end of a step.

        Args:
            trained: Tags of the rows that were trained on in this step.

        Returns:
            Mean tokens of the sessions ``trained`` on and of those that ``ended``, prompt included, and ``distance``:
            the largest difference of their distribution functions (Kolmogorov-Smirnov), 0 when they are alike and 1
            when they have nothing in common.
        """
        self.see(trained)
        self._trained.append(list(session_tokens(trained).values()))
        both = [
            np.sort([tokens for step in self._trained for tokens in step]),
            np.sort([tokens for step in self._ended for tokens in step.values()]),
        ]
        self._ended.append({})
        if not all(map(len, both)):
            return {}
        points = np.union1d(*both)
        below = [np.searchsorted(tokens, points, side="right") / len(tokens) for tokens in both]
        return {
            "staleness/session_tokens/trained": float(both[0].mean()),
            "staleness/session_tokens/ended": float(both[1].mean()),
            "staleness/session_tokens/distance": float(np.abs(below[0] - below[1]).max()),
        }


def session_tokens(tags: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Tokens of each session, over all of its rows; padding rows are left out."""
    found: dict[str, int] = {}
    for key, tag in tags.items():
        if "seq_len" in tag and not tag.get("is_padding", False):
            session = key.rsplit("_", 1)[0]
            found[session] = found.get(session, 0) + int(tag["seq_len"])
    return found
