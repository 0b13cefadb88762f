"""The parquet files that verl reads: one row a task, with the prompt and everything the agent loop and reward need.

``extra_info["task"]`` is the task's JSON, hidden tests included; it travels beside the prompt, never inside.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_ext.gym.prompts import messages
from verl_ext.gym.tasks import task_to_json
from verl_ext.types import Task


def row(task: Task, index: int, tools: str) -> dict[str, Any]:
    """A task as verl's data set takes it; ``data_source`` groups validation metrics by split."""
    return {
        "data_source": f"bugfix/{task.split}",
        "prompt": messages(task, tools),
        "agent_name": "bugfix",
        "reward_model": {"style": "hidden_tests", "ground_truth": task.task_id},
        "extra_info": {"index": index, "split": task.split, "task": task_to_json(task), "tools": tools},
    }


def write_parquet(path: Path, tasks: Sequence[Task], tools: str) -> None:
    """Writes tasks in the given order, whole or not at all; equal tasks give equal bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", pa.list_(message)),
            ("agent_name", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            (
                "extra_info",
                pa.struct(
                    [("index", pa.int64()), ("split", pa.string()), ("task", pa.string()), ("tools", pa.string())]
                ),
            ),
        ]
    )
    rows = [row(task, index, tools) for index, task in enumerate(tasks)]
    part = path.with_name(path.name + ".part")
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), part)
    os.replace(part, path)
