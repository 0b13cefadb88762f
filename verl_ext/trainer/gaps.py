"""How far two sources of log-probs are apart on policy tokens, by row, segment and turn. Pure; no verl, no Ray.

The first source is the sampler, the second the trainer or a check of either: where both computed the same token in the
same context with the same weights, only rounding is between them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from verl_ext.trainer.turns import Row
from verl_ext.types import BadInput

# First position of each bucket; a bucket ends before the next one begins, the last has no end.
POSITIONS = (0, 1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Spread:
    """Gaps of some policy tokens.

    Attributes:
        largest, total: Largest gap and sum of gaps, in nats.
        tokens: How many.
    """

    largest: float = 0.0
    total: float = 0.0
    tokens: int = 0

    @property
    def mean(self) -> float:
        """Nats a token; 0 without tokens."""
        return self.total / self.tokens if self.tokens else 0.0

    def __add__(self, other: Spread) -> Spread:
        return Spread(max(self.largest, other.largest), self.total + other.total, self.tokens + other.tokens)

    def passes(self, bound: float) -> bool:
        """Whether the largest gap is beyond ``bound``."""
        return self.largest > bound


@dataclass(frozen=True)
class RowGaps:
    """Gaps of one training row.

    Attributes:
        row: Whose.
        whole: Over all policy tokens of the row, those outside its turns as well.
        turns: Over the policy tokens of each turn, by its index in the session; no entry for a turn without any.
    """

    row: Row
    whole: Spread
    turns: dict[int, Spread]


def row_gaps(row: Row, first_L: ArrayLike, second_L: ArrayLike, mask_L: ArrayLike) -> RowGaps:
    """Gaps of one row.

    Args:
        row: Its turns say where in the response they stand.
        first_L, second_L: Log-probs in nats, aligned with the response; what they hold where the mask is 0 is ignored.
        mask_L: Non-zero on policy tokens.

    Returns:
        The gaps; one that is no number (a log-prob is NaN, or both are infinite) counts as infinite.

    Raises:
        BadInput: The three are of different length, or a turn ends after them.
    """
    first, second = np.asarray(first_L, dtype=np.float64), np.asarray(second_L, dtype=np.float64)
    policy = np.asarray(mask_L) != 0
    if not first.shape == second.shape == policy.shape:
        lengths = ", ".join(str(len(array)) for array in (first, second, policy))
        raise BadInput(f"session {row.key}: log-probs of two sources and mask have {lengths} entries; they must agree")
    if row.turns and row.turns[-1]["end"] > len(policy):
        last = row.turns[-1]
        raise BadInput(f"session {row.key}, turn {last['index']} ends at token {last['end']}, after the response")
    with np.errstate(invalid="ignore"):
        gap = np.abs(first - second)
    gap = np.where(np.isnan(gap), np.inf, gap)

    def spread(start: int, end: int) -> Spread:
        chosen = gap[start:end][policy[start:end]]
        return Spread(float(chosen.max()), float(chosen.sum()), len(chosen)) if len(chosen) else Spread()

    turns = {turn["index"]: spread(turn["start"], turn["end"]) for turn in row.turns}
    turns = {index: found for index, found in turns.items() if found.tokens}
    return RowGaps(row, spread(0, len(gap)), turns)


def whole(rows: Iterable[RowGaps]) -> Spread:
    """Over all policy tokens of the rows."""
    return sum((found.whole for found in rows), Spread())


def bucket(position: int) -> int:
    """The first position of the bucket that ``position`` is in."""
    return POSITIONS[bisect_right(POSITIONS, position) - 1]


def by_segment(rows: Iterable[RowGaps]) -> dict[int, Spread]:
    """Gaps by position of the row in its session, in buckets of :data:`POSITIONS`."""
    return _gather((found.row.segment, found.whole) for found in rows)


def by_turn(rows: Iterable[RowGaps]) -> dict[int, Spread]:
    """Gaps by position of the turn in its session, in buckets of :data:`POSITIONS`."""
    return _gather(pair for found in rows for pair in found.turns.items())


def _gather(pairs: Iterable[tuple[int, Spread]]) -> dict[int, Spread]:
    found: dict[int, Spread] = {}
    for position, spread in pairs:
        if spread.tokens:
            first = bucket(position)
            found[first] = found.get(first, Spread()) + spread
    return dict(sorted(found.items()))


def gap_metrics(rows: Sequence[RowGaps], bound: float | None = None) -> dict[str, float]:
    """``exactness/*`` of the checked rows.

    Args:
        rows: Those whose tokens were sampled with the weights that the trainer computed with.
        bound: In nats; None for none.

    Returns:
        ``exactness/log_prob_gap_max`` and ``_mean`` over all policy tokens, the same by segment and by turn as
        ``exactness/segment/<first>/max`` and so on, and with a bound ``exactness/over_bound``: the share of rows whose
        largest gap is beyond it. Empty without policy tokens.
    """
    overall = whole(rows)
    if not overall.tokens:
        return {}
    metrics = {"exactness/log_prob_gap_max": overall.largest, "exactness/log_prob_gap_mean": overall.mean}
    for name, buckets in (("segment", by_segment(rows)), ("turn", by_turn(rows))):
        for first, spread in buckets.items():
            metrics[f"exactness/{name}/{first}/max"] = spread.largest
            metrics[f"exactness/{name}/{first}/mean"] = spread.mean
    if bound is not None:
        metrics["exactness/over_bound"] = sum(found.whole.passes(bound) for found in rows) / len(rows)
    return metrics


def worst_sessions(rows: Iterable[RowGaps], bound: float) -> list[tuple[str, str]]:
    """Sessions with a gap beyond ``bound``, the largest first."""
    largest: dict[tuple[str, str], float] = {}
    for found in rows:
        if found.whole.passes(bound):
            session = found.row.session
            largest[session] = max(largest.get(session, 0.0), found.whole.largest)
    return sorted(largest, key=largest.__getitem__, reverse=True)


def describe(found: RowGaps) -> dict[str, Any]:
    """A row's gaps as plain values, for a dump."""

    def plain(spread: Spread) -> dict[str, Any]:
        return {"max": spread.largest, "mean": spread.mean, "tokens": spread.tokens}

    return {**plain(found.whole), "turns": [{"index": index, **plain(of)} for index, of in found.turns.items()]}
