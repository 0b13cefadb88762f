"""Runs verl's trainer as a child process and shows where it is: start-up, evaluations, steps, reward, time left.

Progress is read from what verl writes anyway (metrics file, validation dumps, log), so that the run itself is the one
that a user would start by hand.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from verl_ext.demo.dumps import read_metrics, validation_steps
from verl_ext.demo.plan import Plan, checkpoint_step, command, complete, environment, evaluation_files
from verl_ext.demo.stages import write_json
from verl_ext.types import BadInput

# Seconds on two cores, until this run has figures of its own.
START_S, EVALUATION_S, STEP_S = 110.0, 65.0, 16.0
_READY = b"Creating file logger"  # verl prints it when workers and servers are up
_DIED = b"A worker died or was killed while executing a task"  # Ray prints it; verl may then wait for ever
_GRACE_S = 60.0  # for verl to notice by itself
_PR_SET_PDEATHSIG = 1


@dataclass
class State:
    """Where the run is, as far as its files tell."""

    plan: Plan
    started: float
    first_step: int = 0
    written_before: frozenset[int] = frozenset()
    ready: float | None = None
    step: int = 0
    reward: float | None = None
    step_s: float = STEP_S
    evaluation_s: float = EVALUATION_S
    evaluated: list[int] = field(default_factory=list)
    clock: dict[str, float] = field(default_factory=dict)
    changed: float = field(init=False)

    def __post_init__(self) -> None:
        self.changed = self.started
        self._seen: tuple[float | None, int, int] = (None, self.first_step, len(self.written_before))

    def update(self, now: float, log_has_ready: bool) -> None:
        """Read the run's files; ``now`` is monotonic seconds."""
        if self.ready is None and log_has_ready:
            self.ready = now
            self.clock["start_up_s"] = round(now - self.started, 1)
        metrics = {
            step: data
            for step, data in read_metrics(self.plan.out / "metrics").items()
            if step > 0 and "session/score" in data
        }
        self.step = max(self.first_step, *metrics) if metrics else self.first_step
        if metrics:
            recent = list(metrics.values())[-5:]
            self.reward = sum(data["session/score"] for data in recent) / len(recent)
            self.step_s = median(data.get("timing_s/step", STEP_S) for data in metrics.values())
            tests = [data["timing_s/testing"] for data in metrics.values() if "timing_s/testing" in data]
            self.evaluation_s = median(tests) if tests else self.evaluation_s
        evaluated = validation_steps(self.plan.out / "validation")
        first = [step for step in evaluated if step not in self.written_before]
        if evaluated != self.evaluated and len(first) == 1 and self.ready is not None and not metrics:
            self.evaluation_s = max(1.0, now - self.ready)  # the first evaluation, timed from outside
            self.clock["first_evaluation_s"] = round(self.evaluation_s, 1)
        self.evaluated = evaluated
        if self.step > self.first_step:
            self.clock.setdefault("to_first_step_s", round(now - self.started, 1))
        seen = (self.ready, self.step, len(evaluated))
        if seen != self._seen:
            self._seen, self.changed = seen, now

    def left(self, now: float) -> float:
        """Seconds left, from this run's own pace where it has one."""
        evaluations = sum(step not in self.evaluated for step in self.plan.evaluation_steps)
        steps = max(0, self.plan.steps - self.step)
        start = START_S if self.ready is None else 0.0
        total = start + evaluations * self.evaluation_s + steps * self.step_s
        return max(total - (now - self.changed), 0.7 * (total - max(start, self.evaluation_s)), 1.0)

    def phase(self) -> str:
        """What is happening, in a few words."""
        if self.ready is None:
            return "starting Ray, trainer and vLLM"
        if 0 not in self.evaluated:
            return "evaluating the model to start from"
        saved = checkpoint_step(self.plan)
        if saved > self.step and saved in self.plan.evaluation_steps and saved not in self.evaluated:
            return f"evaluating after step {saved}"
        return "training" if self.step < self.plan.steps else "finishing"

    def line(self, now: float) -> str:
        """One line for a terminal that cannot be redrawn."""
        reward = "" if self.reward is None else f", reward {self.reward:.2f}"
        return (
            f"{self.phase()}: step {self.step}/{self.plan.steps}{reward}, {minutes(now - self.started)} gone, "
            f"about {minutes(self.left(now))} left"
        )


