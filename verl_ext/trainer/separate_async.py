"""``trainer.v1.trainer_mode=bugfix_separate_async``: verl's asynchronous V1 trainer with a separate rollout."""

from __future__ import annotations

from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

from verl_ext.trainer.faults import FaultMixin
from verl_ext.trainer.mixin import SessionTrainerMixin


@register_trainer("bugfix_separate_async")
class BugFixTrainerSeparateAsync(SessionTrainerMixin, FaultMixin, PPOTrainerSeparateAsync):
    """See :class:`verl_ext.trainer.mixin.SessionTrainerMixin` and :class:`verl_ext.trainer.faults.FaultMixin`."""

    base_mode = "separate_async"
