"""The scripted teacher's pass rate on the evaluation's own tasks: what searching without reading the code achieves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from verl_ext.demo.results import SPLITS
from verl_ext.stats import pass_rates, rate
from verl_ext.types import BadInput, Task


def evaluation_tasks(files: list[Path], tasks: dict[str, Task]) -> list[Task]:
    """The tasks of the evaluation's parquet files, in their order.

    Raises:
        BadInput: A row's task is not among ``tasks``.
    """
    import pyarrow.parquet as pq

    chosen = []
    for file in files:
        for row in pq.read_table(file, columns=["reward_model"]).column("reward_model").to_pylist():
            task_id = row["ground_truth"]
            if task_id not in tasks:
                raise BadInput(f"{file} names task {task_id!r}, which tasks.jsonl does not hold; rebuild the tasks")
            chosen.append(tasks[task_id])
    return chosen


def measure(
    tasks: list[Task], runs: int, seed: int, model: Path, done: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Play ``runs`` sessions of each task and grade them; ``done`` is called after each.

    The teacher of tasks of several files keeps its whole history, which ``model``'s tokenizer measures.

    Returns:
        Split name to pass rate, the mean over tasks.

    Raises:
        InfrastructureError: The sandbox failed twice on one session.
    """
    from transformers import AutoTokenizer

    from verl_ext.sandbox import open_sandbox
    from verl_ext.tiny import long_teacher, teacher
    from verl_ext.tiny.long_play import Measure

    pool = [task for task in tasks for _ in range(runs)]

    async def play() -> list:
        sandbox = await open_sandbox()
        try:
            if all(len(task.editable) == 1 for task in tasks):
                return await teacher.sessions(pool, sandbox, seed=seed, judge=True, done=done)
            tokens = Measure(AutoTokenizer.from_pretrained(model))
            whole = {"managers": ("none",), "insight": 0.0}
            return await long_teacher.sessions(pool, sandbox, tokens, seed=seed, judge=True, done=done, **whole)
        finally:
            await sandbox.aclose()

    split_of = {task.task_id: task.split for task in tasks}
    played = asyncio.run(play())
    by_split: dict[str, list[tuple[str, float]]] = {}
    for session in played:
        by_split.setdefault(split_of[session.task_id], []).append((session.task_id, float(bool(session.passed))))
    return {split: rate(pass_rates(by_split[split])).value for split in SPLITS if split in by_split}