def minutes(seconds: float) -> str:
    """``3:07``, minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


def train(plan: Plan, environ: Mapping[str, str], console: Console) -> None:
    """Evaluate, train and evaluate; goes on from a checkpoint if there is one.

    Raises:
        BadInput: The run failed; the end of its log is printed before.
    """
    if complete(plan):
        return
    files, runs = evaluation_files(plan)
    argv = command(plan, files, runs)
    log_path = plan.out.parent / "train.log"
    resumed = checkpoint_step(plan)
    if resumed:
        console.print(f"   going on from the checkpoint of step {resumed}")
    console.print(f"   log: {log_path}", soft_wrap=True)
    with log_path.open("ab") as log:
        log.write(("\n$ " + " ".join(argv) + "\n").encode())
        log.flush()
        offset = log.tell()
        process = subprocess.Popen(
            argv,
            env=environment(plan, environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    written = frozenset(validation_steps(plan.out / "validation"))
    state = State(plan, time.monotonic(), first_step=resumed, written_before=written)
    try:
        _watch(process, state, log_path, offset, console)
    except BaseException:
        _stop(process, console)
        raise
    finally:
        if not written:  # an attempt that began at the beginning
            write_json(plan.out / "clock.json", state.clock)
    if process.returncode or not complete(plan):
        for line in _tail(log_path):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        what = f"status {process.returncode}" if process.returncode else "status 0, but before its last evaluation"
        raise BadInput(f"training ended with {what}; the whole log: {log_path}. Once mended, `demo` goes on from here")


def _watch(process: subprocess.Popen, state: State, log_path: Path, offset: int, console: Console) -> None:
    ready, died = False, None
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TextColumn("left {task.fields[left]}"),
        console=console,
        transient=False,
        disable=not console.is_terminal,
    )
    last_line = 0.0
    with progress:
        bar = progress.add_task("", total=state.plan.steps, state="", left="")
        while True:
            running = process.poll() is None
            now = time.monotonic()
            with log_path.open("rb") as log:
                log.seek(offset)
                lines = log.readlines()
            if lines and not lines[-1].endswith(b"\n"):
                lines.pop()  # the rest of it is still to come
            offset += sum(map(len, lines))
            ready = ready or any(_READY in line for line in lines)
            if died is None and any(_DIED in line for line in lines):
                died = now
            if died is not None and running and now - died > _GRACE_S:
                raise BadInput(f"one of the run's workers died: {log_path} says why. The same command goes on")
            state.update(now, ready)
            reward = "" if state.reward is None else f", reward {state.reward:.2f}"
            shown = f"step {state.step}/{state.plan.steps}{reward}"
            progress.update(
                bar, completed=state.step, description=state.phase(), state=shown, left=minutes(state.left(now))
            )
            if not console.is_terminal and (now - last_line >= 15 or not running):
                console.print("   " + state.line(now), highlight=False, soft_wrap=True)
                last_line = now
            if not running:
                return
            time.sleep(0.5)


def _stop(process: subprocess.Popen, console: Console) -> None:
    """End the run and whatever it started, politely first so that Ray takes its own processes down."""
    if process.poll() is not None:
        return
    console.print("   stopping the run; the same command goes on from its last checkpoint")
    process.send_signal(signal.SIGINT)
    for polite in (signal.SIGTERM, signal.SIGKILL):
        try:
            process.wait(15)
            break
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(polite)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _tail(path: Path, lines: int = 30) -> list[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n")[:400] for line in deque(file, lines)]  # a metrics line has kilobytes
