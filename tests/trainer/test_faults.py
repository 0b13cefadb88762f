"""What a trainer of ours says and keeps when somebody dies: see :mod:`tests.trainer.checkpoints` for what is verl's."""

from __future__ import annotations

import errno

import pytest
import ray
import torch

pytest.importorskip("verl")
from verl.trainer.ppo.v1 import trainer_base as verl_trainer

from tests.trainer.checkpoints import kept, save, trainer_in
from verl_ext.trainer.saving import TRACKER, folder_of
from verl_ext.trainer.watch import Death, RunEnded, Stall, death, stalled


class Watched:
    hangs = False

    def __init__(self, *dead: Death):
        self.dead = list(dead)

    def look(self, timeout_s=0.0):
        return self.dead

    ask = look

    def busy(self, kind, timeout_s):
        return self.hangs


SERVER = Death("rollout server", "vLLMHttpServer, pid 7 on node 10.0.0.2", "its worker process has died")


def ends_in(trainer, monkeypatch, error: Exception | None, *dead: Death, in_step: bool = True) -> str:
    """Run ``fit`` with a loop of verl's that finishes step 3 and, in step 4, raises ``error``."""

    def step(self, metrics, timing_raw):
        self.train_dataloader.fetched += 16
        if self.global_steps == 4 and error:
            raise error

    def fit(self, agent_loop_manager):
        for self.global_steps in (3, 4):
            self.step({}, {})

    monkeypatch.setattr(verl_trainer.PPOTrainer, "step", step)
    monkeypatch.setattr(verl_trainer.PPOTrainer, "fit", fit)
    monkeypatch.setattr("verl_ext.trainer.faults.Watch", lambda actors: Watched(*dead))
    with pytest.raises(RunEnded) as ended:
        trainer.fit(None)
    text = str(ended.value)
    assert "\n" not in text
    return text


def test_a_death_saves_the_last_finished_step_and_says_how_to_go_on(trainer, monkeypatch):
    """Whatever the loop stumbled over: here a call of the dead actor."""
    save(trainer, 2)
    text = ends_in(trainer, monkeypatch, ray.exceptions.ActorDiedError(), SERVER)
    assert text.startswith(
        "rollout server died (vLLMHttpServer, pid 7 on node 10.0.0.2: its worker process has died); "
    )
    assert text.endswith(f"the same command goes on from step 3 in {folder_of(trainer._root, 3)}")
    assert kept(trainer) == ["global_step_3", TRACKER] and trainer.global_steps == 4
    # In the synchronous mode the step that was cut is begun again, with the same prompts.
    fetched = torch.load(folder_of(trainer._root, 3) / "data.pt")["fetched"]
    assert fetched == (16 if trainer.trainer_mode == "sync" else 32)


def test_an_error_without_a_death_stays_what_it_is(trainer, monkeypatch):
    monkeypatch.setattr(verl_trainer.PPOTrainer, "fit", lambda *_: (_ for _ in ()).throw(KeyError("a fault of ours")))
    monkeypatch.setattr("verl_ext.trainer.faults.Watch", lambda actors: Watched())
    with pytest.raises(KeyError):
        trainer.fit(None)


def test_without_saving_nothing_is_saved_at_the_end_either(trainer, monkeypatch):
    trainer.config.trainer.save_freq = -1
    text = ends_in(trainer, monkeypatch, RuntimeError("terminal groups with no materializable trajectories"), SERVER)
    assert text.endswith("no checkpoint was saved (trainer.save_freq=-1)") and not trainer._root.exists()


def test_a_dead_trainer_cannot_save(trainer, monkeypatch):
    save(trainer, 2)
    dead = Death("trainer worker", "ActorRolloutRefWorker, pid 8 on node 10.0.0.1", "its node has died")
    text = ends_in(trainer, monkeypatch, ray.exceptions.ActorDiedError(), dead)
    assert "goes on from step 2" in text and kept(trainer) == ["global_step_2", TRACKER]


def test_a_trainer_that_hangs_on_the_dead_is_not_waited_for(trainer, monkeypatch):
    """A worker that sends weights to a dead server may do so until its backend's time-out."""
    save(trainer, 2)
    monkeypatch.setattr(Watched, "hangs", True)
    text = ends_in(trainer, monkeypatch, ray.exceptions.ActorDiedError(), SERVER)
    assert "step 3 cannot be saved: a trainer worker is dead or does not answer; the same command goes on" in text
    assert kept(trainer) == ["global_step_2", TRACKER]


def test_a_save_at_the_end_that_fails_is_said_too(trainer, monkeypatch):
    save(trainer, 2)
    trainer.actor_rollout_wg.error = OSError(errno.ENOSPC, "No space left on device")
    text = ends_in(trainer, monkeypatch, ray.exceptions.ActorDiedError(), SERVER)
    assert "step 3 could not be saved: No space left on device; the same command goes on from step 2" in text


