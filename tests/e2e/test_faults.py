"""One asynchronous run in which the trainer is killed in the middle of a step, and later its rollout server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.conftest import PROMPTS, SESSIONS, Run, Training, last_words

OVERRIDES = (
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "trainer.total_training_steps=50",
    "trainer.save_freq=1",
    "trainer.test_freq=-1",
    "verl_ext.watch_s=2.0",
)


@pytest.fixture(scope="module")
def broken(tasks_dir, model_dir) -> tuple[Run, int, int]:
    """The run, the step it went on from, and that of its last checkpoint."""
    folder = tasks_dir.parent / "faults"
    folder.mkdir()
    run = Run(folder, model_dir, tasks_dir)
    tracker = folder / "checkpoints" / "latest_checkpointed_iteration.txt"

    def start(attempt: int) -> Training:
        return Training(run, attempt, *OVERRIDES, recipe="bugfix_fully_async")

    def done(training: Training, step: int) -> Callable[[], bool]:
        return lambda: step in training.steps() and tracker.is_file()

    first = start(1)
    first.wait_for(done(first, 1), "step 1 with its checkpoint")
    time.sleep(1.0)  # into step 2
    first.kill()
    went_on = int(tracker.read_text())

    second = start(2)
    second.wait_for(done(second, went_on + 2), "two steps after the restart")
    second.dies_of("vLLMHttpServer")
    run.logs = [first.log.read_text(errors="replace"), second.log.read_text(errors="replace")]
    run.read()
    return run, went_on, int(tracker.read_text())


def test_prompts_under_way_are_issued_again_and_none_is_trained_twice(broken):
    run, went_on, _ = broken
    last = went_on + 2  # the step after it may have ended without its dump
    assert f"setting global step to {went_on}" in run.logs[1]
    # Those handed out ahead, no more and no fewer, some of them finished before the kill.
    assert f"Restored {PROMPTS} training prompt groups" in run.logs[1]
    assert "warmup prompts after restoring" not in run.logs[1]
    trained = {step: {row["key"].split("_")[0] for row in rows} for step, rows in run.sessions.items() if step <= last}
    assert sorted(trained) == list(range(1, last + 1))
    assert all(len(uids) == PROMPTS for uids in trained.values())
    assert max(Counter(uid for uids in trained.values() for uid in uids).values()) == 1
    for step, rows in run.sessions.items():
        assert len({row["key"] for row in rows}) == len(rows) <= PROMPTS * SESSIONS, f"step {step}"
    # The data loader went on where it was: of an epoch, no task twice.
    tasks = Counter(rows[0]["task_id"] for rows in _groups(run, last))
    epochs = -(-PROMPTS * (last + 1) // 24)
    assert max(tasks.values()) <= epochs


def _groups(run: Run, last: int):
    for step in range(1, last + 1):
        groups = {}
        for row in run.sessions[step]:
            groups.setdefault(row["key"].split("_")[0], []).append(row)
        yield from groups.values()


def test_a_dead_rollout_server_ends_the_run_with_one_line_and_a_checkpoint(broken):
    run, went_on, last = broken
    folder = run.folder / "checkpoints" / f"global_step_{last}"
    assert last >= went_on + 2
    line = last_words(run.logs[1])
    assert line.startswith("error: rollout server died (vLLMHttpServer, pid ")
    assert line.endswith(f"the same command goes on from step {last} in {folder}")
    for part in ("actor/model_world_size_1_rank_0.pt", "data.pt", "transfer_queue/metadata.json"):
        assert (folder / part).is_file(), part
    assert [path.name for path in folder.parent.glob("global_step_*")] == [folder.name]
