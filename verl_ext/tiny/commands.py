"""``verl-ext tiny``: build TinyAgent, measure its scripted teacher and measure a model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verl_ext.progress import bar
from verl_ext.types import BadInput, Task

if TYPE_CHECKING:
    from verl_ext.tiny.long_play import Measure

DEFAULT_TASKS = "runs/tasks"
DEFAULT_MODEL = "runs/tiny"
LONG_TASKS = "runs/tasks-long"
LONG_MODEL = "runs/tiny-long"
_FOLDER = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def tiny() -> None:
    """Build TinyAgent and measure it."""


@tiny.command()
@click.option(
    "--tasks",
    "folder",
    type=_FOLDER,
    default=None,
    help=f"Built tasks.  [default: {DEFAULT_TASKS}, with --long {LONG_TASKS}]",
)
@click.option(
    "--out",
    type=_FOLDER,
    default=None,
    help=f"Hugging Face folder to write.  [default: {DEFAULT_MODEL}, with --long {LONG_MODEL}]",
)
@click.option("--long", is_flag=True, help="For tasks of several files, in small contexts.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--programs", type=click.IntRange(32), default=None, help="Programs to break.  [default: 6000]")
@click.option(
    "--sessions", type=click.IntRange(32), default=None, help="Teacher sessions.  [default: 3500, with --long 2400]"
)
def build(
    folder: Path | None, out: Path | None, long: bool, seed: int, programs: int | None, sessions: int | None
) -> None:
    """Build TinyAgent; interrupted, call it again to go on with the stage that was cut."""
    _quiet()
    from verl_ext.tiny.build import ORDINARY, Plan
    from verl_ext.tiny.build import build as build_model
    from verl_ext.tiny.long_build import PLAN, LongLessons

    folder = folder or Path(LONG_TASKS if long else DEFAULT_TASKS)
    out = out or Path(LONG_MODEL if long else DEFAULT_MODEL)
    given = {key: value for key, value in (("programs", programs), ("sessions", sessions)) if value is not None}
    plan = replace(PLAN if long else Plan(), seed=seed, **given)
    summary = build_model(folder, out, plan, bar, LongLessons() if long else ORDINARY)
    click.echo(
        f"{out}: {summary['parameters']:,} parameters, vocabulary {summary['vocabulary']}; trained on "
        f"{summary['examples']:,} examples ({summary['training_tokens']:,} tokens) in {summary['sft_minutes']} minutes"
    )


@tiny.command()
@click.option("--tasks", "folder", type=_FOLDER, default=DEFAULT_TASKS, show_default=True, help="Built tasks.")
@click.option("--split", default="val", show_default=True)
@click.option("--sessions", type=click.IntRange(1), default=400, show_default=True, help="About so many sessions.")
@click.option("--turns", type=click.IntRange(1), default=None, help="Turn limit.  [default: 6, for long tasks 14]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--model", type=_FOLDER, default=LONG_MODEL, show_default=True, help="For long tasks: its tokenizer counts tokens."
)
def teacher(folder: Path, split: str, sessions: int, turns: int | None, seed: int, model: Path) -> None:
    """Print pass@1 of the scripted teacher without insight, with a 95 % interval; its context is never cut."""
    from verl_ext.tiny import long_teacher
    from verl_ext.tiny.teacher import TURNS
    from verl_ext.tiny.teacher import sessions as play

    tasks = _split(folder, split)
    pool = _pool(tasks, sessions)
    long = any(len(task.editable) > 1 for task in pool)
    measure = _measure(model) if long else None

    async def run() -> list:
        async with _sandbox() as sandbox:
            with bar("teacher", len(pool)) as report:
                count = iter(range(1, len(pool) + 1))
                given = {"seed": seed, "judge": True, "done": lambda: report(next(count), "")}
                if measure is None:
                    return await play(pool, sandbox, turns=turns or TURNS, **given)
                given |= {"turns": turns or long_teacher.TURNS, "managers": ("none",), "insight": 0.0}
                return await long_teacher.sessions(pool, sandbox, measure, **given)

    found = asyncio.run(run())
    mean_turns = sum(session.turns for session in found) / len(found)
    click.echo(_rate(f"teacher, {split}", [(s.task_id, s.passed) for s in found]) + f", {mean_turns:.1f} turns")


@tiny.command()
@click.argument("model", type=_FOLDER, default=DEFAULT_MODEL)
@click.option("--tasks", "folder", type=_FOLDER, default=DEFAULT_TASKS, show_default=True, help="Built tasks.")
@click.option("--split", "splits", multiple=True, default=("val",), show_default=True, help="May come several times.")
@click.option("--sessions", type=click.IntRange(1), default=200, show_default=True, help="About so many a split.")
@click.option("--turns", type=click.IntRange(1), default=None, help="Turn limit.  [default: 6, for long tasks 14]")
@click.option("--temperature", type=click.FloatRange(0.01), default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--show", type=click.IntRange(0), default=0, help="Print so many sessions.")
def check(
    model: Path,
    folder: Path,
    splits: tuple[str, ...],
    sessions: int,
    turns: int | None,
    temperature: float,
    seed: int,
    show: int,
) -> None:
    """Sample sessions from MODEL with plain transformers; print well-formed calls and pass@1 of each split."""
    _quiet()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from verl_ext.tiny.check import sample
    from verl_ext.tiny.long_teacher import TURNS as LONG_TURNS
    from verl_ext.tiny.teacher import TURNS

    if not (model / "config.json").is_file():
        raise BadInput(f"no model in {model}; build one with `verl-ext tiny build --out {model}`")
    pools = {split: _split(folder, split) for split in splits}
    network = AutoModelForCausalLM.from_pretrained(model, dtype="float32").eval()
    tokenizer = AutoTokenizer.from_pretrained(model)

    async def run() -> None:
        async with _sandbox() as sandbox:
            for split, tasks in pools.items():
                pool = _pool(tasks, sessions)
                long = any(len(task.editable) > 1 for task in pool)
                with bar(split, len(pool)) as report:
                    count = 0

                    def done(more: int, report: Callable[[int, str], None] = report) -> None:
                        nonlocal count
                        count += more
                        report(count, "")

                    found = await sample(
                        network,
                        tokenizer,
                        pool,
                        sandbox,
                        turns=turns or (LONG_TURNS if long else TURNS),
                        seed=seed,
                        tools="ops_files" if long else "ops",
                        temperature=temperature,
                        done=done,
                    )
                calls = sum(s.turns for s in found)
                share = len(found) / 100
                click.echo(
                    _rate(split, [(s.task.task_id, s.passed) for s in found])
                    + f", first edit {sum(s.first_edit for s in found) / share:.1f} %"
                    + f", well-formed {100 * sum(s.well_formed for s in found) / calls:.2f} % of {calls} calls"
                    + f", redundant {100 * sum(s.redundant for s in found) / calls:.1f} %"
                    + f", {calls / len(found):.1f} turns, {sum(s.tokens for s in found) / len(found):.0f} tokens"
                )
                for session in found[:show]:
                    click.echo(f"\n--- {session.task.task_id}: {'passed' if session.passed else 'failed'}")
                    for message in session.messages:
                        click.echo(f"[{message['role']}] {message['content']}")

    asyncio.run(run())


@tiny.command()
@click.argument("run", type=_FOLDER)
@click.option("--out", type=_FOLDER, default=None, help="PNG to write.  [default: entropy.png in RUN]")
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True, help="At each end of the run.")
def entropy(run: Path, out: Path | None, steps: int) -> None:
    """Draw RUN's mean entropy by position after an observation, its first steps against its last."""
    from verl_ext.tiny.entropy import curves, describe, draw, read_run

    found = curves(read_run(run), steps)
    out = out or (run if run.is_dir() else run.parent) / "entropy.png"
    draw(found, out)
    for curve in found:
        click.echo(describe(curve))
    click.echo(f"picture: {out}")


