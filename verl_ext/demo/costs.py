"""What training cost: minutes, tokens, contexts and waiting, from a run's metrics."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from verl_ext.demo.dumps import read_metrics

COSTS = {
    "session/tokens_sampled": ("sampled tokens", 1),
    "segments/tokens_trained": ("trained tokens", 1),
    "session/context_tokens": ("longest context", 1),
    "segments/per_session": ("segments", 1),
    "idle/trainer": ("trainer waits %", 100),
    "idle/rollout": ("rollout idle %", 100),
    "staleness/turn_age/mean": ("age of a turn", 1),
    "staleness/cut": ("truncated tokens %", 100),
    "staleness/rejected": ("rejected tokens %", 100),
}
"""Column and factor by metric (docs/metrics.md, docs/asynchrony.md); the first four are means a session."""


def costs(train_dir: Path) -> dict[str, float]:
    """By column: means over the steps that have the metric, and the minutes that all steps took together.

    Args:
        train_dir: Holds ``metrics/<attempt>.jsonl``. Evaluations are not in ``timing_s/step``, nor is starting up.
    """
    steps = [data for step, data in read_metrics(train_dir / "metrics").items() if step > 0]
    timed = [data["timing_s/step"] for data in steps if "timing_s/step" in data]
    found = {"minutes of steps": sum(timed) / 60} if timed else {}
    for metric, (column, factor) in COSTS.items():
        if values := [data[metric] for data in steps if metric in data]:
            found[column] = factor * mean(values)
    return found
