"""What a trainer of ours keeps when the disk is full or somebody dies. The trainers and their saving are verl's; worker
groups, data loader and TransferQueue's checkpoint are stand-ins that write real files."""

from __future__ import annotations

import errno
import resource
import subprocess
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
import ray
import torch

pytest.importorskip("verl")
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1 import trainer_base as verl_trainer

from tests.trainer.recipes import composed
from verl_ext.trainer import saving
from verl_ext.trainer.saving import TRACKER, folder_of
from verl_ext.trainer.watch import Death, RunEnded, Stall, death, stalled


class Group:
    """A worker group whose ``save_checkpoint`` writes ``numbers`` floats, or fails."""

    world_size = 1
    workers = ()

    def __init__(self):
        self.numbers, self.error, self.seen = 1000, None, []

    def save_checkpoint(self, path, remote, step, max_ckpt_to_keep):
        self.seen.append(max_ckpt_to_keep)
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "begun").touch()
        if self.error:
            raise self.error
        torch.save(torch.zeros(self.numbers), folder / "model.pt")


class Loader:
    def __init__(self):
        self.fetched = 0

    def state_dict(self):
        return {"fetched": self.fetched}


composed_once = cache(composed)


def trainer_in(root: Path, recipe: str, monkeypatch):
    config = deepcopy(composed_once(recipe))
    config.trainer.default_local_dir = str(root)
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    trainer.actor_rollout_wg, trainer.train_dataloader = Group(), Loader()

    def save_queue(folder, metadata):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "metadata.json").write_text("{}")

    monkeypatch.setattr(verl_trainer.tq, "save_checkpoint", save_queue)
    monkeypatch.setattr("verl_ext.trainer.faults.tq.kv_list", lambda partition_id: {})
    return trainer


@pytest.fixture(params=["bugfix_grpo", "bugfix_colocate_async"])
def trainer(request, tmp_path, monkeypatch):
    return trainer_in(tmp_path / "run" / "checkpoints", request.param, monkeypatch)


def save(trainer, step: int) -> None:
    trainer.global_steps = step
    trainer._save_checkpoint()


def kept(trainer) -> list[str]:
    return sorted(path.name for path in trainer._root.iterdir())


def refuse(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_old_checkpoint_goes_when_the_tracker_names_the_new_one(trainer, monkeypatch):
    """verl deletes it as soon as the actor is written: with ``max_actor_ckpt_to_keep=1`` a run that is killed between
    that and the tracker has nothing to go on from."""
    save(trainer, 2)
    there = []
    inner = torch.save

    def spy(value, path):
        if Path(path).name == "data.pt":
            there.append((folder_of(trainer._root, 2) / "actor" / "model.pt").is_file())
        inner(value, path)

    monkeypatch.setattr(torch, "save", spy)
    save(trainer, 4)
    assert there == [True] and trainer.actor_rollout_wg.seen == [None, None]
    assert kept(trainer) == ["global_step_4", TRACKER] and saving.read_tracker(trainer._root) == 4
    assert trainer.config.trainer.max_actor_ckpt_to_keep == 1


def test_more_than_one_are_kept_and_room_is_made_before_as_verl_does(trainer):
    trainer.config.trainer.max_actor_ckpt_to_keep = 2
    for step in (1, 2, 3, 4):
        save(trainer, step)
    assert kept(trainer) == ["global_step_3", "global_step_4", TRACKER]
    trainer.config.trainer.max_actor_ckpt_to_keep = None
    save(trainer, 5)
    assert len(kept(trainer)) == 4


def test_a_full_disk_keeps_the_last_good_checkpoint_and_the_next_save_works(trainer, monkeypatch, caplog):
    save(trainer, 2)
    before = (folder_of(trainer._root, 2) / "actor" / "model.pt").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", refuse)
        save(trainer, 4)
    assert kept(trainer) == ["global_step_2", TRACKER] and saving.read_tracker(trainer._root) == 2
    assert (folder_of(trainer._root, 2) / "actor" / "model.pt").read_bytes() == before
    (line,) = [record.getMessage() for record in caplog.records if "could not be saved" in record.getMessage()]
    assert "step 4 could not be saved: No space left on device; training goes on" in line and "step 2" in line
    save(trainer, 6)
    assert kept(trainer) == ["global_step_6", TRACKER] and trainer._unsaved is None


def test_a_write_that_fails_in_a_worker_is_no_different(trainer):
    save(trainer, 2)
    cause = RuntimeError("[enforce fail at inline_container.cc:672] . PytorchStreamWriter failed writing file data/0")
    trainer.actor_rollout_wg.error = ray.exceptions.RayTaskError("save_checkpoint", "traceback", cause)
    save(trainer, 4)
    assert kept(trainer) == ["global_step_2", TRACKER]
    trainer.actor_rollout_wg.error = ray.exceptions.RayTaskError("save_checkpoint", "traceback", KeyError("optimizer"))
    with pytest.raises(ray.exceptions.RayTaskError):
        save(trainer, 6)


def test_with_several_ranks_a_failure_in_the_middle_ends_the_run(trainer, monkeypatch):
    """The others wait at a barrier for the rank that failed. What is known not to fit is not begun, and training goes
    on."""
    save(trainer, 2)
    trainer.actor_rollout_wg.world_size = 2
    trainer.actor_rollout_wg.error = OSError(errno.EDQUOT, "Disk quota exceeded")
    with pytest.raises(
        RunEnded, match=r"^step 4 could not be saved: Disk quota exceeded; the same command goes on from"
    ):
        save(trainer, 4)
    assert kept(trainer) == ["global_step_2", TRACKER]
    begun = len(trainer.actor_rollout_wg.seen)
    monkeypatch.setattr(saving.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100}))
    save(trainer, 4)
    assert len(trainer.actor_rollout_wg.seen) == begun and "MiB needed" in trainer._unsaved


