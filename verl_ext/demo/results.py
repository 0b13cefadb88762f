"""The figures of a finished demo: pass rates before and after, their difference with intervals, curves and timings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from rich.table import Table

from verl_ext.demo.dumps import EvalSession, by_split, read_metrics, read_validation, validation_steps
from verl_ext.demo.stages import read_json
from verl_ext.stats import Estimate, paired_difference, rate
from verl_ext.types import BadInput

SPLITS = {"val": "val", "heldout_types": "held-out types", "heldout_functions": "held-out functions"}


def collect(train_dir: Path, splits: Mapping[str, str], teacher: Mapping[str, float]) -> dict[str, Any]:
    """Everything that the report shows, as plain JSON values.

    Args:
        train_dir: Holds ``validation/<step>.jsonl`` and ``metrics/<attempt>.jsonl``.
        splits: Task id to split name.
        teacher: Split name to the scripted teacher's pass rate, where known.

    Returns:
        ``splits`` (per split: before, after, difference with 95 % intervals, sessions, teacher), ``validation`` (per
        step and split), ``training`` (per step: reward), ``stops``, ``behaviour`` (per split, before and after: turns
        and hard-coding sessions, each a session; redundant actions a successful one), ``bug_types`` and ``timings`` (in
        seconds; start-up and first evaluation as seen from outside).
    """
    steps = validation_steps(train_dir / "validation")
    if len(steps) < 2:
        raise BadInput(f"{train_dir}/validation holds {len(steps)} evaluation(s); before and after are needed")
    evaluations = {step: read_validation(train_dir / "validation" / f"{step}.jsonl") for step in steps}
    rates = {step: by_split(sessions, splits) for step, sessions in evaluations.items()}
    first, last = steps[0], steps[-1]
    before, after = evaluations[first], evaluations[last]
    sessions = Counter(splits[session.task_id] for session in after)
    rows = {}
    for split in [name for name in SPLITS if name in rates[first]]:
        if split not in rates[last]:
            raise BadInput(f"the evaluation after step {last} has no session of split {split}")
        # A task may have lost all its sessions to infrastructure in one of the two.
        common = rates[first][split].keys() & rates[last][split].keys()
        difference = paired_difference(_only(rates[first][split], common), _only(rates[last][split], common))
        rows[split] = {
            "before": _finite(rate(rates[first][split])),
            "after": _finite(rate(rates[last][split])),
            "difference": _finite(difference),
            "sessions": sessions[split],
            "teacher": teacher.get(split),
        }
    metrics = read_metrics(train_dir / "metrics")
    training = {step: data["session/score"] for step, data in metrics.items() if "session/score" in data}
    return {
        "steps": last,
        "splits": rows,
        "validation": {
            str(step): {split: rate(tasks).value for split, tasks in grouped.items()} for step, grouped in rates.items()
        },
        "training": {str(step): reward for step, reward in training.items()},
        "stops": {"before": _shares(before), "after": _shares(after)},
        "behaviour": {
            split: {
                when: _behaviour([session for session in dump if splits[session.task_id] == split])
                for when, dump in (("before", before), ("after", after))
            }
            for split in rows
        },
        "bug_types": _by_bug_type(before, after, splits),
        "timings": {**_timings(metrics), **(read_json(train_dir / "clock.json") or {})},
    }


def _only(rates: Mapping[str, float], tasks: set[str]) -> dict[str, float]:
    return {task: rates[task] for task in tasks}


def _finite(estimate: Estimate) -> dict[str, Any]:
    """JSON knows no infinity: an unbounded side is None."""
    return {key: value if math.isfinite(value) else None for key, value in asdict(estimate).items()}


def _shares(sessions: Sequence[EvalSession]) -> dict[str, float]:
    counts = Counter(session.stop or "unknown" for session in sessions)
    return {stop: count / len(sessions) for stop, count in sorted(counts.items())}


def _behaviour(sessions: Sequence[EvalSession]) -> dict[str, float | None]:
    solved = [session.redundant for session in sessions if session.passed]
    return {
        "turns": mean(session.turns for session in sessions),
        "redundant_per_success": mean(solved) if solved else None,
        "hard_coded": mean(session.hard_coded for session in sessions),
    }


def _by_bug_type(
    before: Sequence[EvalSession], after: Sequence[EvalSession], splits: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for when, sessions in (("before", before), ("after", after)):
        passed: dict[tuple[str, str], list[float]] = {}
        for session in sessions:
            passed.setdefault((splits[session.task_id], session.bug_type), []).append(session.passed)
        for (split, bug_type), values in sorted(passed.items()):
            row = table.setdefault(f"{split}/{bug_type}", {"before": None, "after": None, "sessions": len(values)})
            row[when] = sum(values) / len(values)
    return table


def _timings(metrics: Mapping[int, Mapping[str, Any]]) -> dict[str, float]:
    timings = {}
    steps = [data["timing_s/step"] for data in metrics.values() if "timing_s/step" in data]
    if steps:
        timings["step_s_median"] = median(steps)
    gaps = [data["exactness/log_prob_gap_max"] for data in metrics.values() if "exactness/log_prob_gap_max" in data]
    if gaps:
        timings["log_prob_gap_max_nats"] = max(gaps)
    return timings


def table(results: Mapping[str, Any]) -> Table:
    """The table that the demo prints; rates and differences in percent and percentage points."""
    shown = Table(title=f"Pass rate on hidden tests, before and after {results['steps']} steps", title_justify="left")
    shown.add_column("split")
    for column in ("before %", "after %", "difference, 95 % interval", "teacher %", "tasks", "sessions"):
        shown.add_column(column, justify="right")
    for split, row in results["splits"].items():
        difference = row["difference"]
        teacher = "–" if row["teacher"] is None else f"{100 * row['teacher']:.1f}"
        shown.add_row(
            SPLITS[split],
            f"{100 * row['before']['value']:.1f}",
            f"{100 * row['after']['value']:.1f}",
            f"{100 * difference['value']:+.1f}  {_bounds(difference)}",
            teacher,
            str(difference["tasks"]),
            str(row["sessions"]),
        )
    return shown


def _bounds(estimate: Mapping[str, Any]) -> str:
    if estimate["low"] is None:
        return "(one task: no interval)"
    return f"[{100 * estimate['low']:+.1f}, {100 * estimate['high']:+.1f}]"
