"""Which trainers and turn-level estimators there are, and ``algorithm.credit`` checked. No verl, no Ray."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.credit import TurnTable, gigpo, potential
from verl_ext.types import BadInput

TRAINERS = {
    "bugfix_sync": "sync",
    "bugfix_colocate_async": "colocate_async",
    "bugfix_separate_async": "separate_async",
}
"""``trainer.v1.trainer_mode`` of ours, and verl's mode that it builds on."""

ESTIMATORS: dict[str, Callable] = {"gigpo": gigpo, "potential": potential}
"""``algorithm.adv_estimator`` of ours; an estimator's keyword arguments are the keys of ``algorithm.credit``."""


def credit_settings(algorithm: DictConfig) -> dict[str, Any]:
    """``algorithm.credit`` as the estimator's keyword arguments.

    Raises:
        BadInput: An unknown key or a value of the wrong type or range; a setting of verl's that these estimators do
            not read; or ``credit`` with an estimator that does not read it.
    """
    name = algorithm.adv_estimator
    node = OmegaConf.to_container(algorithm.credit, resolve=True) if algorithm.get("credit") is not None else {}
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
