"""How old training data may be and is, and whether correction gets worse with the turn. Pure; no verl, no Ray.

A version is one set of weights that the trainer sends to the rollout: step t makes version t, and trains on what was
sampled by version t - 1 or older. The age of a token is the trainer's version at the beginning of its step less the
version that sampled it. Axis names: ``_R`` rows, ``_L`` response tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from verl_ext.trainer.turns import Row
from verl_ext.types import BadInput

TURN_BUCKETS = (0, 1, 2, 4, 8)
"""First turn of each bucket of turn positions: 0, 1, 2 to 3, 4 to 7, from 8."""

Versions = tuple[int, int]
"""Oldest and newest version that sampled a turn."""


def _sampler(config: DictConfig, mode: str) -> tuple[int | None, str, int]:
    """Threshold, strategy, and batches ahead, rounded up."""
    sampler = OmegaConf.select(config, "trainer.v1.sampler") or {}
    ahead = OmegaConf.select(config, f"trainer.v1.{mode}.num_warmup_batches", default=1)
    threshold = sampler.get("max_off_policy_threshold")
    return threshold, sampler.get("max_off_policy_strategy", "drop"), math.ceil(ahead)


def largest_age(config: DictConfig, mode: str) -> int | None:
    """Largest age that a trained token can have, in versions; None: unbounded.

    With ``drop``, verl trains on no group that spans more than ``max_off_policy_threshold`` T versions, counted from
    when it was handed out: age T - 1. With ``wait``, a step begins when no session in flight has reached T. Then up to
    s batches, s = ``num_warmup_batches``, may have it and are trained on in s steps, oldest first: age T + s - 2.

    Args:
        config: The whole configuration.
        mode: verl's name of the asynchronous mode, ``separate_async`` or ``colocate_async``.
    """
    threshold, strategy, ahead = _sampler(config, mode)
    if threshold is None:
        return None
    return threshold - 1 + (max(ahead - 1, 0) if strategy == "wait" else 0)


def check_staleness(config: DictConfig, mode: str) -> None:
    """Refuse a threshold that the batches ahead exceed by themselves; arguments as of :func:`largest_age`.

    Raises:
        BadInput: Names the keys and what to set.
    """
    threshold, strategy, ahead = _sampler(config, mode)
    if threshold is not None and threshold < 1 + ahead:
        then = "would be dropped" if strategy == "drop" else "would be trained on all the same"
        raise BadInput(
            f"trainer.v1.sampler.max_off_policy_threshold={threshold} with trainer.v1.{mode}.num_warmup_batches: "
            f"{ahead} batches ahead span {1 + ahead} versions, and {then}; set the threshold to {1 + ahead} or more"
        )


def turn_versions(rows: Sequence[Row], tags: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Versions]]:
    """Oldest and newest version of each turn, by session; padding rows have none.

    Args:
        rows: As of :func:`verl_ext.trainer.turns.rows_with_turns`; a turn's ``versions`` are read.
        tags: verl's tag of each row; ``min_global_steps`` and ``max_global_steps`` stand in for turns without.
    """
    found: dict[tuple[str, str], list[Versions]] = {}
    for row, tag in zip(rows, tags, strict=True):
        for turn in row.turns:
            whole_row = (tag.get("min_global_steps"), tag.get("max_global_steps"))
            oldest, newest = turn.get("versions") or whole_row
            if oldest is not None and newest is not None:
                found.setdefault(row.session, []).append((int(oldest), int(newest)))
    return found


def age_metrics(versions: Mapping[tuple[str, str], Sequence[Versions]], trainer_version: int) -> dict[str, float]:
    """``staleness/*``: age of the oldest token and span of versions, a turn and a session, mean and largest.

    Args:
        versions: As of :func:`turn_versions`.
        trainer_version: Version at the beginning of the step: ``global_steps - 1``.
    """
    turns = [turn for session in versions.values() for turn in session]
    sessions = [(min(t[0] for t in session), max(t[1] for t in session)) for session in versions.values()]
    metrics = {}
    for of, spans in (("turn", turns), ("session", sessions)):
        for name, values in (
            ("age", [trainer_version - oldest for oldest, _ in spans]),
            ("span", [newest - oldest for oldest, newest in spans]),
        ):
            if values:
                metrics[f"staleness/{of}_{name}/mean"] = float(np.mean(values))
                metrics[f"staleness/{of}_{name}/max"] = float(max(values))
    return metrics


def cut_RL(log_ratio_RL: torch.Tensor, mask_RL: torch.Tensor, correction: Mapping[str, Any]) -> torch.Tensor:
    """Which tokens have a weight that was truncated, or set to 0 outside IcePop's band; [R, L] bool.

    As ``verl/trainer/ppo/rollout_corr_helper.py: compute_rollout_correction_weights`` decides it.

    Args:
        log_ratio_RL: log pi_old - log pi_rollout.
        mask_RL: 1 for policy tokens, before any rejection.
        correction: ``algorithm.rollout_correction``.
    """
    level, threshold = correction.get("rollout_is"), correction.get("rollout_is_threshold")
    mask = mask_RL.bool()
    if level is None or threshold is None:
        return torch.zeros_like(mask)
    ratio = log_ratio_RL.masked_fill(~mask, 0.0)
    if level == "sequence":
        ratio = ratio.sum(-1, keepdim=True).expand_as(ratio)
    ratio = ratio.clamp(-20.0, 20.0).exp()  # verl's SAFETY_BOUND
    lower, _, upper = str(threshold).rpartition("_")
    outside = ratio > float(upper)
    if lower:
        outside |= ratio < float(lower)
    return outside & mask


def correction_metrics(
    rows: Sequence[Row],
    log_ratio_RL: torch.Tensor,
    before_RL: torch.Tensor,
    after_RL: torch.Tensor,
    correction: Mapping[str, Any],
) -> dict[str, float]:
    """``staleness/*``: how far sampler and trainer are apart and what correction did, overall and by position of turn.

    Args:
        rows: As of :func:`verl_ext.trainer.turns.rows_with_turns`.
        log_ratio_RL: log pi_old - log pi_rollout.
        before_RL, after_RL: Policy tokens in the loss before and after rejection.
        correction: ``algorithm.rollout_correction``.

    Returns:
        For all tokens, and with ``/turn_0``, ``/turn_1``, ``/turn_2`` (2 and 3) and so on for the tokens of such turns:
        ``cut``, the share whose weight was truncated or set to 0; ``rejected``, the share that left the loss;
        ``log_ratio_abs``, the mean size of the log ratio in nats.
    """
    before, after = before_RL.bool(), after_RL.bool()
    bucket = torch.full(before.shape, -1)
    for i, row in enumerate(rows):
        for turn in row.turns:
            bucket[i, turn["start"] : turn["end"]] = max(first for first in TURN_BUCKETS if first <= turn["index"])
    values = {
        "cut": cut_RL(log_ratio_RL, before, correction).double(),
        "rejected": (before & ~after).double(),
        "log_ratio_abs": log_ratio_RL.double().abs(),
    }
    places = {"": before} | {f"/turn_{first}": before & (bucket == first) for first in TURN_BUCKETS}
    return {
        f"staleness/{name}{suffix}": value[place].mean().item()
        for name, value in values.items()
        for suffix, place in places.items()
        if place.any()
    }
