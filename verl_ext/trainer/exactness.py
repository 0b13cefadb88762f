"""The check of every step that training sees what the sampler saw: metrics, and the sessions that pass the bound.

verl's log-prob pass computes each policy token anew, in the context that the training row holds. A row that is not what
was sampled (a wrong context, a token encoded anew, a mask that is off by one) shows as a gap far beyond rounding.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq

from verl_ext.trainer.exactness_settings import ExactnessConfig
from verl_ext.trainer.gaps import RowGaps, describe, gap_metrics, row_gaps, worst_sessions
from verl_ext.trainer.turns import rows_with_turns

_LOG_PROBS = ("rollout_log_probs", "old_log_probs")


def measure(settings: ExactnessConfig, config: Any, batch: Any, step: int) -> dict[str, float]:
    """Metrics of a step's rows; sessions beyond the bound are written, and named in one line on stderr.

    Args:
        settings: Of the run.
        config: The whole configuration.
        batch: The step's rows, with verl's ``old_log_probs``.
        step: The training step, from 1; its log-probs are those of weights version ``step - 1``.

    Returns:
        ``exactness/checked``: the share of rows that were sampled with these weights; where they moved in between,
        log-probs differ for that reason. Padding is no row. The others are those of
        :func:`~verl_ext.trainer.gaps.gap_metrics`, over the checked rows.
    """
    if not config.actor_rollout_ref.rollout.calculate_log_probs:
        return {}
    version = step - 1
    tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)}
    keys = [key for key, tag in tags.items() if tag["min_global_steps"] == tag["max_global_steps"] == version]
    metrics = {"exactness/checked": len(keys) / max(len(tags), 1)}
    if not keys:
        return metrics
    data = _columns(batch, keys, [*_LOG_PROBS, "response_mask", "extra_fields"])
    rows = rows_with_turns(keys, [False] * len(keys), data["extra_fields"])
    columns = (data[name] for name in (*_LOG_PROBS, "response_mask"))
    gaps = [row_gaps(row, *values) for row, *values in zip(rows, *columns, strict=True)]
    metrics.update(gap_metrics(gaps, settings.bound))
    if settings.bound is not None and (worst := worst_sessions(gaps, settings.bound)):
        chosen = worst[: settings.dumps]
        facts = {"step": step, "version": version, "temperature": config.actor_rollout_ref.rollout.temperature}
        where = ""
        if chosen:
            file = settings.folder(config.trainer.default_local_dir) / f"{step}.jsonl"
            where = _write(file, _dump(batch, tags, chosen, gaps, facts))
        largest, sessions = metrics["exactness/log_prob_gap_max"], f"{len(worst)} session{'s' if worst[1:] else ''}"
        print(
            f"verl_ext: step {step}: sampler and trainer are up to {largest:.3g} nats apart in {sessions}; "
            f"verl_ext.exactness.bound is {settings.bound:g}{where}",
            file=sys.stderr,
            flush=True,
        )
    return metrics


def _columns(batch: Any, keys: Sequence[str], names: Sequence[str]) -> dict[str, list[Any]]:
    """Rows of a batch by column: numbers as arrays, everything else as it was put in."""
    data = tq.kv_batch_get(keys=list(keys), partition_id=batch.partition_id, select_fields=list(names))

    def plain(column: Any) -> list[Any]:
        if isinstance(column, torch.Tensor):
            return [row.double().numpy() if row.is_floating_point() else row.numpy() for row in column.unbind()]
        return [getattr(row, "data", row) for row in list(column)]

    return {name: plain(data[name]) for name in names if name in data}


def _dump(
    batch: Any,
    tags: Mapping[str, Mapping[str, Any]],
    sessions: Sequence[tuple[str, str]],
    gaps: Sequence[RowGaps],
    facts: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """All rows of the sessions, in this order: what ``verl-ext exactness`` reads, and what else a replay needs."""
    order = {session: i for i, session in enumerate(sessions)}

    def place(key: str) -> tuple[int, int]:
        group, session, segment = key.rsplit("_", 2)
        return order.get((group, session), -1), int(segment)

    keys = sorted((key for key in tags if place(key)[0] >= 0), key=place)
    names = ["prompts", "responses", "response_mask", *_LOG_PROBS]
    data = _columns(batch, keys, [*names, "extra_fields", "reward_model"])
    found = {of.row.key: describe(of) for of in gaps}
    rows = []
    for i, key in enumerate(keys):
        row = {"key": key, **facts, **{name: tags[key][name] for name in ("min_global_steps", "max_global_steps")}}
        if "reward_model" in data:
            row["task_id"] = data["reward_model"][i].get("ground_truth")
        row["gaps"] = found.get(key)  # None: sampled with other weights, so not checked
        rows.append(
            row | {name: data[name][i].tolist() for name in names} | {"session": data["extra_fields"][i]["session"]}
        )
    return rows


def _write(file: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write a JSON line a row; how the warning ends. A full disk costs the dump, not the run."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    except OSError as error:
        return f"; they could not be written: {error}"
    return f"; the worst are in {file}"
