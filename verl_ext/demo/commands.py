"""`verl-ext demo`: build tasks, build TinyAgent, evaluate, train, evaluate, report; interrupted, it resumes."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from verl_ext.demo.stages import code_version
from verl_ext.progress import bar
from verl_ext.types import BadInput

# Seconds on two cores, shown as the time left until a stage has its own estimate.
EXPECTED_S = {"tasks": 80, "tiny": 560, "teacher": 25, "train": 1080, "report": 10}
_VERL_EXT = [sys.executable, "-m", "verl_ext.cli"]


@click.command(context_settings={"show_default": True})
@click.option("--seed", default=0, help="Of training: data order and sampling. Tasks and TinyAgent stay the same.")
@click.option("--steps", default=50, help="Training steps.", type=click.IntRange(min=1))
@click.option("--sessions", default=150, help="Least sessions for each split in an evaluation.", type=click.IntRange(1))
@click.option("--recipe", default="bugfix_grpo", help="Name of a file in recipes/, e.g. bugfix_gigpo.")
@click.option("--out", default="runs/demo", help="Folder of the run.", type=click.Path(path_type=Path))
@click.option(
    "--tasks",
    help="Existing tasks to use.  [default: built in runs/tasks, or runs/tasks-long]",
    type=click.Path(path_type=Path),
)
@click.option(
    "--tiny",
    help="Existing model to use.  [default: built in runs/tiny, or runs/tiny-long]",
    type=click.Path(path_type=Path),
)
@click.argument("overrides", nargs=-1)
def demo(
    seed: int,
    steps: int,
    sessions: int,
    recipe: str,
    out: Path,
    tasks: Path | None,
    tiny: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Train TinyAgent to repair Python functions on this machine's CPU, with pass rates before and after.

    OVERRIDES are Hydra overrides of the recipe, e.g. actor_rollout_ref.actor.optim.lr=3e-4. All files go
    below the run's folder: report.json, curve.png, transcripts.md, train.log. Interrupted, the same command goes on
    where it was.
    """
    from rich.console import Console

    from verl_ext.demo.plan import Plan, check, check_recipe
    from verl_ext.demo.stages import only_one

    check_recipe(recipe)
    for override in overrides:
        if "=" not in override:
            raise BadInput(f"{override!r} is no override; write key=value, e.g. actor_rollout_ref.actor.optim.lr=3e-4")
    plan = Plan(
        tasks=tasks or Path("runs/tasks"),
        model=tiny or Path("runs/tiny"),
        out=out / "train",
        steps=steps,
        seed=seed,
        sessions=sessions,
        recipe=recipe,
        overrides=overrides,
    )
    if plan.long:
        plan = replace(plan, tasks=tasks or Path("runs/tasks-long"), model=tiny or Path("runs/tiny-long"))
    check(plan)
    with only_one(out):
        _Demo(Console(highlight=False), plan, out, build_tasks=tasks is None, build_tiny=tiny is None).run()


