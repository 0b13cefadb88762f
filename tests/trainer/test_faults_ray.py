"""Real actors that die, and a real TransferQueue's checkpoint that a run goes on from."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

pytest.importorskip("verl")
import ray
import torch
import transfer_queue as tq
from tensordict import NonTensorData, NonTensorStack
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.trainer_base import _count_tq_prompt_groups
from verl.utils import tensordict_utils as tu

from verl_ext.demo.plan import compose_recipe
from verl_ext.trainer.faults import drop_trained
from verl_ext.trainer.watch import Watch

pytestmark = pytest.mark.e2e


def kinds():
    """An actor asynchronous like verl's servers and loops, and one like its trainer workers. Made here, they travel by
    value, and their processes need not import this module."""

    class Asynchronous:
        async def pid(self):
            return os.getpid()

        async def block(self):
            time.sleep(600)

    class Plain:
        def pid(self):
            return os.getpid()

        def block(self):
            time.sleep(600)

    return Asynchronous, Plain


def test_the_dead_are_found_and_the_busy_are_not(cluster):
    names = ("rollout server", "agent-loop worker", "reward worker", "trainer worker")
    asynchronous, plain = kinds()
    of = dict(zip(names, (asynchronous, asynchronous, asynchronous, plain), strict=True))
    actors = {name: ray.remote(kind).options(num_cpus=0).remote() for name, kind in of.items()}
    pids = {name: ray.get(actor.pid.remote()) for name, actor in actors.items()}
    watch = Watch([*actors.items(), ("named twice", actors["rollout server"])])
    assert len(watch.actors) == 4 and watch.ask(5.0) == []
    stuck = [actors["agent-loop worker"].block.remote(), actors["trainer worker"].block.remote()]
    began = time.monotonic()
    assert watch.look() == [] and time.monotonic() - began < 1.0, "a look waits for nobody"

    assert watch.busy("trainer worker", 0.5) and not watch.busy("reward worker", 5.0)

    os.kill(pids["rollout server"], signal.SIGKILL)
    (dead,) = watch.ask(5.0)
    assert dead.kind == "rollout server" and f"Asynchronous, pid {pids['rollout server']} on node " in str(dead)
    assert "its worker process has died" in str(dead) and "\n" not in str(dead)
    os.kill(pids["agent-loop worker"], signal.SIGKILL)
    assert {one.kind for one in watch.ask(5.0)} == {"rollout server", "agent-loop worker"}
    assert set(watch.actors) == {actors["reward worker"]._actor_id, actors["trainer worker"]._actor_id}
    assert len(stuck) == 2
    for actor in actors.values():
        ray.kill(actor)


class Manager:
    """Takes what is handed to the agent loop."""

    def __init__(self):
        self.batches = []

    def generate_sequences(self, batch):
        self.batches.append(batch)

    @property
    def uids(self):
        return [uid for batch in self.batches for uid in list(batch["uid"])]


def prompts(uids: list[str]):
    columns = {
        "uid": uids,
        "index": list(range(len(uids))),
        "raw_prompt": [[{"role": "user", "content": f"repair {uid}"}] for uid in uids],
        "extra_info": [{"task": f"task {uid}"} for uid in uids],
    }
    batch = tu.get_tensordict({name: _objects(values) for name, values in columns.items()})
    tu.assign_non_tensor_data(batch, "global_steps", 2)
    return batch


def _objects(values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def rows(*keys: str) -> None:
    data = {"responses": torch.nested.as_nested_tensor([torch.ones(3) for _ in keys], layout=torch.jagged)}
    tags = [{"status": "success"} for _ in keys]
    tq.kv_batch_put(keys=list(keys), partition_id="train", tags=tags, fields=tu.get_tensordict(data))


def status(uid: str, word: str) -> None:
    tq.kv_put(key=uid, partition_id="train", tag={"status": word})


def async_trainer(manager: Manager):
    trainer = get_trainer_cls("bugfix_colocate_async")(
        compose_recipe("bugfix_colocate_async", "data.train_batch_size=2")
    )
    trainer.agent_loop_manager, trainer.global_steps = manager, 2
    return trainer


def test_prompts_under_way_are_issued_again_once_and_nothing_is_trained_twice(queue, tmp_path):
    """verl saves at the end of step 2, before it clears that step's rows; the run is killed and begun again."""
    trainer = async_trainer(Manager())
    uids = ["trained", "half", "waiting", "whole", "broken"]
    trainer._submit_batch_to_rollout(prompts(uids))
    for uid in uids[:2] + uids[3:]:
        status(uid, "running")
    rows("trained_0_0", "trained_1_0", "half_0_0", "whole_0_0", "whole_1_0")
    for uid in ("trained", "whole"):
        status(uid, "finished")
    status("broken", "failure")
    tq.kv_clear(keys=["trained"], partition_id="train")  # as a step does that takes its group
    # A death, not a kill: the groups that it made fail are to be run again.
    trainer._take_back_failed()
    tq.save_checkpoint(tmp_path / "transfer_queue")

    queue()
    tq.load_checkpoint(tmp_path / "transfer_queue")
    assert drop_trained() == 2 and drop_trained() == 0
    manager = Manager()
    trainer = async_trainer(manager)
    trainer.global_steps = 3
    trainer._restored_tq_prompt_count = _count_tq_prompt_groups()
    assert trainer._restored_tq_prompt_count == 4
    trainer._reissue_inflight_prompts()
    assert sorted(manager.uids) == ["broken", "half", "waiting"]
    (batch,) = manager.batches
    # As an agent-loop worker reads it (AgentLoopWorkerTQ.generate_sequences).
    columns = dict(batch.items())
    assert all(isinstance(value, torch.Tensor | NonTensorStack | NonTensorData) for value in columns.values())
    for i in range(3):
        assert columns["extra_info"][i].data == {"task": f"task {columns['uid'][i].data}"}
    left = tq.kv_list("train")["train"]
    assert sorted(left) == ["broken", "half", "waiting", "whole", "whole_0_0", "whole_1_0"]
    assert {left[uid]["status"] for uid in manager.uids} == {"pending"} and left["whole"]["status"] == "finished"

    # Four are there, two wanted ahead and two for the step: none more is handed out, and `whole` can be taken at once.
    trainer._add_prompts_to_generate = manager.batches.append
    trainer.config.data.gen_batch_size = 1
    trainer.on_train_begin()
    trainer.prepare_step()
    assert len(manager.batches) == 1
    taken, _ = trainer.replay_buffer.sample(global_steps=3, partition_id="train", batch_size=1)
    assert sorted(taken.keys) == ["whole_0_0", "whole_1_0"]
