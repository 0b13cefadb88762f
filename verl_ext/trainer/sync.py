"""``trainer.v1.trainer_mode=bugfix_sync``: verl's synchronous V1 trainer with session metrics."""

from __future__ import annotations

from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from verl_ext.trainer.faults import FaultMixin
from verl_ext.trainer.mixin import SessionTrainerMixin


@register_trainer("bugfix_sync")
class BugFixTrainerSync(SessionTrainerMixin, FaultMixin, PPOTrainerSync):
    """See :class:`verl_ext.trainer.mixin.SessionTrainerMixin` and :class:`verl_ext.trainer.faults.FaultMixin`."""

    base_mode = "sync"
