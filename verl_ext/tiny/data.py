"""The data that verl's SFT trainer reads."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from verl_ext.types import BadInput, Task


def train_tasks(tasks: Iterable[Task], long: bool = False) -> list[Task]:
    """The train split.

    Raises:
        BadInput: It is empty, or a task has more than one editable file, or, with ``long``, just one.
    """
    chosen = [task for task in tasks if task.split == "train"]
    if not chosen:
        raise BadInput("the tasks have no train split; build them with `verl-ext tasks build`")
    for task in chosen:
        if (len(task.editable) > 1) != long:
            raise BadInput(
                f"task {task.task_id} has {len(task.editable)} editable file(s); give `verl-ext tiny build` --long for "
                "tasks that were built with --long, and for no others"
            )
    return chosen


def write_rows(
    path: Path,
    conversations: Sequence[Sequence[dict[str, str]]],
    seed: int,
    sampled: Sequence[Sequence[bool]] | None = None,
) -> None:
    """Writes conversations, shuffled, as the parquet of :class:`~verl_ext.tiny.dataset.SessionDataset`.

    Args:
        path: The file.
        conversations: Messages of each.
        seed: Of the shuffle.
        sampled: For each message of each conversation whether the policy learns to write it; by default it learns
            every assistant message.
    """
    import pyarrow as pa
    from pyarrow import parquet

    order = random.Random(seed).sample(range(len(conversations)), len(conversations))
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns = {"messages": pa.array([list(conversations[i]) for i in order], type=pa.list_(message))}
    if sampled is not None:
        columns["sampled"] = pa.array([list(sampled[i]) for i in order], type=pa.list_(pa.bool_()))
    part = path.with_name(path.name + ".part")
    parquet.write_table(pa.table(columns), part)
    os.replace(part, path)
