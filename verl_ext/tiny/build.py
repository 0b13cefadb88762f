"""Building TinyAgent in stages that survive an interruption: tokenizer, untrained model, teacher sessions, SFT.

Every stage leaves its result below ``OUT/build`` and is skipped when it is there; other tasks or another seed start
afresh. ``OUT`` itself becomes an ordinary Hugging Face folder at the very end, and ``config.json`` is its last file.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from verl_ext.tiny import data, sft
from verl_ext.tiny.teacher import DEMONSTRATIONS, TURNS
from verl_ext.types import Task

SESSIONS = 5000
"""Teacher sessions, about a million tokens."""


@dataclass(frozen=True)
class Plan:
    """What a build depends on."""

    seed: int = 0
    sessions: int = SESSIONS
    demonstrations: float = DEMONSTRATIONS
    turns: int = TURNS
    extra_programs: int = data.EXTRA_PROGRAMS
    epochs: int = sft.EPOCHS


class Progress(Protocol):
    """Shows how far a stage is."""

    def __call__(self, title: str, total: int | None) -> AbstractContextManager[Callable[[int, str], None]]:
        """A context whose value is told the count done so far and a note."""
        ...


def build(tasks_dir: Path, out: Path, plan: Plan, progress: Progress) -> dict[str, object]:
    """Builds TinyAgent into ``out``.

    Returns:
        The summary that also stands in ``out/build/summary.json``: parameters, tokens, minutes.

    Raises:
        BadInput: No tasks, or verl's SFT trainer failed.
        InfrastructureError: The sandbox failed.
    """
    from verl_ext.gym.tasks import load_tasks

    tasks = list(load_tasks(tasks_dir).values())
    train = data.train_tasks(tasks)
    work = out / "build"
    _start(work, out, plan, tasks_dir)
    code = data.correct_code(tasks, plan.seed, plan.extra_programs)

    tokenizer_dir, model_dir, parquet = work / "tokenizer", work / "init", work / "sft.parquet"
    if not (model_dir / "config.json").is_file():
        with progress("tokenizer and untrained model", None):
            _new_model(train, code, tokenizer_dir, model_dir, plan.seed)
    if not parquet.is_file():
        with progress("teacher sessions", plan.sessions) as report:
            data.write_sft(parquet, _teach(train, plan, report), code, plan.seed)
    if not (out / "config.json").is_file():
        _train(model_dir, parquet, tokenizer_dir, out, plan, progress)
    return json.loads((work / "summary.json").read_text())


def _start(work: Path, out: Path, plan: Plan, tasks_dir: Path) -> None:
    path = tasks_dir / "tasks.jsonl" if tasks_dir.is_dir() else tasks_dir
    inputs = {**asdict(plan), "tasks": hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()}
    stamp = work / "inputs.json"
    if not stamp.is_file() or json.loads(stamp.read_text()) != inputs:
        shutil.rmtree(work, ignore_errors=True)
        (out / "config.json").unlink(missing_ok=True)
        work.mkdir(parents=True)
        stamp.write_text(json.dumps(inputs, indent=2))


def _new_model(train: Sequence[Task], code: Sequence[str], tokenizer_dir: Path, model_dir: Path, seed: int) -> None:
    from verl_ext.gym.prompts import numbered
    from verl_ext.tiny.model import new_model
    from verl_ext.tiny.tokenizer import train_tokenizer

    buggy = [numbered(task.sources[task.editable[0]]) for task in train]
    tokenizer = train_tokenizer([*buggy, *map(numbered, code)])
    tokenizer.save_pretrained(tokenizer_dir)
    tokenizer.save_pretrained(model_dir)
    new_model(tokenizer, seed).save_pretrained(model_dir)


def _teach(train: Sequence[Task], plan: Plan, report: Callable[[int, str], None]) -> list:
    import asyncio

    from verl_ext.sandbox import open_sandbox
    from verl_ext.tiny.teacher import sessions

    # Every task as often as every other, in an order that mixes them.
    rounds = -(-plan.sessions // len(train))
    rng = random.Random(plan.seed)
    pool = [task for _ in range(rounds) for task in rng.sample(list(train), len(train))][: plan.sessions]
    count = 0

    def done() -> None:
        nonlocal count
        count += 1
        report(count, "")

    async def run() -> list:
        sandbox = await open_sandbox()
        try:
            return await sessions(
                pool, sandbox, seed=plan.seed, turns=plan.turns, demonstrations=plan.demonstrations, done=done
            )
        finally:
            await sandbox.aclose()

    return asyncio.run(run())


def _train(model_dir: Path, parquet: Path, tokenizer_dir: Path, out: Path, plan: Plan, progress: Progress) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from verl_ext.tiny.dataset import SessionDataset
    from verl_ext.tiny.model import parameters

    started = time.time()
    examples = SessionDataset(str(parquet), AutoTokenizer.from_pretrained(model_dir))
    sample = [examples[i] for i in range(0, len(examples), max(1, len(examples) // 500))]
    settings = sft.overrides(model_dir, parquet, out / "build" / "sft", plan.seed, plan.epochs)
    steps = len(examples) // sft.BATCH * plan.epochs
    with progress("supervised fine-tuning (verl.trainer.sft_trainer)", steps) as report:
        weights = sft.run_sft(settings, out / "build" / "sft.log", lambda step, loss: report(step, f"loss {loss:.3f}"))
    mean = sum(len(row["input_ids"]) for row in sample) / len(sample)
    summary = {
        "parameters": parameters(AutoModelForCausalLM.from_pretrained(model_dir)),
        "vocabulary": len(examples.tokenizer),
        "examples": len(examples),
        "training_tokens": round(mean * len(examples) * plan.epochs),
        "sft_minutes": round((time.time() - started) / 60, 2),
    }
    (out / "build" / "summary.json").write_text(json.dumps(summary, indent=2))
    sft.export(weights, tokenizer_dir, out)
