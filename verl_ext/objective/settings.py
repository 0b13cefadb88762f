"""``verl_ext.entropy``: the settings of the entropy bonus, and the runs in which it cannot work."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from omegaconf import DictConfig, OmegaConf

from verl_ext.types import BadInput

WHERE = ("none", "after_observation", "uniform")
MATCH = ("total", "none")
WEIGHABLE = frozenset({"vanilla", "dppo_tv", "dppo_kl", "gpg", "clip_cov", "kl_cov", "dro", "cispo"})
"""``actor.policy_loss.loss_mode`` whose tokens can be weighed one by one (verl 0.9.1, ``core_algos.py``). Of the
others, ``gspo`` and ``geo_mean`` take means over a row, ``sapo`` aggregates in a mode of its own, and ``bypass_mode``
does not read ``rollout_is_weights``."""
_ACTOR = "actor_rollout_ref.actor"


@dataclass(frozen=True)
class EntropyConfig:
    """An entropy bonus in the policy loss; see ``docs/entropy.md``.

    Attributes:
        where: ``after_observation``: on the first policy tokens after each observation. ``uniform``: on all policy
            tokens, for comparison (what ``actor.entropy_coeff`` does). ``none``: no bonus, verl's own loss.
        coeff: Weight of the bonus, at least 0; in nats of entropy a unit of loss.
        tokens: For ``after_observation``: how many tokens a turn.
        first_turn: For ``after_observation``: whether a row's first turn, which answers the prompt, counts.
        match: For ``after_observation``: ``total`` scales the weights so that their sum over a training step is that of
            a uniform bonus with the same ``coeff``; ``none`` leaves them as ``actor.loss_agg_mode`` makes them.
        decay_steps: Training steps in which ``coeff`` goes linearly to ``end_coeff``; 0 keeps it constant.
        end_coeff: Weight from then on.
    """

    where: str = "none"
    coeff: float = 0.0
    tokens: int = 10
    first_turn: bool = False
    match: str = "total"
    decay_steps: int = 0
    end_coeff: float = 0.0

    def at(self, step: int) -> float:
        """The weight at a training step; verl counts them from 1."""
        done = min(1.0, (step - 1) / self.decay_steps) if self.decay_steps else 0.0
        return self.coeff + done * (self.end_coeff - self.coeff)


def check(settings: EntropyConfig, config: DictConfig) -> None:
    """Refuse in one line what is out of range, would have no effect, or cannot work with verl's part of ``config``.

    ``where: uniform`` may stand beside any ``tokens``, ``first_turn`` and ``match``: switching to it compares the same
    total weight on all tokens.

    Raises:
        BadInput: Names the key, its value, and what to do.
    """
    for name, allowed in (("where", WHERE), ("match", MATCH)):
        if (value := getattr(settings, name)) not in allowed:
            raise BadInput(f"verl_ext.entropy.{name}={value!r} is not one of {', '.join(allowed)}")
    for name in ("coeff", "end_coeff"):
        if not (math.isfinite(value := getattr(settings, name)) and value >= 0):
            raise BadInput(f"verl_ext.entropy.{name}={value} must be a finite number, 0 or more")
    if settings.tokens < 1:
        raise BadInput(f"verl_ext.entropy.tokens={settings.tokens} must be 1 or more")
    if settings.decay_steps < 0:
        raise BadInput(f"verl_ext.entropy.decay_steps={settings.decay_steps} must be 0 (constant) or more")
    if settings.end_coeff and not settings.decay_steps:
        raise BadInput(f"verl_ext.entropy.end_coeff={settings.end_coeff} needs decay_steps, the steps to get there")
    if settings.where == "none":
        _check_nothing_set(settings)
    else:
        _check_run(settings, config)


def _check_nothing_set(settings: EntropyConfig) -> None:
    others = [key for key in fields(settings) if key.name != "where" and getattr(settings, key.name) != key.default]
    if others:
        found = ", ".join(f"{key.name}={getattr(settings, key.name)}" for key in others)
        defaults = ", ".join(f"{key.name}={key.default}" for key in others)
        raise BadInput(
            f"verl_ext.entropy.where=none ignores {found}; set where to after_observation or uniform, or {defaults}"
        )


def _check_run(settings: EntropyConfig, config: DictConfig) -> None:
    if not (settings.coeff or settings.end_coeff):
        raise BadInput(
            f"verl_ext.entropy.where={settings.where} with coeff=0 and end_coeff=0 is no bonus; "
            "set coeff, or where=none"
        )
    actor = config.actor_rollout_ref.actor
    if not (actor.calculate_entropy or actor.entropy_coeff):
        raise BadInput(
            f"verl_ext.entropy.where={settings.where} needs entropies with a gradient; "
            f"set {_ACTOR}.calculate_entropy=true"
        )
    if settings.where == "uniform" and actor.entropy_coeff:
        raise BadInput(
            f"verl_ext.entropy.where=uniform and {_ACTOR}.entropy_coeff={actor.entropy_coeff} are one bonus twice; "
            "set entropy_coeff=0"
        )
    if OmegaConf.select(config, "distillation.enabled"):
        raise BadInput(
            f"verl_ext.entropy.where={settings.where} replaces the loss that distillation needs; "
            "set distillation.enabled=false"
        )
    # The backward pass of one chunk changes what the next one saved (vocab_parallel_entropy_with_chunking).
    if actor.strategy == "megatron" and OmegaConf.select(actor, "megatron.entropy_from_logits_with_chunking"):
        raise BadInput(
            f"{_ACTOR}.megatron.entropy_from_logits_with_chunking=true has no gradient in verl 0.9.1; set it to false"
        )
    check_scale(actor)


def check_scale(actor: DictConfig) -> None:
    """Refuse an aggregation whose coefficients depend on how verl splits the batch.

    Raises:
        BadInput: Names the key and what to set.
    """
    if actor.loss_agg_mode == "seq-mean-token-sum-norm" and actor.loss_scale_factor is None:
        raise BadInput(
            f"{_ACTOR}.loss_agg_mode=seq-mean-token-sum-norm divides by the longest response of each micro-batch; "
            "set loss_scale_factor, so that the update does not depend on the split"
        )
