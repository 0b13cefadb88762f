"""``verl-ext tiny entropy``: a run's mean entropy by position after an observation, first steps against last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from verl_ext.types import BadInput

Metrics = Mapping[int, Mapping[str, float]]


class Point(NamedTuple):
    """Mean entropy at a position, in nats a token, and its share of all policy tokens."""

    nats: float
    share: float


@dataclass(frozen=True)
class Curves:
    """Means over some steps of a run.

    Attributes:
        steps: First and last of them.
        after, first_turn: By first position of a bucket; see :mod:`verl_ext.objective.metrics`.
        all: Nats a token over all policy tokens.
    """

    steps: tuple[int, int]
    after: dict[int, Point]
    first_turn: dict[int, Point]
    all: float


def read_run(run: Path) -> dict[int, dict[str, float]]:
    """Metrics by step of the one run in a folder: of verl's ``file`` logger, or else of its ``tensorboard`` logger.

    Args:
        run: A folder that ``verl-ext demo`` wrote (or its ``train``), any other that holds ``metrics/*.jsonl`` or event
            files at some depth, or one such file.

    Raises:
        BadInput: No metrics there, or those of several runs.
    """
    if not run.exists():
        raise BadInput(f"{run} does not exist; give the folder of a run")
    if run.is_file():
        return _read_lines([run]) if run.suffix == ".jsonl" else _read_events(run)
    found = sorted(run.rglob("metrics/*.jsonl")) or sorted(run.rglob("events.out.tfevents.*"))
    folders = sorted({path.parent for path in found})
    if not folders:
        raise BadInput(f"{run} holds no metrics; train with trainer.logger=[console,tensorboard]")
    if len(folders) > 1:
        raise BadInput(f"{run} holds {len(folders)} runs; give one of {', '.join(map(str, folders))}")
    return _read_lines(found) if found[0].suffix == ".jsonl" else _read_events(folders[0])


def curves(metrics: Metrics, steps: int) -> list[Curves]:
    """The first and the last ``steps`` steps that logged entropies; fewer where they would overlap.

    Raises:
        BadInput: No step logged any.
    """
    from verl_ext.objective.metrics import AFTER, AFTER_SHARE, ALL, FIRST, FIRST_SHARE

    logged = sorted(step for step, values in metrics.items() if any(name.startswith(AFTER) for name in values))
    if not logged:
        raise BadInput(
            f"the run has no {AFTER}* metrics; they come from a verl_ext trainer (trainer.v1.trainer_mode=bugfix_*) "
            "without algorithm.rollout_correction.bypass_mode"
        )
    length = min(steps, max(1, len(logged) // 2))
    spans = [logged[:length], logged[-length:]] if len(logged) > 1 else [logged]

    def mean(name: str, span: list[int]) -> float:
        values = [metrics[step][name] for step in span if name in metrics[step]]
        return sum(values) / len(values)

    def by_position(nats: str, share: str, span: list[int]) -> dict[int, Point]:
        firsts = {int(name.removeprefix(nats)) for step in span for name in metrics[step] if name.startswith(nats)}
        shares = {
            first: sum(metrics[step].get(f"{share}{first}", 0.0) for step in span) / len(span) for first in firsts
        }
        return {first: Point(mean(f"{nats}{first}", span), shares[first]) for first in sorted(firsts)}

    return [
        Curves(
            (span[0], span[-1]),
            by_position(AFTER, AFTER_SHARE, span),
            by_position(FIRST, FIRST_SHARE, span),
            mean(ALL, span),
        )
        for span in spans
    ]


def describe(found: Curves) -> str:
    """One line with the figures of the curves."""

    def figures(points: dict[int, Point]) -> str:
        return ", ".join(f"{label(first)}: {p.nats:.3f} ({100 * p.share:.0f} %)" for first, p in points.items())

    parts = [("after an observation", found.after), ("in first turns", found.first_turn)]
    by_position = "; ".join(f"{what} {figures(points)}" for what, points in parts if points)
    return f"{_span(found)}: nats (share of tokens) by position {by_position}; all {found.all:.3f}"


def draw(found: list[Curves], path: Path) -> None:
    """Draw the curves to a PNG file: solid after an observation, dashed in the turns that answer the prompt.

    A dot's area is the position's share of all policy tokens.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    ticks = sorted({first for curve in found for first in (*curve.after, *curve.first_turn)})
    at = {first: i for i, first in enumerate(ticks)}
    for curve, colour in zip(found, ("#1f77b4", "#d62728"), strict=False):
        for points, style, what in ((curve.after, "-", "after an observation"), (curve.first_turn, "--", "first turn")):
            if points:
                x, y = [at[first] for first in points], [point.nats for point in points.values()]
                axes.plot(x, y, color=colour, linestyle=style, label=f"{what}, {_span(curve)}")
                axes.scatter(x, y, s=[500 * point.share for point in points.values()], color=colour, alpha=0.6)
        axes.axhline(curve.all, color=colour, linestyle=":", linewidth=1)
    axes.plot([], [], color="0.35", linestyle=":", linewidth=1, label="mean over all policy tokens")
    axes.set_xticks(range(len(ticks)), [label(first) for first in ticks])
    axes.set_xlabel("position of the token in its turn")
    axes.set_ylabel("mean entropy (nats a token)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    axes.set_title("Where the policy is unsure", loc="left")
    FigureCanvasAgg(figure).print_png(str(path))


def label(first: int) -> str:
    """``4-7``: the positions of the bucket that begins with one."""
    from verl_ext.objective.metrics import POSITIONS

    number = POSITIONS.index(first)
    if number + 1 == len(POSITIONS):
        return f"{first}+"
    last = POSITIONS[number + 1] - 1
    return str(first) if last == first else f"{first}-{last}"


def _span(curve: Curves) -> str:
    first, last = curve.steps
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _read_lines(paths: list[Path]) -> dict[int, dict[str, float]]:
    import json

    steps: dict[int, dict[str, float]] = {}
    for path in sorted(paths, key=lambda path: (len(path.stem), path.stem)):  # attempts: 0, 1, ..., 10
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record: dict[str, Any] = json.loads(line)
                steps.setdefault(record["step"], {}).update(record["data"])
            except (ValueError, KeyError, TypeError):
                continue  # half a line where a run was cut, or no metrics file
    return steps


def _read_events(path: Path) -> dict[int, dict[str, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
    steps: dict[int, dict[str, float]] = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            steps.setdefault(event.step, {})[name] = event.value
    return steps
