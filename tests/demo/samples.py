"""Dump rows, files of them, and a task, for the demo's tests."""

import io
import json
from pathlib import Path

from rich.console import Console

from verl_ext.types import Task, Tests


def dump_row(uid: str, task_id: str, acc: float, output: str = "out", **more) -> dict:
    # The fields of verl's _write_generations and the reward manager's extra information.
    return {
        "input": f"prompt of {task_id}",
        "output": output,
        "gts": task_id,
        "score": acc,
        "step": 0,
        "reward": acc,
        "acc": acc,
        "task_id": task_id,
        "bug_type": "swap",
        "stop": "submitted",
        "uid": uid,
        **more,
    }


def write_rows(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def a_task(task_id: str = "a") -> Task:
    return Task(
        task_id=task_id,
        sources={"solution.py": "def f(x):\n    return x - 1\n"},
        editable=("solution.py",),
        issue="f adds one.",
        public=Tests(),
        hidden=Tests(),
        bug_type="swap",
        gold={"solution.py": "def f(x):\n    return x + 1\n"},
        split="val",
    )


def a_console() -> Console:
    return Console(width=160, record=True, file=io.StringIO())
