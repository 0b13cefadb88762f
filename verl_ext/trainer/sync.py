"""``trainer.v1.trainer_mode=bugfix_sync``: verl's synchronous V1 trainer with session metrics."""

from __future__ import annotations

from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from verl_ext.trainer.mixin import SessionTrainerMixin


@register_trainer("bugfix_sync")
class BugFixTrainerSync(SessionTrainerMixin, PPOTrainerSync):
    """See :class:`verl_ext.trainer.mixin.SessionTrainerMixin`."""

    base_mode = "sync"
