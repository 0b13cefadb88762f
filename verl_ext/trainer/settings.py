"""Which trainers and turn-level estimators there are, and ``algorithm`` checked. No verl, no Ray."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.agent.settings import ContextConfig
from verl_ext.credit import TurnTable, gigpo, potential
from verl_ext.objective.settings import WEIGHABLE, check_scale
from verl_ext.types import BadInput

TRAINERS = {
    "bugfix_sync": "sync",
    "bugfix_colocate_async": "colocate_async",
    "bugfix_separate_async": "separate_async",
}
"""``trainer.v1.trainer_mode`` of ours, and verl's mode that it builds on."""

ESTIMATORS: dict[str, Callable] = {"gigpo": gigpo, "potential": potential}
"""``algorithm.adv_estimator`` of ours; an estimator's keyword arguments are the keys of ``algorithm.credit``."""

GROUP_RELATIVE = frozenset(
    {"grpo", "grpo_vectorized", "grpo_passk", "rloo", "rloo_vectorized", "reinforce_plus_plus_baseline", "opo", "gpg"}
    | set(ESTIMATORS)
)
"""Estimators that compare the sessions of a group, and have nothing to say about a session alone."""


OVER_SESSIONS = ("grpo", *ESTIMATORS)
"""Estimators that compare sessions, whatever their number of rows; verl's others take each row for a session."""


def credit_settings(algorithm: DictConfig) -> dict[str, Any]:
    """``algorithm.credit`` as the estimator's keyword arguments.

    Raises:
        BadInput: An unknown key or a value out of range; a setting of verl's that these estimators do not read; or
            ``credit`` with an estimator that does not read it.
    """
    name, node = algorithm.adv_estimator, algorithm.get("credit")
    if not OmegaConf.is_dict(node) and node is not None:
        raise BadInput(f"algorithm.credit={node!r} must hold settings, e.g. algorithm.credit.gamma=0.95")
    node = OmegaConf.to_container(node, resolve=True) if node is not None else {}
    if name not in ESTIMATORS:
        if node:
            raise BadInput(
                f"algorithm.credit is set, but algorithm.adv_estimator={name} does not read it; remove it, or set "
                f"algorithm.adv_estimator to one of {', '.join(ESTIMATORS)}"
            )
        return {}
    known = list(inspect.signature(ESTIMATORS[name]).parameters)[1:]
    for key in node:
        if key not in known:
            raise BadInput(f"algorithm.credit.{key} is not a setting of {name}; known are: {', '.join(known)}")
    for key in ("gamma", "lam"):
        if algorithm.get(key, 1.0) != 1.0:
            instead = f"; set algorithm.credit.{key}, which is over turns" if key in known else ""
            raise BadInput(f"algorithm.{key}={algorithm[key]} is over tokens and not read by {name}{instead}")
    if not algorithm.get("norm_adv_by_std_in_grpo", True):
        raise BadInput(
            f"algorithm.norm_adv_by_std_in_grpo=false is read by grpo, not by {name}; leave it at true"
            + (" and set algorithm.credit.episode_norm" if "episode_norm" in known else "")
        )
    two = {"group": [0, 0], "session": [0, 1], "turn": [0, 0], "anchor": [0, 0], "reward": [0.0, 1.0]}
    try:  # the estimator checks its own ranges
        ESTIMATORS[name](TurnTable.from_columns(**two, potential=[0.0, 0.0], valid=[True, True]), **node)
    except BadInput as error:
        raise BadInput(str(error).replace("credit ", "algorithm.credit.", 1)) from None
    return node


def bypasses(algorithm: DictConfig) -> bool:
    """Whether the sampler's log-probs stand in for the trainer's (``rollout_correction.bypass_mode``)."""
    return bool(OmegaConf.select(algorithm, "rollout_correction.bypass_mode"))


