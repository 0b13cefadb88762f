"""A registered trainer keeps what verl decides by the name of the mode: replay buffer, parameter sync, hooks."""

from __future__ import annotations

import pytest

pytest.importorskip("verl")
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from verl_ext.demo.plan import compose_recipe
from verl_ext.trainer.settings import TRAINERS

ASYNC = [
    "trainer.v1.separate_async.parameter_sync_step=4",
    "data.train_batch_size=16",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.n_gpus_per_node=1",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
]


@pytest.mark.parametrize(("name", "base"), TRAINERS.items())
def test_a_trainer_of_ours_answers_as_its_base_mode(name, base):
    more = ASYNC if base == "separate_async" else []
    config = compose_recipe("bugfix_gigpo", f"trainer.v1.trainer_mode={name}", *more)
    trainer = get_trainer_cls(name)(config)
    plain = get_trainer_cls(base)
    assert isinstance(trainer, plain) and trainer.trainer_mode == base
    assert type(trainer.replay_buffer) is (ReplayBuffer if base == "sync" else ReplayBufferAsync)
    assert trainer.replay_buffer.trainer_mode == base
    assert trainer.replay_buffer.poll_interval == 0.1  # verl's are 2 s
    assert trainer.parameter_sync_step == (4 if base == "separate_async" else 1)
    hooks = ("on_init_end", "on_train_begin", "on_sample_end", "on_step_end")
    assert all(getattr(type(trainer), hook) is getattr(plain, hook) for hook in hooks)
