"""Which rows are trained together when sessions weigh, and not rows: the number of optimiser steps does not depend on
how many segments the sessions had, and padding is spread over them.

verl cuts a batch into one run of rows a rank; mini-batch k is the k-th slice of every rank's run
(``TrainingWorker.train_mini_batch``). So the rows are put into cells of equal size, one a mini-batch and rank, and the
batch is ordered rank by rank, mini-batch by mini-batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions, log_seqlen_unbalance


def optimiser_steps(config: Any, parameter_sync_step: int) -> int:
    """How many mini-batches the prompts of one update make: a number of the configuration alone."""
    prompts = config.data.train_batch_size // parameter_sync_step
    return max(1, math.ceil(prompts / config.actor_rollout_ref.actor.ppo_mini_batch_size))


def deal(session_R: Sequence[tuple[str, str]], steps: int) -> list[int]:
    """The mini-batch of each row.

    Whole sessions are dealt, and groups stay together as far as that allows numbers of sessions that differ by one at
    most. Within that the mini-batches get about equal numbers of rows, the groups with most rows first.

    Args:
        session_R: Group and session of each row.
        steps: Number of mini-batches.
    """
    rows = Counter(session_R)
    groups: dict[str, list[tuple[str, str]]] = {}
    for session in rows:
        groups.setdefault(session[0], []).append(session)
    hands: list[list[tuple[str, str]]] = [[] for _ in range(steps)]
    held = [0] * steps

    def size(hand: list[tuple[str, str]]) -> int:
        return sum(rows[session] for session in hand)

    for group in sorted(groups.values(), key=size, reverse=True):
        smallest = min(range(steps), key=lambda i: (held[i] >= math.ceil(len(groups) / steps), size(hands[i])))
        hands[smallest] += group
        held[smallest] += 1
    while len(most := max(hands, key=len)) - len(least := min(hands, key=len)) > 1:
        surplus = (size(most) - size(least)) / 2
        moved = min(most, key=lambda session: abs(rows[session] - surplus))
        most.remove(moved)
        least.append(moved)
    found = {session: number for number, hand in enumerate(hands) for session in hand}
    return [found[session] for session in session_R]


def cells(mini_batch_R: Sequence[int], workload_R: Sequence[int], steps: int, ranks: int) -> list[list[list[int]]]:
    """Rows of each cell, ``[rank][mini-batch]``, with about equal work for the ranks of a mini-batch.

    Args:
        mini_batch_R: The mini-batch of each row; each has the same number of them, a multiple of ``ranks``.
        workload_R: Cost of each row, in any unit.
        steps, ranks: Numbers of mini-batches and of data-parallel ranks.
    """
    found: list[list[list[int]]] = [[] for _ in range(ranks)]
    for number in range(steps):
        rows = [row for row, of in enumerate(mini_batch_R) if of == number]
        parts = get_seqlen_balanced_partitions([workload_R[row] for row in rows], ranks, equal_size=True)
        for rank, part in enumerate(parts):
            found[rank].append([rows[i] for i in part])
    return found


def balance(
    batch: Any, steps: int, ranks: int, multiple: int, eos_token_id: int, prefix: str
) -> tuple[Any, dict[str, float]]:
    """A batch padded and ordered so that verl trains it in ``steps`` mini-batches of whole sessions.

    Args:
        batch: The sampled rows.
        steps, ranks: Numbers of mini-batches and of data-parallel ranks.
        multiple: Rows of a cell are a multiple of this.
        eos_token_id: For verl's rows of padding.
        prefix: Of the metrics.

    Returns:
        The batch, and verl's metrics of how even the ranks' work is.
    """
    dealt = deal([tuple(key.rsplit("_", 2)[:2]) for key in batch.keys], steps)
    counts = [dealt.count(number) for number in range(steps)]
    of_cell = max(1, math.ceil(max(counts) / (ranks * multiple))) * multiple
    # Its next multiple is the number itself: so many rows are missing, and verl makes them.
    batch = upsample_batch_to_divisible_size(batch, of_cell * ranks * steps, eos_token_id)
    for number, count in enumerate(counts):
        dealt += [number] * (of_cell * ranks - count)
    lengths = torch.tensor([tag["seq_len"] for tag in batch.tags], dtype=torch.int64)
    found = cells(dealt, calculate_workload(lengths).tolist(), steps, ranks)
    of_ranks = [[row for cell in rank for row in cell] for rank in found]
    metrics = log_seqlen_unbalance(seqlen_list=lengths.tolist(), partitions=of_ranks, prefix=prefix)
    batch.reorder([row for rank in of_ranks for row in rank])
    return batch, metrics


def ranks_of(worker_group: Any, mesh: str = "actor") -> int:
    """Number of data-parallel ranks, asked for once as verl's ``_balance_batch`` does."""
    if mesh not in worker_group._dispatch_info:
        worker_group._dispatch_info[mesh] = worker_group._query_dispatch_info(mesh)
    return max(worker_group._dispatch_info[mesh]) + 1


def cell_multiple(config: Any, steps: int, reference: bool) -> int:
    """What the rows of a cell must be a multiple of, where micro-batches have a fixed number of rows.

    Args:
        config: The whole configuration.
        steps: Mini-batches of an update: a rank passes its rows of all of them through the log-prob pass at once.
        reference: Whether there is a reference policy with workers of its own.
    """
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    multiple = 1 if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
    passes = [rollout, config.actor_rollout_ref.ref] if reference else [rollout]
    for node in passes:
        if not node.log_prob_use_dynamic_bsz:
            rows = node.log_prob_micro_batch_size_per_gpu
            multiple = math.lcm(multiple, rows // math.gcd(rows, steps))
    return multiple


@contextmanager
def told(worker_group: Any, mini_batch_rows: int) -> Iterator[None]:
    """Inside, ``update_actor`` cuts the batch into mini-batches of this many rows, whatever verl's step tells it."""
    update = worker_group.update_actor

    def update_actor(batch: Any) -> Any:
        batch.extra_info |= {"mini_batch_size": mini_batch_rows, "global_batch_size": mini_batch_rows}
        return update(batch)

    worker_group.update_actor = update_actor
    try:
        yield
    finally:
        worker_group.update_actor = update
