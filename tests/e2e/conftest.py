"""One small gym, one small TinyAgent and one training run, shared by every end-to-end test.

The run is real: ``python -m verl.trainer.main_ppo`` with the recipe, Ray, vLLM and the sandbox. It takes four steps in
two processes: the first ends in step 3, after the checkpoint of step 2, because its agent-loop worker is killed; the
second goes on from there, and in its last step one sandbox is killed in the middle of an episode.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600
ENDS_IN_S = 90
PROMPTS, SESSIONS = 8, 8
FOLDING_BUDGET = 288
ENTROPY_COEFF = 0.02
LEFT_OUT = b"left out of training: sandbox_error"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.e2e)


def cli(*argv: str, timeout: float = LIMIT_S) -> None:
    subprocess.run([sys.executable, "-m", "verl_ext.cli", *argv], check=True, timeout=timeout, cwd=ROOT)


@pytest.fixture(scope="session")
def tasks_dir(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("e2e") / "tasks"
    sizes = {"train": 24, "val": 12, "heldout-functions": 12, "heldout-types": 12}
    cli("tasks", "build", "--out", str(out), *(part for name, n in sizes.items() for part in (f"--{name}", str(n))))
    return out


@pytest.fixture(scope="session")
def model_dir(tasks_dir) -> Path:
    """Few tasks and many sessions: it knows some repairs by heart, so that groups have right and wrong sessions."""
    out = tasks_dir.parent / "tiny"
    cli("tiny", "build", "--tasks", str(tasks_dir), "--out", str(out), "--programs", "800", "--sessions", "1500")
    return out


@pytest.fixture(scope="session")
def long_tasks_dir(tmp_path_factory) -> Path:
    """Tasks of several files."""
    out = tmp_path_factory.mktemp("long") / "tasks"
    sizes = {"train": 24, "val": 12, "heldout-functions": 12, "heldout-types": 12}
    argv = ("tasks", "build", "--long", "--out", str(out))
    cli(*argv, *(part for name, n in sizes.items() for part in (f"--{name}", str(n))))
    return out


@pytest.fixture(scope="session")
def long_model_dir(long_tasks_dir) -> Path:
    """Knows all context managers, and little else; with half the sessions it writes no note when asked."""
    out = long_tasks_dir.parent / "tiny"
    argv = ("tiny", "build", "--long", "--tasks", str(long_tasks_dir), "--out", str(out))
    cli(*argv, "--programs", "400", "--sessions", "1200")
    return out


@dataclass
class Run:
    """What a training run left behind."""

    folder: Path
    model: Path
    tasks: Path
    metrics: dict[int, dict[str, Any]] = field(default_factory=dict)
    sessions: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    manager: str = "none"

    def read(self) -> None:
        for path in sorted(self.folder.glob("metrics-*.jsonl")):
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self.metrics.setdefault(entry["step"], {}).update(entry["data"])
        for path in (self.folder / "sessions").glob("*.jsonl"):
            self.sessions[int(path.stem)] = [json.loads(line) for line in path.read_text().splitlines()]


def turns_of(sessions: list[dict]) -> list[tuple[str, str, float, dict]]:
    """Group, session, reward and record of every turn of a step; the verdict is earned by the last one."""
    rows = []
    for row in sessions:
        group, session, _ = row["key"].rsplit("_", 2)
        turns = row["session"]["turns"]
        rows += [(group, session, row["score"] if turn is turns[-1] else 0.0, turn) for turn in turns]
    return rows


def on_tokens(sessions: list[dict]) -> list[float]:
    """The one advantage of each turn's tokens; observation tokens must have none."""
    found = []
    for row in sessions:
        covered = set()
        for turn in row["session"]["turns"]:
            span = range(turn["start"], turn["end"])
            (value,) = {row["advantages"][i] for i in span}
            found.append(value)
            covered.update(span)
        assert all(value == 0 for i, value in enumerate(row["advantages"]) if i not in covered)
    return found