def _split(folder: Path, split: str) -> list[Task]:
    from verl_ext.gym.tasks import load_tasks

    tasks = list(load_tasks(folder).values())
    chosen = [task for task in tasks if task.split == split]
    if not chosen:
        raise BadInput(f"no task of split {split!r} in {folder}; splits: {', '.join(sorted({t.split for t in tasks}))}")
    return chosen


def _pool(tasks: list[Task], sessions: int) -> list[Task]:
    """About ``sessions`` tasks: evenly spaced ones of many, all of few several times."""
    return tasks[:: max(1, len(tasks) // sessions)] * -(-sessions // len(tasks))


def _rate(name: str, results: list[tuple[str, bool]]) -> str:
    from verl_ext.stats import mean_interval

    by_task: dict[str, list[bool]] = {}
    for task_id, passed in results:
        by_task.setdefault(task_id, []).append(passed)
    found = mean_interval([sum(values) / len(values) for values in by_task.values()])
    interval = f"[{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{name}: pass@1 {100 * found.value:.1f} % {interval}, {len(results)} sessions of {len(by_task)} tasks"


def _measure(model: Path) -> Measure:
    _quiet()
    from transformers import AutoTokenizer

    from verl_ext.tiny.long_play import Measure

    if not (model / "tokenizer.json").is_file():
        raise BadInput(f"no tokenizer in {model}; build one with `verl-ext tiny build --long --out {model}`")
    return Measure(AutoTokenizer.from_pretrained(model))


class _sandbox:
    async def __aenter__(self):
        from verl_ext.sandbox import open_sandbox

        self.sandbox = await open_sandbox()
        return self.sandbox

    async def __aexit__(self, *_: object) -> None:
        await self.sandbox.aclose()


def _quiet() -> None:
    """Loading bars of transformers would cut through the one that counts."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
