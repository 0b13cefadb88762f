"""``algorithm.adv_estimator: gigpo | potential`` in verl's registry, and how turn data reaches them.

verl hands an estimator padded rewards, a mask and its configuration, no turns. A trainer of ours lays the batch's turns
out beside the call (:func:`turns_at_hand`); the rest of verl's advantage step, such as a KL penalty in the reward or
rejection by rollout correction, works as for any estimator. ``returns`` are the advantages, as verl has it for GRPO.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from verl_ext.trainer.settings import ESTIMATORS, TRAINERS
from verl_ext.trainer.turns import Row, place, turn_table
from verl_ext.types import BadInput


@dataclass
class Turns:
    """The batch's turns while its advantages are computed, and the estimator's settings; it fills ``metrics``."""

    rows: Sequence[Row]
    verdicts_RL: torch.Tensor
    settings: Mapping[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)


_at_hand: ContextVar[Turns | None] = ContextVar("turns", default=None)


@contextmanager
def turns_at_hand(turns: Turns) -> Iterator[Turns]:
    """Lay ``turns`` out for the estimator that verl calls inside."""
    token = _at_hand.set(turns)
    try:
        yield turns
    finally:
        _at_hand.reset(token)


def _register(name: str) -> None:
    @register_adv_est(name)
    def estimate(
        token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        turns = _at_hand.get()
        if turns is None:
            raise BadInput(
                f"algorithm.adv_estimator={name} needs a trainer that hands it turns; run verl.trainer.main_ppo and "
                f"set trainer.v1.trainer_mode to one of {', '.join(TRAINERS)}"
            )
        table = turn_table(turns.rows, token_level_rewards, turns.verdicts_RL)
        advantages_T, statistics = ESTIMATORS[name](table, **turns.settings)
        # Shares, since verl averages metrics over the updates of a step.
        found = {key: float(value) for key, value in asdict(statistics).items() if key != "shared_turns"}
        groups = found.pop("groups") or 1.0
        turns.metrics["session/groups_of_one"] = found.pop("lone_groups") / groups
        turns.metrics["credit/degenerate_groups"] = found.pop("degenerate_groups") / groups
        turns.metrics.update({f"credit/{key}": value for key, value in found.items()})
        advantages = place(turns.rows, advantages_T, response_mask)
        return advantages, advantages


for _name in ESTIMATORS:
    _register(_name)
