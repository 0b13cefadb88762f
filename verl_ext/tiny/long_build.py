"""What the TinyAgent of long tasks learns from: its stages are those of :mod:`verl_ext.tiny.build`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from verl_ext.gym.program import Program
from verl_ext.tiny import data, sft, worked
from verl_ext.tiny.build import Lessons, Plan
from verl_ext.tiny.long_teacher import INSIGHT, TURNS
from verl_ext.types import Task

PLAN = Plan(sessions=2400, turns=TURNS, insight=INSIGHT)
"""Fewer teacher sessions than for ordinary tasks, since they are three times as long."""

PASSES = 2
"""Times that a session is among the rows: there is more to learn of it than of an ordinary one."""


class LongLessons(Lessons):
    """Repairs that begin with looking for the file, and sessions played under every context manager."""

    inputs = MappingProxyType({"long": True})
    # The second pass over the repairs goes with the sessions: alone these make it forget which file fails.
    phases = (replace(sft.REPAIRS, epochs=1), replace(sft.SESSIONS, learning_rate=2e-3))

    def train_tasks(self, tasks: Iterable[Task]) -> list[Task]:
        return data.train_tasks(tasks, long=True)

    def tokenizer(self, texts: Iterable[str]) -> Any:
        from verl_ext.tiny.long_tokenizer import train_long_tokenizer

        return train_long_tokenizer(texts)

    def write_repairs(
        self, path: Path, pool: Sequence[Program], tasks: Sequence[Task], seed: int, report: Callable[[int], None]
    ) -> None:
        from verl_ext.tiny.long_worked import long_repair

        data.write_rows(path, worked.worked_repairs(pool, tasks, seed, report, long_repair(pool, seed)), seed)

    async def write_sessions(
        self, path: Path, pool: Sequence[Task], plan: Plan, work: Path, done: Callable[[], None]
    ) -> None:
        """One row a segment; the policy learns each of its messages once, in the segment in which it wrote it.

        Among them stand the worked repairs once more.
        """
        import pyarrow.parquet as pq
        from transformers import AutoTokenizer

        from verl_ext.sandbox import open_sandbox
        from verl_ext.tiny.long_play import Measure
        from verl_ext.tiny.long_teacher import sessions

        measure = Measure(AutoTokenizer.from_pretrained(work / "tokenizer"))
        sandbox = await open_sandbox()
        try:
            played = await sessions(
                pool, sandbox, measure, seed=plan.seed, turns=plan.turns, insight=plan.insight, done=done
            )
        finally:
            await sandbox.aclose()
        rows = PASSES * [(segment.messages, segment.sampled) for session in played for segment in session.segments]
        for repair in pq.read_table(work / "repairs.parquet")["messages"].to_pylist():
            rows.append((repair, [message["role"] == "assistant" for message in repair]))
        messages, sampled = zip(*rows, strict=True)
        data.write_rows(path, messages, plan.seed, sampled)
