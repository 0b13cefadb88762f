"""A session cut by a limit is treated alike in the synchronous and the asynchronous mode.

The same scripted sessions go through verl's agent-loop worker, a real TransferQueue, the reward manager, the mode's
own replay buffer and the trainer's own advantages.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("verl")
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils import tensordict_utils as tu

from tests.agent.test_loop import FIX, SUBMIT, TASK, TEST, WRONG, Script, closed_sandboxes, tokenizer
from verl_ext.demo.plan import compose_recipe
from verl_ext.gym.prompts import messages
from verl_ext.gym.tasks import task_to_json
from verl_ext.reward.manager import VerifierRewardManager

__all__ = ["closed_sandboxes", "tokenizer"]
pytestmark = pytest.mark.e2e

BABBLE = "x = 1 " * 200
SESSIONS = {
    "solved": [TEST, FIX, SUBMIT],
    "wrong": [WRONG, SUBMIT],
    "right but cut": [FIX, BABBLE],
    "wrong and cut": [TEST, BABBLE],
}
CUT = ("right but cut", "wrong and cut")
REWARDS = {
    "score": {"solved": 1.0, "wrong": 0.0, "right but cut": 1.0, "wrong and cut": 0.0},
    "mask": {"solved": 1.0, "wrong": 0.0, "right but cut": 1.0, "wrong and cut": 0.0},
    "mask out of the baseline": {"solved": 1.0, "wrong": 0.0},
    "zero": {"solved": 1.0, "wrong": 0.0, "right but cut": 0.0, "wrong and cut": 0.0},
}


def worker_of(config, tokenizer):
    """verl's agent-loop worker without its actor, whose model is a script a session."""
    kind = AgentLoopWorkerTQ.__ray_metadata__.modified_class
    worker = object.__new__(kind)
    manager = VerifierRewardManager(config, tokenizer)
    worker.__dict__.update(
        config=config,
        rollout_config=config.actor_rollout_ref.rollout,
        tokenizer=tokenizer,
        processor=None,
        hf_model_type="qwen2",
        dataset_cls=None,
        tools=[],
        mm_processor_kwargs={},
        distillation_enabled=False,
        background_tasks=set(),
        reward_loop_worker_handles=[SimpleNamespace(compute_score=SimpleNamespace(remote=manager.run_single))],
    )
    scripts = list(SESSIONS.values())

    async def run_agent_loop(sampling_params, *, session_id, **more):
        worker.llm_client = Script(tokenizer, scripts[session_id])  # taken before the first pause
        return await kind._run_agent_loop(worker, sampling_params, session_id=session_id, **more)

    worker._run_agent_loop = run_agent_loop
    return worker


async def trained(recipe: str, treatment: str, tokenizer) -> dict[str, dict[str, list[float]]]:
    """Mask, reward and advantages of each session, as the trainer has them before its update."""
    config = compose_recipe(
        recipe,
        f"actor_rollout_ref.rollout.n={len(SESSIONS)}",
        f"verl_ext.truncated={treatment.split()[0]}",
        f"+verl_ext.truncated_in_baseline={treatment != 'mask out of the baseline'}",
    )
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    trainer.global_steps, handed = 1, []
    trainer.agent_loop_manager = SimpleNamespace(generate_sequences=handed.append)
    row = {
        "uid": "group",
        "index": 0,
        "agent_name": "bugfix",
        "data_source": "bugfix/train",
        "raw_prompt": messages(TASK, "ops"),
        "extra_info": {"task": task_to_json(TASK)},
        "reward_model": {"ground_truth": TASK.task_id},
    }
    columns = {name: np.empty(1, dtype=object) for name in row}
    for name, value in row.items():
        columns[name][0] = value
    batch = tu.get_tensordict(columns)
    tu.assign_non_tensor_data(batch, "global_steps", 1)
    trainer._submit_batch_to_rollout(batch)

    worker = worker_of(config, tokenizer)
    await worker.generate_sequences(handed[0])
    await asyncio.gather(*worker.background_tasks)
    taken, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=1)
    read = {"keys": taken.keys, "partition_id": "train"}
    sampled = tq.kv_batch_get(**read, select_fields=["rollout_log_probs"])["rollout_log_probs"]
    old = TensorDict({"old_log_probs": sampled}, batch_size=len(taken.keys))
    tq.kv_batch_put(**read, fields=old)
    trainer._compute_advantage(taken, {})
    data = tq.kv_batch_get(**read, select_fields=["response_mask", "rm_scores", "advantages"])
    names = list(SESSIONS)
    found = {}
    for i, key in enumerate(taken.keys):
        columns = {name: data[name][i].tolist() for name in ("response_mask", "rm_scores", "advantages")}
        found[names[int(key.split("_")[1])]] = columns
    tq.kv_clear(keys=list(taken.keys), partition_id="train")
    return found


@pytest.mark.parametrize("treatment", REWARDS)
async def test_both_modes_give_the_same_masks_rewards_and_advantages(queue, tokenizer, treatment):
    sync = await trained("bugfix_grpo", treatment, tokenizer)
    separate = await trained("bugfix_fully_async", treatment, tokenizer)
    assert sync == separate

    rewards = {name: sum(columns["rm_scores"]) for name, columns in sync.items()}
    assert rewards == REWARDS[treatment]
    values = torch.tensor(list(REWARDS[treatment].values()))
    for name, columns in sync.items():
        mask = columns["response_mask"]
        assert (sum(mask) == 0) == (treatment == "mask" and name in CUT)
        advantage = (rewards[name] - values.mean()) / (values.std() + 1e-6)
        torch.testing.assert_close(torch.tensor(columns["advantages"]), advantage * torch.tensor(mask))
