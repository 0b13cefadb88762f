"""The data that verl's SFT trainer reads."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from verl_ext.types import BadInput, Task


def train_tasks(tasks: Iterable[Task]) -> list[Task]:
    """The train split.

    Raises:
        BadInput: It is empty, or a task has more than one editable file.
    """
    chosen = [task for task in tasks if task.split == "train"]
    if not chosen:
        raise BadInput("the tasks have no train split; build them with `verl-ext tasks build`")
    for task in chosen:
        if len(task.editable) != 1:
            raise BadInput(f"task {task.task_id} has {len(task.editable)} editable files; TinyAgent edits exactly one")
    return chosen


def write_rows(path: Path, conversations: Sequence[Sequence[dict[str, str]]], seed: int) -> None:
    """Writes conversations, shuffled, as the parquet of :class:`~verl_ext.tiny.dataset.SessionDataset`."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = random.Random(seed).sample([list(messages) for messages in conversations], len(conversations))
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    part = path.with_name(path.name + ".part")
    parquet.write_table(pa.table({"messages": pa.array(rows, type=pa.list_(message))}), part)
    os.replace(part, path)
