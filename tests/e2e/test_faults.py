"""One fully asynchronous run with turn-level credit in which one thing after the other breaks: the trainer is killed in
the middle of a step, a checkpoint cannot be written, the engine hangs, and at last the rollout server dies."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import pytest

from tests.e2e.conftest import PROMPTS, SESSIONS, Run, Training, last_words, on_tokens, turns_of
from verl_ext.credit import TurnTable, gigpo
from verl_ext.trainer.saving import read_tracker

LARGEST_AGE = 2
WALL_CLOCK_S = 20.0
CREDIT = {"gamma": 0.95, "episode_norm": "mean_std", "step_norm": "mean", "std_floor": 1e-6}
OVERRIDES = (
    "algorithm.adv_estimator=gigpo",
    f"+algorithm.credit={{{', '.join(f'{name}: {value}' for name, value in CREDIT.items())}}}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "trainer.total_training_steps=50",
    "trainer.save_freq=1",
    "trainer.test_freq=-1",
    "verl_ext.watch_s=2.0",
    f"verl_ext.wall_clock_s={WALL_CLOCK_S}",
)


@dataclass
class Broken(Run):
    """The run.

    Attributes:
        went_on: Step of the checkpoint that the second attempt goes on from.
        refused: Steps that the tracker named before and after a save that failed.
        before_hang: The last step before the engine was stopped.
        last: Step of the last checkpoint.
    """

    went_on: int = 0
    refused: tuple[int, int] = (0, 0)
    before_hang: int = 0
    last: int = 0

    @property
    def tracked(self) -> int:
        """The step that the tracker names now; 0 without one."""
        return read_tracker(self.folder / "checkpoints") or 0  # None, too, for the moment in which verl writes it


@pytest.fixture(scope="module")
def broken(tasks_dir, model_dir) -> Broken:
    run = Broken(tasks_dir.parent / "faults", model_dir, tasks_dir)
    run.folder.mkdir()

    def start(attempt: int) -> Training:
        return Training(run, attempt, *OVERRIDES, recipe="bugfix_fully_async")

    def done(training: Training, step: int) -> Callable[[], bool]:
        return lambda: step in training.steps() and run.tracked > 0

    first = start(1)
    first.wait_for(done(first, 1), "step 1 with its checkpoint")
    time.sleep(1.0)  # into step 2
    first.kill()
    run.went_on = run.tracked

    second = start(2)
    second.wait_for(done(second, run.went_on + 2), "two steps after the restart")
    run.refused = refuse_a_checkpoint(second, run)
    run.before_hang = hang(second, run)
    second.dies_of("vLLMHttpServer")
    run.last = run.tracked
    run.logs = [first.log.read_text(errors="replace"), second.log.read_text(errors="replace")]
    run.read()
    return run


def refuse_a_checkpoint(training: Training, run: Broken) -> tuple[int, int]:
    """The trainer's worker may write no file as large as the model's, as with a quota, until a save has failed; then
    waits for one that works. Returns the steps that the tracker named at the beginning and after the failure."""
    worker = training.find("ray::WorkerDict")
    limits = worker.rlimit(psutil.RLIMIT_FSIZE)
    worker.rlimit(psutil.RLIMIT_FSIZE, (1 << 20, limits[1]))
    before = run.tracked
    training.wait_for(lambda: b"could not be saved" in training.log.read_bytes(), "a save that fails")
    after = run.tracked
    worker.rlimit(psutil.RLIMIT_FSIZE, limits)
    training.wait_for(lambda: run.tracked > after, "a save that works again")
    return before, after


def hang(training: Training, run: Broken) -> int:
    """Stop the engine until sessions have waited for it longer than they may, and go on for two steps; once more where
    none was under way just then. Returns the step that was the last one before."""
    engine, before = training.find("VLLM::EngineCore"), max(training.steps())
    for _ in range(3):
        time.sleep(2.0)  # into a step, past the sending of weights
        engine.suspend()
        time.sleep(1.5 * WALL_CLOCK_S)  # sessions of before, and those that begin soon
        engine.resume()
        step = max(training.steps())
        training.wait_for(lambda step=step: max(training.steps()) > step + 1, "two more steps")
        run.read()
        if stops(run, before)["wall_clock"]:
            break
    return before


def stops(run: Run, after: int = 0) -> Counter[str]:
    """Why the sessions of the steps after this one ended."""
    return Counter(row["session"]["stop"] for step, rows in run.sessions.items() if step > after for row in rows)


def test_prompts_under_way_are_issued_again_and_none_is_trained_twice(broken):
    run, went_on = broken, broken.went_on
    last = went_on + 2
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
    run, went_on, last = broken, broken.went_on, broken.last
    folder = run.folder / "checkpoints" / f"global_step_{last}"
    assert last >= went_on + 2
    line = last_words(run.logs[1])
    assert line.startswith("error: rollout server died (vLLMHttpServer, pid ")
    assert line.endswith(f"the same command goes on from step {last} in {folder}")
    for part in ("actor/model_world_size_1_rank_0.pt", "data.pt", "transfer_queue/metadata.json"):
        assert (folder / part).is_file(), part
    assert [path.name for path in folder.parent.glob("global_step_*")] == [folder.name]


def complete(run: Run) -> list[int]:
    """Steps with metrics; the one after them may have ended without all of its dump."""
    return sorted(run.metrics)


def test_turns_have_the_advantages_of_gigpo(broken):
    several = 0
    for step in complete(broken):
        rows = broken.sessions[step]
        groups, names, rewards, records = zip(*turns_of(rows), strict=True)
        columns = ([record[name] for record in records] for name in ("index", "anchor"))
        table = TurnTable.from_columns(groups, names, *columns, rewards)
        assert on_tokens(rows) == pytest.approx(gigpo(table, **CREDIT)[0].tolist(), abs=1e-4)
        several += sum(len({row["advantages"][turn["start"]] for turn in row["session"]["turns"]}) > 1 for row in rows)
    assert several > PROMPTS, "every session has one advantage: no turn-level credit to speak of"


def test_no_turn_is_older_than_the_recipe_says_and_the_metrics_count_alike(broken):
    seen = set()
    for step in complete(broken):
        turns = [turn for row in broken.sessions[step] for turn in row["session"]["turns"]]
        ages = [step - 1 - min(turn["versions"]) for turn in turns]
        assert min(ages) >= 0 and max(ages) <= LARGEST_AGE, f"step {step}"
        assert broken.metrics[step]["staleness/turn_age/max"] == max(ages)
        assert broken.metrics[step]["staleness/turn_age/mean"] == pytest.approx(sum(ages) / len(ages))
        seen |= set(ages)
    assert len(seen) > 1, "every turn was as old as the others"


def test_weights_are_truncated_where_the_dump_says(broken):
    for step in complete(broken):
        ratios = [
            math.exp(old - sampled)
            for row in broken.sessions[step]
            for old, sampled, policy in zip(
                row["old_log_probs"], row["rollout_log_probs"], row["response_mask"], strict=True
            )
            if policy
        ]
        metrics = broken.metrics[step]
        assert metrics["staleness/cut"] == pytest.approx(sum(ratio > 2 for ratio in ratios) / len(ratios), abs=1e-6)
        assert metrics["rollout_corr/rollout_is_max"] <= 2 + 1e-6
        expected = sum(min(ratio, 2) for ratio in ratios) / len(ratios)
        assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(expected, abs=0.05)  # a mean over mini-batches


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one_and_training_goes_on(broken):
    before, after = broken.refused
    assert before <= after <= before + 1  # one save may have been under way
    lines = [line for line in broken.logs[1].splitlines() if "could not be saved" in line]
    assert any(f"step {after + 1} could not be saved" in line and "training goes on" in line for line in lines)
    assert broken.last > after and after + 1 in broken.metrics


def test_sessions_that_hang_end_by_the_clock_and_training_goes_on(broken):
    assert stops(broken, broken.before_hang)["wall_clock"] > 0
    assert max(broken.metrics) >= broken.before_hang + 2
    assert set(stops(broken)) <= {"submitted", "max_turns", "response_budget", "invalid_calls", "wall_clock"}
