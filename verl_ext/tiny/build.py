"""Building TinyAgent in stages that survive an interruption: tokenizer and network, worked repairs, teacher sessions.

Every stage leaves its result below ``OUT/build`` and is skipped when it is there; other tasks or another seed start
afresh. ``OUT`` itself becomes an ordinary Hugging Face folder at the very end, and ``config.json`` is its last file.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from verl_ext.gym.program import Program
from verl_ext.tiny import data, sft, worked
from verl_ext.tiny.teacher import INSIGHT, TURNS
from verl_ext.types import Task

SESSIONS = 3500
"""Teacher sessions, about half a million tokens."""


@dataclass(frozen=True)
class Plan:
    """What a build depends on."""

    seed: int = 0
    sessions: int = SESSIONS
    insight: float = INSIGHT
    turns: int = TURNS
    programs: int = worked.PROGRAMS


class Progress(Protocol):
    """Shows how far a stage is."""

    def __call__(self, title: str, total: int | None) -> AbstractContextManager[Callable[[int, str], None]]:
        """A context whose value is told the count done so far and a note."""
        ...


class Lessons:
    """What TinyAgent learns from: ordinary tasks. See :mod:`verl_ext.tiny.long_build` for the other kind."""

    inputs: Mapping[str, object] = MappingProxyType({})
    """What a build depends on beside its plan and tasks."""
    phases: tuple[sft.Phase, sft.Phase] = (sft.REPAIRS, sft.SESSIONS)
    """How the worked repairs and the sessions are learnt."""

    def train_tasks(self, tasks: Iterable[Task]) -> list[Task]:
        """Those whose sessions are played."""
        return data.train_tasks(tasks)

    def tokenizer(self, texts: Iterable[str]) -> Any:
        """A tokenizer trained on numbered sources."""
        from verl_ext.tiny.tokenizer import train_tokenizer

        return train_tokenizer(texts)

    def write_repairs(
        self, path: Path, pool: Sequence[Program], tasks: Sequence[Task], seed: int, report: Callable[[int], None]
    ) -> None:
        """Writes the worked repairs of ``pool`` as rows for SFT."""
        data.write_rows(path, worked.worked_repairs(pool, tasks, seed, report), seed)

    async def write_sessions(
        self, path: Path, pool: Sequence[Task], plan: Plan, work: Path, done: Callable[[], None]
    ) -> None:
        """Plays a teacher session on each of ``pool`` and writes them as rows for SFT.

        Args:
            path: The file.
            pool: A task may come several times.
            plan: The build's.
            work: Folder with what earlier stages left: ``tokenizer``, ``repairs.parquet``.
            done: Called after each session.
        """
        from verl_ext.sandbox import open_sandbox
        from verl_ext.tiny.teacher import sessions

        sandbox = await open_sandbox()
        try:
            played = await sessions(pool, sandbox, seed=plan.seed, turns=plan.turns, insight=plan.insight, done=done)
        finally:
            await sandbox.aclose()
        data.write_rows(path, [session.messages for session in played], plan.seed)


ORDINARY = Lessons()


def build(tasks_dir: Path, out: Path, plan: Plan, progress: Progress, lessons: Lessons = ORDINARY) -> dict[str, object]:
    """Builds TinyAgent into ``out``.

    Returns:
        The summary that also stands in ``out/build/summary.json``: parameters, tokens, minutes.

    Raises:
        BadInput: No tasks, or verl's SFT trainer failed.
        InfrastructureError: The sandbox failed.
    """
    from verl_ext.gym.tasks import load_tasks

    tasks = list(load_tasks(tasks_dir, long="long" in lessons.inputs).values())
    train = lessons.train_tasks(tasks)
    work = out / "build"
    _start(work, out, {**asdict(plan), **lessons.inputs}, tasks_dir)
    pool = worked.programs(tasks, plan.seed, plan.programs)

    tokenizer, untrained = work / "tokenizer", work / "untrained"
    if not (untrained / "config.json").is_file():
        with progress("tokenizer and untrained model", None):
            _new_model(lessons, train, pool, tokenizer, untrained, plan.seed)
    repairs, sessions = work / "repairs.parquet", work / "sessions.parquet"
    if not repairs.is_file():
        with progress("worked repairs", len(pool)) as report:
            lessons.write_repairs(repairs, pool, tasks, plan.seed, lambda count: report(count, ""))
    if not sessions.is_file():
        with progress("teacher sessions", plan.sessions) as report:
            _teach(lessons, sessions, train, plan, work, report)
    model = untrained
    for phase, parquet in zip(lessons.phases, (repairs, sessions), strict=True):
        model = _train(phase, model, parquet, work, plan.seed, progress)
    if not (out / "config.json").is_file():
        summary = [json.loads((work / f"{phase.name}.json").read_text()) for phase in lessons.phases]
        _finish(out, work, model, tokenizer, summary)
    return json.loads((work / "summary.json").read_text())


def _start(work: Path, out: Path, plan: dict[str, object], tasks_dir: Path) -> None:
    path = tasks_dir / "tasks.jsonl" if tasks_dir.is_dir() else tasks_dir
    inputs = {**plan, "tasks": hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()}
    stamp = work / "inputs.json"
    if not stamp.is_file() or json.loads(stamp.read_text()) != inputs:
        shutil.rmtree(work, ignore_errors=True)
        (out / "config.json").unlink(missing_ok=True)
        work.mkdir(parents=True)
        stamp.write_text(json.dumps(inputs, indent=2))


def _new_model(
    lessons: Lessons, train: Sequence[Task], pool: Sequence[Program], tokenizer_dir: Path, out: Path, seed: int
) -> None:
    from verl_ext.gym.prompts import numbered
    from verl_ext.tiny.model import new_model

    texts = [task.sources[path] for task in train for path in task.gold] + [program.source for program in pool]
    tokenizer = lessons.tokenizer(map(numbered, texts))
    tokenizer.save_pretrained(tokenizer_dir)
    tokenizer.save_pretrained(out)
    new_model(tokenizer, seed).save_pretrained(out)


def _teach(
    lessons: Lessons,
    path: Path,
    train: Sequence[Task],
    plan: Plan,
    work: Path,
    report: Callable[[int, str], None],
) -> None:
    import asyncio

    # Every task as often as every other, in an order that mixes them.
    rounds = -(-plan.sessions // len(train))
    rng = random.Random(plan.seed)
    pool = [task for _ in range(rounds) for task in rng.sample(list(train), len(train))][: plan.sessions]
    count = 0

    def done() -> None:
        nonlocal count
        count += 1
        report(count, "")

    asyncio.run(lessons.write_sessions(path, pool, plan, work, done))


def _train(phase: sft.Phase, model: Path, parquet: Path, work: Path, seed: int, progress: Progress) -> Path:
    """Trains ``model`` on ``parquet``, unless that is done; returns the folder of the result."""
    from transformers import AutoTokenizer

    from verl_ext.tiny.dataset import SessionDataset

    done, weights = work / f"{phase.name}.json", work / phase.name
    if done.is_file():
        return weights
    started = time.time()
    tokenizer = AutoTokenizer.from_pretrained(model)
    examples = SessionDataset(str(parquet), tokenizer)
    sample = [examples[i] for i in range(0, len(examples), max(1, len(examples) // 500))]
    settings = sft.overrides(phase, model, parquet, work / f"{phase.name}-run", seed)
    log, steps = work / f"{phase.name}.log", len(examples) // sft.BATCH * phase.epochs
    with progress(f"learning {phase.name} (verl.trainer.sft_trainer)", steps) as report:
        sft.run_sft(settings, weights, log, lambda step, loss: report(step, f"loss {loss:.3f}"))
    tokenizer.save_pretrained(weights)
    mean = sum(len(row["input_ids"]) for row in sample) / len(sample)
    found = {
        "examples": len(examples),
        "training_tokens": round(mean * len(examples) * phase.epochs),
        "sft_minutes": round((time.time() - started) / 60, 2),
    }
    done.write_text(json.dumps(found, indent=2))
    return weights


def _finish(out: Path, work: Path, weights: Path, tokenizer_dir: Path, phases: Sequence[dict[str, float]]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from verl_ext.tiny.model import parameters

    summary = {
        "parameters": parameters(AutoModelForCausalLM.from_pretrained(work / "untrained")),
        "vocabulary": len(AutoTokenizer.from_pretrained(tokenizer_dir)),
        **{key: round(sum(phase[key] for phase in phases), 2) for key in phases[0]},
    }
    (work / "summary.json").write_text(json.dumps(summary, indent=2))
    sft.export(weights, tokenizer_dir, out)