def test_a_run_whose_last_save_failed_ends_as_failed(trainer, monkeypatch):
    save(trainer, 2)
    trainer._unsaved = "step 4 could not be saved: No space left on device"
    text = ends_in(trainer, monkeypatch, None)
    assert text.startswith("step 4 could not be saved: No space left on device; the same command goes on from step 2")


# ------------------------------ looks ------------------------------


def poll(trainer, monkeypatch, tags: dict[str, dict]) -> None:
    monkeypatch.setattr("verl.trainer.ppo.v1.replay_buffer.tq.kv_list", lambda: {"train": tags})
    trainer.replay_buffer._sync_metadata_from_transfer_queue()


def prompt(status: str) -> dict:
    return {"is_prompt": True, "status": status, "global_steps": 3}


def test_a_failed_group_asks_at_once_who_is_dead(trainer, monkeypatch):
    """verl replaces failed groups without a pause: prompt after prompt would be used up until the next regular look."""
    asked = []

    class Asked(Watched):
        def ask(self, timeout_s):
            asked.append(timeout_s)
            return self.dead

    trainer._watch, trainer._next_look = Asked(), float("inf")
    poll(trainer, monkeypatch, {"a": prompt("running")})
    poll(trainer, monkeypatch, {"a": prompt("failure")})
    poll(trainer, monkeypatch, {"a": prompt("failure")})
    assert len(asked) == 1
    trainer._watch.dead.append(SERVER)
    with pytest.raises(RuntimeError):
        poll(trainer, monkeypatch, {"b": prompt("failure")})


def test_a_stall_ends_the_run_and_names_the_prompts_that_wait(trainer, monkeypatch):
    now = [0.0]
    trainer._watch, trainer._stall.clock = Watched(), lambda: now[0]
    monkeypatch.setattr("verl_ext.trainer.faults.time.monotonic", lambda: now[0])
    limit = trainer.ours.stall_s + trainer.ours.wall_clock_s
    assert limit == 900
    tags = {"a": prompt("running"), "b": prompt("pending"), "c": prompt("failure"), "a_0_0": {"status": "success"}}
    for now[0] in range(0, 900, 30):
        poll(trainer, monkeypatch, tags)
    tags["a_1_0"] = {"status": "success"}  # somebody finished
    for now[0] in range(900, 1800, 30):
        poll(trainer, monkeypatch, tags)
    with pytest.raises(RuntimeError) as stall:
        for now[0] in range(1800, 1900, 30):
            poll(trainer, monkeypatch, tags)
    assert "2 prompts wait: b (pending since step 3), a (running since step 3); 1 groups failed" in str(stall.value)


def test_time_in_which_the_trainer_did_something_else_is_no_stall():
    now = [0.0]
    stall = Stall(900.0, 60.0, clock=lambda: now[0])
    assert not stall.look({"a"})
    for now[0] in (5000.0, 10000.0):  # two long updates between the looks
        assert not stall.look({"a"})
    assert stall.waited == 120.0
    assert not Stall(0.0, 60.0, clock=lambda: 1e9).look(set())
    assert stalled(900.0, [], 0) == "no session finished for 900 s; no prompt is under way"


def test_the_cause_of_a_death_is_read_from_rays_text():
    text = (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: AgentLoopWorkerTQ\n\tactor_id: 2f\n"
        "\tpid: 7468\n\tname: agent_loop_worker_0\n\tnamespace: 1d\n\tip: 192.0.2.2\nThe actor is dead because its "
        "worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits."
    )
    error = ray.exceptions.ActorDiedError()
    error.error_msg = text
    error.args = (text,)
    found = str(death("agent-loop worker", error))
    assert found == (
        "agent-loop worker died (AgentLoopWorkerTQ, pid 7468 on node 192.0.2.2: its worker process has died, "
        "SYSTEM_ERROR)"
    )
    assert "\n" not in str(death("reward worker", ray.exceptions.ActorDiedError()))


# ------------------------------ prompts that a checkpoint brings back ------------------------------


@pytest.mark.parametrize(("restored", "added"), [(0, [8, "batch"]), (8, ["batch"]), (16, []), (14, [2]), (10, [6])])
def test_a_checkpoint_from_the_middle_of_a_step_brings_that_steps_batch(tmp_path, monkeypatch, restored, added):
    """Eight are wanted ahead and eight for the step. Without this every later step had a batch too many ahead."""
    trainer = trainer_in(tmp_path, "bugfix_colocate_async", monkeypatch)
    trainer.config.data.train_batch_size = 8
    trainer.config.data.gen_batch_size = 1
    trainer._restored_tq_prompt_count = restored
    done = []
    monkeypatch.setattr(trainer, "_add_prompts_to_generate", done.append)
    monkeypatch.setattr(verl_trainer.PPOTrainer, "_add_batch_to_generate", lambda self: done.append("batch"))
    trainer.on_train_begin()
    trainer.prepare_step()
    assert done == added
    trainer.prepare_step()
    assert done == [*added, "batch"]
