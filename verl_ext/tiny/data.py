"""What TinyAgent learns from: teacher sessions on train tasks, and correct code of the same kind.

Nothing that is evaluated is ever read: sessions come from the train split, code from its repaired sources and from
generated programs whose template and name are of no held-out or validation task.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from verl_ext.gym.prompts import numbered
from verl_ext.tiny.teacher import Session
from verl_ext.types import BadInput, Task

EXTRA_PROGRAMS = 2500
"""Generated programs beyond the train split's."""
TEXTS_A_ROW = 3


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


def correct_code(tasks: Sequence[Task], seed: int, extra: int = EXTRA_PROGRAMS) -> list[str]:
    """Correct sources: repaired ones of the train split, then generated ones; no text twice, none that is evaluated."""
    from verl_ext.gym.generator import generate_many
    from verl_ext.gym.splits import HELDOUT_TEMPLATES

    evaluated = [task for task in tasks if task.split != "train"]
    names = {task.provenance.get("function") for task in evaluated}
    texts = {text for task in evaluated for text in (*task.gold.values(), *task.sources.values())}
    found = dict.fromkeys(text for task in train_tasks(tasks) for text in task.gold.values())
    # A stream of its own: the build's programs are mostly others.
    for program in generate_many(seed + 1_000_003, extra):
        if program.template not in HELDOUT_TEMPLATES and program.name not in names:
            found[program.source] = None
    return [text for text in found if text not in texts]


def write_sft(path: Path, sessions: Sequence[Session], code: Sequence[str], seed: int) -> None:
    """Writes sessions and code, shuffled, as the parquet of :class:`~verl_ext.tiny.dataset.SessionDataset`."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [list(session.messages) for session in sessions]
    # Several texts to a row: rows of a batch are padded to one length, and a session is three times as long as a text.
    rows += [
        [{"role": "user", "content": numbered(text)} for text in code[start : start + TEXTS_A_ROW]]
        for start in range(0, len(code), TEXTS_A_ROW)
    ]
    random.Random(seed).shuffle(rows)
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    table = pa.table({"messages": pa.array(rows, type=pa.list_(message))})
    part = path.with_name(path.name + ".part")
    parquet.write_table(table, part)
    os.replace(part, path)
