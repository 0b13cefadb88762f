"""What a simulation found, as a table, a JSON object and a picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from verl_ext.simulate.model import Result
from verl_ext.simulate.runs import StepSeconds

_NAMES = (
    "",
    "trained sessions a second",
    "speed-up",
    "seconds a step",
    "trainer waits, %",
    "rollout idle, %",
    "weight sync, %",
    "requests at a time",
    "age, mean",
    "age, largest",
    "of several versions, %",
)
_COMPARED = (
    "",
    "seconds a step: predicted",
    "measured",
    "error, %",
    "seconds of waiting: predicted",
    "measured",
    "seconds of training: predicted",
    "measured",
    "age: predicted",
    "measured",
    "versions a session: predicted",
    "measured",
)


@dataclass(frozen=True)
class Row:
    """One simulated way of training.

    Attributes:
        mode: ``sync``, ``one_step``, ``one_step_off`` or ``fully_async``.
        label: With its staleness and policy.
        result: What was found.
    """

    mode: str
    label: str
    result: Result


def speed_ups(rows: Sequence[Row]) -> list[float | None]:
    """Throughput over that of synchronous training; None where that was not simulated."""
    base = next((row.result.sessions_per_s for row in rows if row.mode == "sync"), None)
    return [row.result.sessions_per_s / base if base else None for row in rows]


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Columns: names of the figures, then a column for each way of training."""
    columns = [_NAMES]
    for row, speed_up in zip(rows, speed_ups(rows), strict=True):
        found = row.result
        columns.append(
            (
                row.label,
                f"{found.sessions_per_s:.3g}",
                "–" if speed_up is None else f"{speed_up:.2f}",
                f"{found.step_s:.2f}",
                *(f"{100 * share:.1f}" for share in (found.wait, found.idle, found.sync)),
                f"{found.requests:.1f}",
                f"{_mean(found.age):.2f}",
                str(max(found.age)),
                f"{100 * found.several:.1f}",
            )
        )
    return columns


def notes(rows: Sequence[Row]) -> list[str]:
    """Lines below the table: ages that are not all zero, and what was dropped."""
    lines = []
    for row in rows:
        found = row.result
        if max(found.age):
            lines.append(f"{row.label}, % of trained sessions by age in versions: {_shares(found.age)}")
        if found.counts.dropped:
            lines.append(
                f"{row.label}: {found.counts.dropped} of {found.counts.dispatched} prompts dropped; "
                f"a trained session is {found.trained_s / found.started_s:.2f} times as long as a started one"
            )
    return lines


def _shares(histogram: Counter[int], shown: int = 8) -> str:
    """``0: 12.5, 1: 80.0``; the last entry gathers what is beyond ``shown`` of them."""
    values, total = sorted(histogram), histogram.total()
    parts = [f"{value}: {100 * histogram[value] / total:.1f}" for value in values[:shown]]
    rest = sum(histogram[value] for value in values[shown:])
    if rest:
        last = "" if len(values) == shown + 1 else f" to {values[-1]}"
        parts.append(f"{values[shown]}{last}: {100 * rest / total:.1f}")
    return ", ".join(parts)


def as_json(rows: Sequence[Row], inputs: dict[str, Any], measured: dict[str, list[StepSeconds]]) -> dict[str, Any]:
    """All of it, ready for JSON; histograms have the number of sessions by version count."""
    modes = []
    for row, speed_up in zip(rows, speed_ups(rows), strict=True):
        found = {name: value for name, value in asdict(row.result).items() if not isinstance(value, Counter)}
        histograms = {
            name: {str(key): count for key, count in sorted(getattr(row.result, name).items())}
            for name in ("age", "span", "dispatch_span")
        }
        derived = {"step_s": row.result.step_s, "speed_up": speed_up, "several_versions": row.result.several}
        compared = {"measured": _means(measured[row.mode])} if row.mode in measured else {}
        modes.append({"mode": row.mode, "label": row.label, **found, **derived, **histograms, **compared})
    return {"inputs": inputs, "modes": modes}


def comparison(rows: Sequence[Row], measured: dict[str, list[StepSeconds]]) -> list[tuple[str, ...]]:
    """Columns as in :func:`table`: predicted and measured means of the modes that were measured."""
    columns = [_COMPARED]
    for row in rows:
        if row.mode not in measured:
            continue
        found, means = row.result, _means(measured[row.mode])
        columns.append(
            (
                row.label,
                f"{found.step_s:.2f}",
                f"{means['step']:.2f}",
                f"{100 * (found.step_s / means['step'] - 1):+.1f}",
                f"{found.wait * found.step_s:.2f}",
                f"{means['wait']:.2f}",
                f"{found.train * found.step_s:.2f}",
                f"{means['train']:.2f}",
                f"{_mean(found.age):.2f}",
                _number(means["age_mean"]),
                f"{_mean(found.span):.2f}",
                _number(means["span_mean"]),
            )
        )
    return columns


def _mean(histogram: Counter[int]) -> float:
    return math.fsum(value * count for value, count in histogram.items()) / histogram.total()


def _means(steps: Sequence[StepSeconds]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name in ("step", "wait", "train", "sync", "age_mean", "span_mean"):
        known = [value for value in (getattr(step, name) for step in steps) if value is not None]
        means[name] = mean(known) if known else None
    return means


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw throughput, where the time goes, and the ages to a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 1.6 + 0.55 * max(len(rows), 4)), layout="constrained")
    rate, shares, ages = figure.subplots(1, 3)
    at = list(range(len(rows)))
    labels = [row.label for row in rows]

    rate.barh(at, [row.result.sessions_per_s for row in rows], color="#1f77b4")
    for i, speed_up in enumerate(speed_ups(rows)):
        if speed_up is not None:
            rate.text(rows[i].result.sessions_per_s, i, f" {speed_up:.2f} ×", va="center")
    rate.margins(x=0.2)
    rate.set_yticks(at, labels)
    rate.set_xlabel("trained sessions a second")

    height, colours = 0.38, {"at work": "#1f77b4", "idle": "0.8", "weight sync": "#ff7f0e"}
    for offset, busy, idle in ((-0.2, "train", "wait"), (0.2, "generate", "idle")):
        left = [0.0] * len(rows)
        for (what, colour), name in zip(colours.items(), (busy, idle, "sync"), strict=True):
            widths = [100 * getattr(row.result, name) for row in rows]
            place = [i + offset for i in at]
            shares.barh(place, widths, height, left=left, color=colour, label=what if offset < 0 else None)
            left = [start + width for start, width in zip(left, widths, strict=True)]
    shares.set_yticks(
        [i + offset for i in at for offset in (-0.2, 0.2)], ["trainer", "rollout"] * len(rows), fontsize="small"
    )
    shares.set_xlabel("share of the time (%)")
    shares.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)

    for row in rows:
        total = row.result.age.total()
        points = sorted(row.result.age.items())
        ages.plot([age for age, _ in points], [100 * count / total for _, count in points], "o-", label=row.label)
    ages.xaxis.get_major_locator().set_params(integer=True)
    ages.set_xlabel("age of a trained session (versions)")
    ages.set_ylabel("share of sessions (%)")
    ages.set_ylim(bottom=0)
    ages.legend(fontsize="small")

    for axes in (rate, shares):
        axes.invert_yaxis()
    FigureCanvasAgg(figure).print_png(str(path))