def check_correction(config: DictConfig, bonus: bool) -> None:
    """Refuse settings of ``algorithm.rollout_correction`` that verl 0.9.1 would ignore or fail on after minutes.

    Args:
        config: The whole configuration.
        bonus: Whether the loss has an entropy bonus.
    """
    where, correction = "algorithm.rollout_correction", OmegaConf.select(config, "algorithm.rollout_correction")
    if correction is None:
        return
    weights, rejected = _check_weights_and_masks(where, correction)
    sampled = OmegaConf.select(config, "actor_rollout_ref.rollout.calculate_log_probs")
    if (weights or rejected) and sampled is False:
        raise BadInput(
            f"{where} corrects by the sampler's log-probs, without which verl skips it; set "
            "actor_rollout_ref.rollout.calculate_log_probs=true"
        )
    loss = config.actor_rollout_ref.actor.policy_loss
    if bypasses(config.algorithm) != (loss.loss_mode == "bypass_mode"):
        raise BadInput(
            f"{where}.bypass_mode={bypasses(config.algorithm)} with actor.policy_loss.loss_mode={loss.loss_mode}: verl "
            "ignores the one without the other; set both (loss_mode=bypass_mode) or neither"
        )
    if not bypasses(config.algorithm):
        if correction.get("loss_type", "ppo_clip") != "ppo_clip":
            raise BadInput(f"{where}.loss_type={correction.loss_type} is read with bypass_mode=true only; remove it")
        return
    if weights and correction.get("loss_type", "ppo_clip") == "ppo_clip":
        raise BadInput(
            f"{where}.rollout_is={weights} with bypass_mode=true and loss_type=ppo_clip: that loss corrects by its own "
            "ratio, and verl ignores the weights; set rollout_is=null, loss_type=reinforce, or bypass_mode=false"
        )
    if OmegaConf.select(loss, "rollout_correction.bypass_mode") is not True:
        raise BadInput(
            f"{where}.bypass_mode=true is applied in the loss, which reads it at another place; add "
            "+actor_rollout_ref.actor.policy_loss.rollout_correction=${algorithm.rollout_correction}"
        )
    if rejected and bonus:
        raise BadInput(
            f"{where}.rollout_rs with bypass_mode=true rejects tokens inside verl's loss, where the entropy bonus "
            "cannot see it; set bypass_mode=false, or train without the bonus"
        )


def _check_weights_and_masks(where: str, correction: DictConfig) -> tuple[str | None, str | None]:
    """``rollout_is`` and ``rollout_rs`` with their thresholds, as verl reads them minutes later."""
    weights, rejected = correction.get("rollout_is"), correction.get("rollout_rs")
    if weights not in (None, "token", "sequence"):
        raise BadInput(f"{where}.rollout_is={weights!r} must be null, token or sequence")
    if weights is None and correction.get("rollout_is_batch_normalize"):
        raise BadInput(f"{where}.rollout_is_batch_normalize=true needs {where}.rollout_is, token or sequence")
    if not rejected and correction.get("rollout_rs_threshold") is not None:
        raise BadInput(f"{where}.rollout_rs_threshold={correction.rollout_rs_threshold} needs {where}.rollout_rs")
    if not weights and not rejected:
        return weights, rejected
    from verl.trainer.ppo import rollout_corr_helper as verls

    options = [option.strip() for option in str(rejected or "").split(",") if option.strip()]
    for option in options:
        if option not in (known := verls.SUPPORTED_ROLLOUT_RS_OPTIONS):
            raise BadInput(f"{where}.rollout_rs={option!r} is not one of {', '.join(sorted(known))}")
    for name, value, wanted, parse in (
        ("rollout_is", weights, 'e.g. 2.0, or "0.5_5.0" for a band', verls._parse_rollout_is_threshold),
        (
            "rollout_rs",
            rejected,
            "one for each option",
            lambda given: verls._parse_rollout_rs_thresholds(options, given),
        ),
    ):
        if not value:
            continue
        if (threshold := correction.get(f"{name}_threshold", 2.0 if name == "rollout_is" else None)) is None:
            raise BadInput(f"{where}.{name}={value} needs {where}.{name}_threshold, {wanted}")
        try:
            parse(threshold)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{where}.{name}_threshold={threshold!r}: {error}") from None
    return weights, rejected


def check_segments(settings: ContextConfig, config: DictConfig) -> None:
    """Refuse what cannot work with sessions of several rows, or with sessions that weigh as one row.

    Raises:
        BadInput: Names the key, its value, and what to set.
    """
    estimator, manager = config.algorithm.adv_estimator, settings.manager
    if manager != "none" and estimator not in OVER_SESSIONS:
        raise BadInput(
            f"verl_ext.context.manager={manager} makes several rows of a session, each of which "
            f"algorithm.adv_estimator={estimator} takes for a session; use one of {', '.join(OVER_SESSIONS)}"
        )
    if settings.charges.any and estimator not in OVER_SESSIONS:
        raise BadInput(
            f"verl_ext.context.charges are rewards of turns, which algorithm.adv_estimator={estimator} does not read; "
            f"use one of {', '.join(OVER_SESSIONS)}"
        )
    if settings.segment_weighting != "session":
        return
    where, instead = "verl_ext.context.segment_weighting=session", "set verl_ext.context.segment_weighting=row"
    critic = OmegaConf.select(config, "critic.enable")
    if critic or (critic is None and estimator == "gae"):
        raise BadInput(f"{where} does not weigh the loss of a critic (algorithm.adv_estimator={estimator}); {instead}")
    if OmegaConf.select(config, "distillation.enabled"):
        raise BadInput(f"{where} replaces the loss that distillation.enabled=true needs; {instead}")
    actor = config.actor_rollout_ref.actor
    if (mode := actor.policy_loss.loss_mode) not in WEIGHABLE:
        raise BadInput(
            f"{where} weighs each token's loss, which actor_rollout_ref.actor.policy_loss.loss_mode={mode} does not "
            f"allow; {instead}, or loss_mode to one of {', '.join(sorted(WEIGHABLE))}"
        )
    check_scale(actor)
