"""``trainer.v1.trainer_mode=bugfix_colocate_async``: verl's asynchronous V1 trainer on shared devices."""

from __future__ import annotations

from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync

from verl_ext.trainer.faults import FaultMixin
from verl_ext.trainer.mixin import SessionTrainerMixin


@register_trainer("bugfix_colocate_async")
class BugFixTrainerColocateAsync(SessionTrainerMixin, FaultMixin, PPOTrainerColocateAsync):
    """See :class:`verl_ext.trainer.mixin.SessionTrainerMixin` and :class:`verl_ext.trainer.faults.FaultMixin`."""

    base_mode = "colocate_async"