def test_what_comes_after_a_whole_checkpoint_is_no_failure_to_save(trainer):
    class Upload:
        def on_save(self, **_):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    trainer.checkpoint_callback = Upload()
    with pytest.raises(ConnectionRefusedError):
        save(trainer, 2)
    assert kept(trainer) == ["global_step_2", TRACKER] and saving.read_tracker(trainer._root) == 2


def test_a_checkpoint_of_another_run_stays_named(trainer, monkeypatch):
    save(trainer, 10)
    trainer._saved = []  # a run that began anew in the same folder
    monkeypatch.setattr(torch, "save", refuse)
    save(trainer, 2)
    assert saving.read_tracker(trainer._root) == 10 and kept(trainer) == ["global_step_10", TRACKER]


def test_a_file_that_may_not_grow(trainer):
    """A real failure of ``torch.save``: the process may write no file of more than 64 KiB."""
    save(trainer, 2)
    trainer.actor_rollout_wg.numbers = 100_000
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        save(trainer, 4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert kept(trainer) == ["global_step_2", TRACKER] and trainer._unsaved.startswith("step 4 could not be saved")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB."""
    where = tmp_path / "disk"
    where.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(where)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_file_system_that_is_really_full(small_disk, monkeypatch):
    trainer = trainer_in(small_disk / "checkpoints", "bugfix_colocate_async", monkeypatch)
    trainer.actor_rollout_wg.numbers = 100_000  # 0.4 MB
    save(trainer, 1)
    trainer.actor_rollout_wg.numbers = 600_000  # 2.4 MB: begun, since the last one would fit
    save(trainer, 2)
    assert len(trainer.actor_rollout_wg.seen) == 2 and trainer._unsaved
    assert kept(trainer) == ["global_step_1", TRACKER] and saving.read_tracker(trainer._root) == 1
    (small_disk / "other").write_bytes(b"0" * 1_400_000)
    trainer.actor_rollout_wg.numbers = 100_000
    save(trainer, 3)
    assert len(trainer.actor_rollout_wg.seen) == 2, "what cannot fit is not begun"
    (small_disk / "other").unlink()
    save(trainer, 4)
    assert kept(trainer) == ["global_step_4", TRACKER]
    assert len(torch.load(folder_of(trainer._root, 4) / "actor" / "model.pt")) == 100_000


@pytest.mark.parametrize(("text", "step"), [("", 4), ("2", 2), ("4", 4)])
def test_a_tracker_that_was_cut_names_the_newest_checkpoint(tmp_path, text, step):
    """verl truncates the file before it writes the number, after all else is written."""
    for one in (2, 4):
        folder_of(tmp_path, one).mkdir()
    (tmp_path / TRACKER).write_text(text)
    saving.mend_tracker(tmp_path)
    assert saving.read_tracker(tmp_path) == step
    saving.mend_tracker(tmp_path / "nowhere")


# ------------------------------ the end of a run ------------------------------


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
