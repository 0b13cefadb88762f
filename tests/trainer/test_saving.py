"""What stays on the disk when it is full, or a write fails: see :mod:`tests.trainer.checkpoints` for what is verl's."""

from __future__ import annotations

import errno
import resource
import subprocess
from pathlib import Path

import pytest
import ray
import torch

pytest.importorskip("verl")

from tests.trainer.checkpoints import kept, refuse, save, trainer_in
from verl_ext.trainer import saving
from verl_ext.trainer.saving import TRACKER, folder_of
from verl_ext.trainer.watch import RunEnded


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