class _Demo:
    def __init__(self, console: Any, plan: Any, out: Path, build_tasks: bool, build_tiny: bool):
        self.console, self.plan, self.out = console, plan, out
        self.built_tasks, self.built_tiny = build_tasks, build_tiny
        self.long = ["--long"] if plan.long else []
        self.environ = {**os.environ, "VERL_PLATFORM": "cpu", "TOKENIZERS_PARALLELISM": "false"}
        self.seconds: dict[str, float] = {}

    def run(self) -> None:
        """All stages in order."""
        stages = (
            ("tasks", "bug-fixing tasks", self.tasks),
            ("tiny", "TinyAgent: tokenizer, teacher, SFT", self.tiny),
            ("teacher", "the scripted teacher, for comparison", self.teacher),
            ("train", "evaluate, train, evaluate", self.train),
            ("report", "report", self.report),
        )
        for number, (name, title, stage) in enumerate(stages, 1):
            left = sum(EXPECTED_S[later] for later, _, _ in stages[number - 1 :])
            self.console.print(f"[bold]{number}/{len(stages)} {title}[/bold] (about {left / 60:.0f} min left in all)")
            self.seconds[name] = stage()

    def tasks(self) -> float:
        """Build the tasks, or find them."""
        folder = self.plan.tasks
        if not self.built_tasks:
            return self._given("--tasks", folder, "train.parquet")
        inputs = {"seed": 0, "version": code_version()}
        argv = [*_VERL_EXT, "tasks", "build", "--seed", "0", "--out", str(folder), *self.long]
        return self._build(folder / ".built.json", inputs, argv)

    def tiny(self) -> float:
        """Build TinyAgent, or find it."""
        from verl_ext.demo.stages import file_digest

        folder = self.plan.model
        if not self.built_tiny:
            return self._given("--tiny", folder, "config.json")
        inputs = {"seed": 0, "version": code_version(), "tasks": file_digest(self.plan.tasks / "train.parquet")}
        argv = [*_VERL_EXT, "tiny", "build", "--tasks", str(self.plan.tasks), "--out", str(folder)]
        argv += self.long
        return self._build(folder / ".built.json", inputs, argv)

    def teacher(self) -> float:
        """Measure the scripted teacher on the evaluation's tasks; its result stands beside the tasks."""
        from verl_ext.demo.plan import evaluation_files
        from verl_ext.demo.stages import mark_done, seconds_if_done, write_json
        from verl_ext.demo.teacher import evaluation_tasks, measure
        from verl_ext.gym.tasks import load_tasks

        inputs = {"version": code_version(), **self.plan.evaluation_inputs()}
        marker = self.plan.tasks / ".teacher.json"
        seconds = seconds_if_done(marker, inputs)
        if seconds is not None:
            return self._skipped(seconds)
        start = time.monotonic()
        files, runs = evaluation_files(self.plan)
        tasks = evaluation_tasks(files, load_tasks(self.plan.tasks))
        with bar("   sessions", len(tasks) * runs) as report:
            count = iter(range(1, len(tasks) * runs + 1))
            rates = measure(tasks, runs, seed=0, model=self.plan.model, done=lambda: report(next(count), ""))
        write_json(self.plan.tasks / "teacher.json", rates)
        seconds = time.monotonic() - start
        mark_done(marker, inputs, seconds)
        return seconds

    def train(self) -> float:
        """Evaluate, train, evaluate: one run of verl's trainer."""
        from verl_ext.demo.stages import mark_done, read_json, seconds_if_done, write_json
        from verl_ext.demo.train import train

        inputs, folder = {"version": code_version(), **self.plan.inputs()}, self.plan.out
        known, done = folder / "inputs.json", folder / "done.json"
        seconds = seconds_if_done(done, inputs)
        if seconds is not None:
            return self._skipped(seconds)
        if known.exists() and read_json(known) != inputs:
            number = 1
            while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
                number += 1
            folder.rename(aside)
            self.console.print(f"   inputs changed: starting afresh; the earlier run: {aside}", soft_wrap=True)
        write_json(known, inputs)
        spent = read_json(folder / "spent.json") or 0.0
        start = time.monotonic()
        try:
            train(self.plan, self.environ, self.console)
        finally:
            spent += time.monotonic() - start
            write_json(folder / "spent.json", spent)
        mark_done(done, inputs, spent)
        return spent

    def report(self) -> float:
        """Table, picture, transcripts and report.json."""
        from verl_ext.demo.report import write_report

        start = time.monotonic()
        write_report(self.plan, self.out, self.seconds, self.console)
        return time.monotonic() - start

    def _given(self, option: str, folder: Path, file: str) -> float:
        if not (folder / file).is_file():
            raise BadInput(f"{option} {folder} holds no {file}; leave the option out to have it built")
        self.console.print(f"   using {folder}")
        return 0.0

    def _build(self, marker: Path, inputs: dict[str, Any], argv: list[str]) -> float:
        from verl_ext.demo.stages import mark_done, run_visible, seconds_if_done

        seconds = seconds_if_done(marker, inputs)
        if seconds is not None:
            return self._skipped(seconds)
        seconds = run_visible(argv, self.environ)
        mark_done(marker, inputs, seconds)
        return seconds

    def _skipped(self, seconds: float) -> float:
        self.console.print(f"   done before, in {seconds:.0f} s")
        return seconds