class Training:
    """One process of an entry point (``main_ppo``) on a recipe, with its log in a file."""

    def __init__(
        self,
        run: Run,
        attempt: int,
        *overrides: str,
        recipe: str = "bugfix_grpo",
        module: str = "verl.trainer.main_ppo",
    ):
        self.run = run
        self.log = run.folder / f"train-{attempt}.log"
        self.metrics = run.folder / f"metrics-{attempt}.jsonl"
        env = {**os.environ, "VERL_PLATFORM": "cpu", "VERL_FILE_LOGGER_PATH": str(self.metrics)}
        argv = [
            *(sys.executable, "-m", module),
            *("--config-path", str(ROOT / "recipes"), "--config-name", recipe),
            f"data.train_files={run.tasks}/train.parquet",
            f"data.val_files=[{run.tasks}/val.parquet]",
            f"data.train_batch_size={PROMPTS}",
            f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
            f"actor_rollout_ref.rollout.n={SESSIONS}",
            "actor_rollout_ref.rollout.val_kwargs.n=1",
            "actor_rollout_ref.actor.optim.lr=1e-3",
            "actor_rollout_ref.actor.optim.lr_warmup_steps=0",
            f"actor_rollout_ref.model.path={run.model}",
            f"trainer.default_local_dir={run.folder}/checkpoints",
            f"verl_ext.session_dir={run.folder}/sessions",
            "trainer.total_training_steps=4",
            "trainer.save_freq=2",
            "trainer.test_freq=4",
            "trainer.val_before_train=false",
            "trainer.logger=[console,file]",
            f"trainer.validation_data_dir={run.folder}/validation",
            *overrides,
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                argv, env=env, stdout=log, stderr=subprocess.STDOUT, cwd=run.folder, start_new_session=True
            )

    def steps(self) -> list[int]:
        if not self.metrics.is_file():
            return []
        return [json.loads(line)["step"] for line in self.metrics.read_text().splitlines() if line.endswith("}")]

    def wait_for(self, done, what: str) -> None:
        """Poll ``done`` until it is true; fails with the end of the log when the run ends or time is up first."""
        deadline = time.monotonic() + LIMIT_S
        while not done():
            ended = self.process.poll() is not None
            if (ended and not done()) or time.monotonic() > deadline:
                self.kill()
                tail = self.log.read_text(errors="replace")[-6000:]
                pytest.fail(f"{what} did not happen ({'ended' if ended else 'too slow'}); end of the log:\n{tail}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End the run and all that it started, without warning; Ray's daemons leave the process group."""
        family = [self.process.pid]
        if self.process.poll() is None:
            family += [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(30)

    def find(self, title: str) -> psutil.Process:
        """The first process of the run with ``title`` in its command line."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if title in " ".join(process.cmdline()):
                    return process
            except psutil.NoSuchProcess:  # jails come and go
                continue
        pytest.fail(f"no process runs {title}")

    def dies_of(self, title: str) -> None:
        """SIGKILL the process of the actor ``title``: the run must end by itself, soon, with status 1."""
        self.find(title).kill()
        began = time.monotonic()
        self.wait_for(lambda: self.process.poll() is not None, "the end of the run")
        assert time.monotonic() - began < ENDS_IN_S
        assert self.process.returncode == 1


def last_words(log: str) -> str:
    """The one line in which a run says why it ended."""
    (line,) = (line for line in log.splitlines() if line.startswith("error: "))
    assert "HYDRA_FULL_ERROR" not in log
    return line


def kill_one_sandbox(training: Training) -> bool:
    """SIGKILL one jail of the agent loop's process, a few times a second; False while there is none."""
    time.sleep(0.3)
    for process in psutil.Process(training.process.pid).children(recursive=True):
        try:
            if "AgentLoopWorker" not in " ".join(process.cmdline()):
                continue
            jails = [child for child in process.children(recursive=True) if "bwrap" in child.name()]
        except psutil.NoSuchProcess:
            continue
        if jails:
            random.choice(jails).kill()
            return True
    return False


@pytest.fixture(scope="session")
def run(tasks_dir, model_dir) -> Run:
    folder = tasks_dir.parent / "run"
    folder.mkdir()
    run = Run(folder, model_dir, tasks_dir)
    tracker = folder / "checkpoints" / "latest_checkpointed_iteration.txt"

    first = Training(run, 1, "verl_ext.watch_s=2.0")
    first.wait_for(lambda: 2 in first.steps() and tracker.is_file(), "step 2 with its checkpoint")
    time.sleep(1.0)  # into step 3
    first.dies_of("AgentLoopWorker")

    second = Training(run, 2)
    second.wait_for(lambda: 3 in second.steps(), "step 3 after the restart")
    # An idle jail that dies costs nothing, so keep killing until one died in the middle of an episode.
    second.wait_for(
        lambda: kill_one_sandbox(second) and LEFT_OUT in second.log.read_bytes(), "a sandbox that dies in an episode"
    )
    second.wait_for(lambda: second.process.poll() is not None, "the end")
    assert second.process.returncode == 0, second.log.read_text(errors="replace")[-6000:]
    run.logs = [first.log.read_text(errors="replace"), second.log.read_text(errors="replace")]
    run.read()
    return run


def train_whole(tasks: Path, model: Path, name: str, recipe: str, *overrides: str, **kwargs: str) -> Run:
    """Run a recipe to its end, without evaluation or checkpoint."""
    run = Run(tasks.parent / name, model, tasks)
    run.folder.mkdir()
    without = ("trainer.save_freq=-1", "trainer.test_freq=-1")
    training = Training(run, 1, *without, *overrides, recipe=recipe, **kwargs)
    training.wait_for(lambda: training.process.poll() is not None, "the end")
    run.logs = [training.log.read_text(errors="replace")]
    assert training.process.returncode == 0, run.logs[0][-6000:]
    run.read()
    return run


@pytest.fixture(scope="session")
def whole_run(tasks_dir, model_dir) -> Callable[..., Run]:
    return partial(train_whole, tasks_dir, model_dir)


@pytest.fixture(scope="session")
def folding_run(long_tasks_dir, long_model_dir) -> Callable[[str], Run]:
    """The run with a context manager, made when it is first asked for: two steps of GRPO; of GiGPO with an entropy
    bonus with ``drop_oldest``; on ``separate_async`` with ``note``."""
    own = {
        "drop_oldest": (
            "actor_rollout_ref.actor.calculate_entropy=true",
            "verl_ext.entropy.where=after_observation",
            f"verl_ext.entropy.coeff={ENTROPY_COEFF}",
            "verl_ext.entropy.tokens=2",
        ),
    }

    @cache
    def run(manager: str) -> Run:
        recipe = {"note": "bugfix_one_step", "drop_oldest": "bugfix_gigpo"}.get(manager, "bugfix_fold")
        overrides = [
            *(["base=long"] if recipe != "bugfix_fold" else []),
            f"verl_ext.context.manager={manager}",
            f"verl_ext.context.budget={FOLDING_BUDGET}",
            "verl_ext.context.charges.failed_call=0.01",
            "trainer.total_training_steps=2",
            *own.get(manager, ()),
        ]
        found = train_whole(long_tasks_dir, long_model_dir, manager, recipe, *overrides)
        found.manager = manager
        return found

    return run
