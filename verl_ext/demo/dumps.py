"""What verl leaves behind while it trains, read back: validation dumps and the metrics file.

``trainer.validation_data_dir/<step>.jsonl`` holds one JSON object a session (``_write_generations`` in
``verl/trainer/ppo/v1/trainer_base.py``); the ``file`` logger writes ``{"step": i, "data": {...}}`` a line and truncates
its file at every start, so that each attempt of an interrupted run has a file of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_ext.stats import pass_rates
from verl_ext.types import BadInput


@dataclass(frozen=True)
class EvalSession:
    """One validation session.

    Attributes:
        task_id: Which task.
        passed: 1.0 when every hidden test passed, else 0.0.
        prompt, response: Text that the policy read first, and everything after it.
        bug_type, stop: As the reward manager reported them.
        public_share: Share of public tests that passed at the end.
        turns, redundant: Turns, and those whose action could change or reveal nothing.
        hard_coded: An edit wrote a public test's expected value next to a test of its input.
    """

    task_id: str
    passed: float
    prompt: str
    response: str
    bug_type: str = ""
    stop: str = ""
    public_share: float = 0.0
    turns: int = 0
    redundant: int = 0
    hard_coded: bool = False


def read_validation(path: Path) -> list[EvalSession]:
    """Sessions of one validation dump, one for each session (the last segment where a session has several).

    Raises:
        BadInput: The file is missing, empty or holds a line that is no session.
    """
    if not path.is_file():
        raise BadInput(f"no validation dump {path}; the run that writes it did not get so far")
    last: dict[tuple[str, str], tuple[int, EvalSession]] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                session = EvalSession(
                    task_id=row.get("task_id") or row["gts"],
                    passed=float(row["acc"] if row.get("acc") is not None else row["score"]),
                    prompt=row["input"],
                    response=row["output"],
                    bug_type=row.get("bug_type") or "",
                    stop=row.get("stop") or "",
                    public_share=float(row.get("public_share") or 0.0),
                    turns=int(row.get("turns") or 0),
                    redundant=int(row.get("redundant") or 0),
                    hard_coded=bool(row.get("hard_coded")),
                )
                uid, run, index = _key(row.get("uid"), number)
            except (ValueError, KeyError, TypeError) as error:
                raise BadInput(f"{path}, line {number} is no session ({type(error).__name__}: {error})") from None
            if (uid, run) not in last or last[uid, run][0] < index:
                last[uid, run] = (index, session)
    if not last:
        raise BadInput(f"{path} holds no session")
    return [session for _, session in last.values()]


def _key(uid: str | None, number: int) -> tuple[str, str, int]:
    """verl's row key ``{uid}_{session}_{index}``; a row without one is a session of its own."""
    parts = (uid or "").rsplit("_", 2)
    return (parts[0], parts[1], int(parts[2])) if len(parts) == 3 else ("", str(number), 0)


def by_split(sessions: Sequence[EvalSession], splits: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Pass rate of each task, grouped by split.

    Args:
        sessions: One evaluation.
        splits: Task id to split name.

    Raises:
        BadInput: A session's task stands in no split.
    """
    grouped: dict[str, list[tuple[str, float]]] = {}
    for session in sessions:
        if session.task_id not in splits:
            raise BadInput(f"task {session.task_id!r} of the evaluation is not among the tasks; rebuild the tasks")
        grouped.setdefault(splits[session.task_id], []).append((session.task_id, session.passed))
    return {split: pass_rates(pairs) for split, pairs in grouped.items()}


def validation_steps(folder: Path) -> list[int]:
    """Steps that have a validation dump, ascending."""
    return sorted(int(path.stem) for path in folder.glob("*.jsonl") if path.stem.isdigit())


def read_metrics(folder: Path) -> dict[int, dict[str, Any]]:
    """Metrics by step over a run's attempts, later ones over earlier ones; a half-written line is passed over."""
    steps: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: int(path.stem)):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            steps.setdefault(record["step"], {}).update(record["data"])
    return dict(sorted(steps.items()))
