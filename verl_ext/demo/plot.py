"""``curve.png``: training reward at every step, pass rates of each split at every evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_ext.demo.results import SPLITS

_COLOURS = {"val": "#1f77b4", "heldout_types": "#d62728", "heldout_functions": "#2ca02c"}
_WINDOW = 5  # steps; a batch's mean reward is noisy


def moving_average(values: list[float], window: int = _WINDOW) -> list[float]:
    """Mean over the last ``window`` values at each position, over fewer at the start."""
    return [sum(values[max(0, i + 1 - window) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def curve(results: Mapping[str, Any], path: Path) -> None:
    """Draw ``results`` (see :func:`verl_ext.demo.results.collect`) to a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    steps = [int(step) for step in results["training"]]
    rewards = list(results["training"].values())
    if steps:
        axes.plot(steps, rewards, color="0.75", linewidth=1)
        label = f"training reward (mean of {_WINDOW} steps)"
        axes.plot(steps, moving_average(rewards), color="0.35", linewidth=2, label=label)
    evaluated = [int(step) for step in results["validation"]]
    for split, name in SPLITS.items():
        if split not in results["splits"]:
            continue
        rates = [results["validation"][str(step)].get(split) for step in evaluated]
        colour = _COLOURS[split]
        axes.plot(evaluated, rates, color=colour, marker="o", linewidth=2, label=f"{name}: pass rate")
        for end, when in ((0, "before"), (-1, "after")):
            estimate = results["splits"][split][when]
            if estimate["low"] is not None:
                axes.plot([evaluated[end]] * 2, [estimate["low"], estimate["high"]], color=colour, linewidth=1)
        teacher = results["splits"][split]["teacher"]
        if teacher is not None:
            axes.axhline(teacher, color=colour, linestyle=":", linewidth=1)
    if any(row["teacher"] is not None for row in results["splits"].values()):
        axes.plot([], [], color="0.35", linestyle=":", linewidth=1, label="scripted teacher")
    axes.set_xlabel("training step")
    axes.set_ylabel("share of sessions that pass the hidden tests")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize="small", framealpha=0.9)
    axes.set_title("TinyAgent on the BugFix gym (bars: 95 % intervals)", loc="left")
    FigureCanvasAgg(figure).print_png(str(path))
