"""Operations on ragged runs and on groups, all linear in the number of entries and without a Python loop over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import count

import numpy as np

# Entries whose spread is below this share of their size count as equal: rounding of sums is not a difference.
RESOLUTION = 1e-12
# A run is walked in chunks of this many turns: few enough calls for one long run, long enough for speed.
CHUNK = 64


def codes_of(values: Sequence[Hashable] | np.ndarray) -> tuple[np.ndarray, list[Hashable]]:
    """Number the distinct values, in no particular order.

    Args:
        values: An array of integers, or a list of anything hashable.

    Returns:
        The number of each entry (n,), and the distinct values.
    """
    if isinstance(values, np.ndarray):
        codes, distinct = _number(values)
        return codes, distinct.tolist()
    numbers: defaultdict[Hashable, int] = defaultdict(count().__next__)
    codes = np.fromiter(map(numbers.__getitem__, values), dtype=np.int64, count=len(values))
    return codes, list(numbers)


def pair_codes(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, int]:
    """Number the distinct pairs of two columns of codes.

    Args:
        first, second: Codes (n,), each counting from 0.

    Returns:
        The number of each pair (n,), and how many distinct pairs there are.
    """
    codes, distinct = _number(first * (second.max(initial=0) + 1) + second)
    return codes, len(distinct)


def _number(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not len(keys):
        return keys, keys
    low, high = int(keys.min()), int(keys.max())
    if high - low >= max(8 * len(keys), 1 << 16):  # too sparse for a look-up table
        distinct, codes = np.unique(keys, return_inverse=True)
        return codes, distinct
    present = np.zeros(high - low + 1, dtype=bool)
    present[keys - low] = True
    return (np.cumsum(present) - 1)[keys - low], np.flatnonzero(present) + low


def discounted_sums(value: np.ndarray, discount: float, length: np.ndarray) -> np.ndarray:
    """Sum of the rest of each run, discounted: ``y[t] = value[t] + discount * y[t + 1]``.

    Runs are cut into chunks; within chunks the recursion walks all chunks at once, and what flows from one chunk into
    the one before it is the same recursion over chunks, with ``discount ** CHUNK``. So the work is linear in entries
    whatever the lengths, and only products and sums are taken, never a quotient of powers that would lose digits.

    Args:
        value: Runs one after the other (n,).
        discount: In [0, 1].
        length: Length of each run (runs,), at least 1, with sum n.
    """
    result = value.copy()
    if not len(value):
        return result
    chunks_of_run = -(-length // CHUNK)
    n_chunks = int(chunks_of_run.sum())
    is_last = np.zeros(n_chunks, dtype=bool)
    is_last[np.cumsum(chunks_of_run) - 1] = True
    chunk_length = np.full(n_chunks, CHUNK, dtype=np.int64)
    chunk_length[is_last] = length - (chunks_of_run - 1) * CHUNK
    start = np.cumsum(chunk_length) - chunk_length
    longest_first = np.argsort(-chunk_length, kind="stable")
    start_sorted = start[longest_first]
    longer_than = len(start) - np.cumsum(np.bincount(chunk_length, minlength=CHUNK + 1))  # chunks with length > k
    for k in range(int(chunk_length.max()) - 2, -1, -1):
        at = start_sorted[: longer_than[k + 1]] + k
        result[at] += discount * result[at + 1]
    if n_chunks > len(length):
        carry = discounted_sums(result[start], discount**CHUNK, chunks_of_run)
        inner = np.flatnonzero(~is_last)
        powers = discount ** np.arange(CHUNK, 0, -1.0)
        result[start[inner][:, None] + np.arange(CHUNK)] += powers * carry[inner + 1][:, None]
    return result


def next_of_run(value: np.ndarray, length: np.ndarray, terminal: float = 0.0) -> np.ndarray:
    """The next entry of the same run; ``terminal`` after a run's last."""
    result = np.empty_like(value)
    result[:-1] = value[1:]
    result[np.cumsum(length) - 1] = terminal
    return result


def normalise(
    value: np.ndarray,
    code: np.ndarray,
    groups: int,
    member: np.ndarray,
    weight: np.ndarray,
    norm: str,
    floor: float,
) -> np.ndarray:
    """Values relative to the members of their group; 0 in a group of fewer than two members, or of equal values.

    Args:
        value: (n,).
        code: Group of each value (n,), in [0, groups).
        groups: Number of groups.
        member: 1 where the value enters its group's mean, else 0 (n,).
        weight: Weight of the value in its group's variance (n,); in each group they sum to the number of members.
        norm: ``mean``; ``mean_std``: divided by the unbiased standard deviation, at least ``floor``;
            ``leave_one_out``: minus the mean of the other members.
        floor: See ``norm``.
    """
    members = np.bincount(code, weights=member, minlength=groups)
    mean = np.bincount(code, weights=value * member, minlength=groups) / np.maximum(members, 1)
    deviation = value - mean[code]
    squares = np.bincount(code, weights=deviation**2 * weight, minlength=groups)
    size = np.bincount(code, weights=value**2 * weight, minlength=groups)
    scale = ((members > 1) & (squares > RESOLUTION**2 * size)).astype(float)
    others = np.maximum(members - 1, 1)
    if norm == "mean_std":
        scale /= np.maximum(np.sqrt(squares / others), floor)
    elif norm == "leave_one_out":
        scale *= members / others
    return deviation * scale[code]
