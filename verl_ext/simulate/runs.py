"""What a run measured: its sessions from the session dump, its steps' seconds from the metrics.

``verl_ext.session_dir/<step>.jsonl`` holds one line for each row of a session (``SessionTrainerMixin._dump_sessions``);
verl's ``file`` logger writes ``{"step": i, "data": {...}}`` a line, one file an attempt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from verl_ext.simulate.workload import Session
from verl_ext.types import BadInput

_AGE = "training/off_policy/trajectory_staleness_worst/"
_SPAN = "training/off_policy/trajectory_spans/mean"


@dataclass(frozen=True)
class Dump:
    """The sessions of a run.

    Attributes:
        steps: By number of the step; the sessions of each prompt.
    """

    steps: dict[int, list[list[Session]]]

    @property
    def groups(self) -> list[list[Session]]:
        """Sessions by prompt, of all steps."""
        return [group for step in self.steps.values() for group in step]

    @property
    def batch(self) -> int:
        """Prompts a step: the most that one has."""
        return max(map(len, self.steps.values()))

    @property
    def size(self) -> int:
        """Sessions a prompt: the most that one has."""
        return max(map(len, self.groups))

    def only(self, numbers: Collection[int]) -> Dump:
        """The sessions of these steps.

        Raises:
            BadInput: There is no such step.
        """
        kept = {number: step for number, step in self.steps.items() if number in numbers}
        if not kept:
            raise BadInput("session dump and metrics have no step in common after the first; give those of one run")
        return Dump(kept)


@dataclass(frozen=True)
class StepSeconds:
    """Where a step's seconds went.

    Attributes:
        number: Of the step.
        step: All of it (``timing_s/step``).
        wait: Until the batch was there (``timing_s/gen``).
        sync: Weights to the rollout (``timing_s/update_weights``).
        age_mean, age_max: Versions between a session's oldest token and the policy; None where not logged.
        span_mean: Versions that sampled a session; None where not logged.
    """

    number: int
    step: float
    wait: float
    sync: float
    age_mean: float | None = None
    age_max: float | None = None
    span_mean: float | None = None

    @property
    def train(self) -> float:
        """The rest: log-probs, advantages, update, checkpoints."""
        return max(0.0, self.step - self.wait - self.sync)


def read_dump(run: Path) -> Dump:
    """The session dump of a run.

    Args:
        run: A folder with dumps (``<step>.jsonl``) at some depth, or one dump.

    Raises:
        BadInput: There is none, they are of several runs, or a line is no session.
    """
    if not run.exists():
        raise BadInput(f"{run} does not exist; give the folder of a run, or a session dump")
    files = [run] if run.is_file() else _dumps(run)
    return Dump({int(path.stem) if path.stem.isdigit() else 0: _read_step(path) for path in files})


def _dumps(run: Path) -> list[Path]:
    found = [path for path in run.rglob("*.jsonl") if path.stem.isdigit() and _is_dump(path)]
    folders = sorted({path.parent for path in found})
    if not folders:
        raise BadInput(f"{run} holds no session dump; train with verl_ext.session_dir=FOLDER")
    if len(folders) > 1:
        raise BadInput(f"{run} holds {len(folders)} runs; give one of {', '.join(map(str, folders))}")
    return sorted(found, key=lambda path: int(path.stem))


def _is_dump(path: Path) -> bool:
    # Metrics and validation dumps have such names too.
    with path.open(encoding="utf-8", errors="replace") as file:
        return '"session"' in file.readline()


def _read_step(path: Path) -> list[list[Session]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                prompt, session, _ = row["key"].rsplit("_", 2)
                record = row["session"]
                known = rows.setdefault((prompt, session), {"turns": {}})
                known["turns"].update({turn["index"]: turn["end"] - turn["start"] for turn in record["turns"]})
                known["generate_s"], known["sandbox_s"] = float(record["generate_s"]), float(record["sandbox_s"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise BadInput(
                    f"{path}, line {number} is no session of a session dump ({type(error).__name__}: {error})"
                ) from None
    groups: dict[str, list[Session]] = {}
    for (prompt, _), known in rows.items():
        groups.setdefault(prompt, []).append(_session(path, **known))
    if not groups:
        raise BadInput(f"{path} holds no session")
    return list(groups.values())


def _session(path: Path, turns: Mapping[int, int], generate_s: float, sandbox_s: float) -> Session:
    tokens = list(turns.values())
    if not tokens or min(tokens) < 0 or not all(math.isfinite(s) and s >= 0 for s in (generate_s, sandbox_s)):
        raise BadInput(f"{path} has a session without turns, or with seconds or tokens that cannot be")
    # Only the sums were measured: generation goes by tokens, the sandbox by turns.
    shares = [count / sum(tokens) for count in tokens] if sum(tokens) else [1 / len(tokens)] * len(tokens)
    return Session(tuple(generate_s * share for share in shares), (sandbox_s / len(tokens),) * len(tokens))


def read_steps(run: Path) -> list[StepSeconds]:
    """Seconds of a run's steps, without the first of each attempt: it starts what later steps find running.

    Args:
        run: A folder with metrics of verl's ``file`` or ``tensorboard`` logger, or such a file.

    Raises:
        BadInput: No metrics, or fewer than two steps with ``timing_s/step``.
    """
    if not run.exists():
        raise BadInput(f"{run} does not exist; give the folder of a run, or a metrics file")
    attempts = [_read_metrics(path) for path in _metrics_files(run)] or [_read_events(run)]
    steps: list[StepSeconds] = []
    for attempt in attempts:
        timed = [(number, values) for number, values in sorted(attempt.items()) if "timing_s/step" in values]
        steps += [_seconds(run, number, values) for number, values in timed[1:]]
    if not steps:
        raise BadInput(f"{run} has no timing_s/step after a first step; train with trainer.logger=[console,file]")
    return steps


def _metrics_files(run: Path) -> list[Path]:
    if run.is_file():
        return [run] if run.suffix == ".jsonl" else []
    found = [*run.rglob("metrics/*.jsonl"), *run.rglob("metrics*.jsonl")]
    folders = sorted({path.parent for path in found})
    if len(folders) > 1:
        raise BadInput(f"{run} holds the metrics of {len(folders)} runs; give one of {', '.join(map(str, folders))}")
    return sorted(found, key=lambda path: (len(path.stem), path.stem))  # attempts: 0, 1, ..., 10


def _read_metrics(path: Path) -> dict[int, Mapping[str, float]]:
    steps: dict[int, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
            steps.setdefault(record["step"], {}).update(record["data"])
        except (ValueError, KeyError, TypeError):
            continue  # half a line where a run was cut, or no metrics file
    return steps


def _read_events(run: Path) -> Mapping[int, Mapping[str, float]]:
    from verl_ext.tiny.entropy import read_run

    return read_run(run)


def _seconds(run: Path, number: int, values: Mapping[str, Any]) -> StepSeconds:
    found = [values.get(f"timing_s/{name}", 0.0) for name in ("step", "gen", "update_weights")]
    if not all(isinstance(value, int | float) and math.isfinite(value) and value >= 0 for value in found):
        raise BadInput(f"{run}: step {number} has seconds that cannot be: {found}")
    step, wait, sync = map(float, found)
    return StepSeconds(
        number=number,
        step=step,
        wait=wait,
        sync=sync,
        age_mean=values.get(f"{_AGE}mean"),
        age_max=values.get(f"{_AGE}max"),
        span_mean=values.get(_SPAN),
    )


def synchronous(steps: Sequence[StepSeconds]) -> bool:
    """Whether every session was trained by the version that sampled it, as far as the metrics say."""
    return not any(seconds.age_max for seconds in steps)


def unseen_seconds(dump: Dump, steps: Sequence[StepSeconds]) -> float:
    """Median over steps of how much longer a synchronous batch took than its longest session: grading, queues, polling.

    Args:
        dump: Of some of the steps.
        steps: Of the same run.
    """
    longest = {number: max(s.seconds for group in step for s in group) for number, step in dump.steps.items()}
    return median(max(0.0, s.wait - longest[s.number]) for s in steps if s.number in longest)
