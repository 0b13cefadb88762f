"""The ``ops`` tool set: a menu of one-line edits, for a model too small to write code.

Every answer is a few tokens long, because a session of TinyAgent has to fit into a few hundred.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_ext.gym.edits import OPS, apply
from verl_ext.gym.workspace import Outcome, Workspace, refuse, useless
from verl_ext.types import CaseResult, Task, Verdict

LINE_CHARS = 80
FAILURE_CHARS = 48


def act(workspace: Workspace, tool: str, arguments: Mapping[str, Any]) -> Outcome:
    """Answers ``edit``; arguments have passed the schema."""
    assert tool == "edit", tool
    return edit(workspace, arguments["line"], arguments["op"])


def edit(workspace: Workspace, line: int, op: str) -> Outcome:
    """Applies menu edit ``op`` on 1-based ``line`` of the one editable file."""
    (path,) = workspace.editable
    return edit_file(workspace, path, line, op, f"line {line}")


def edit_file(workspace: Workspace, path: str, line: int, op: str, label: str) -> Outcome:
    """Applies menu edit ``op`` on 1-based ``line`` of ``path``; ``label`` is what ``undo`` will say of it."""
    if op not in OPS:
        return refuse(f"unknown op {op[:20]}")
    source = workspace.sources[path]
    if not 1 <= line <= source.count("\n") + 1:
        return refuse(f"no line {line}")
    changed = apply(source, line, op)
    if changed is None:
        return useless("not applicable")
    if changed == source:
        return useless("no change")
    if reason := workspace.write(path, changed, label):
        return refuse(reason)
    return Outcome(f"{line}: {changed.split(chr(10))[line - 1][:LINE_CHARS]}")


def tally(verdict: Verdict) -> str:
    """Passes of a run: ``2/4 passed``, or ``all 4 passed``: success is one word and no comparison of numbers."""
    if verdict.passed:
        return f"all {len(verdict.cases)} passed"
    return f"{sum(case.passed for case in verdict.cases)}/{len(verdict.cases)} passed"


def report(verdict: Verdict, task: Task) -> str:
    """Passes, then the first failing call with what came of it, cut to a few tokens.

    Of several files the tested one's number stands before it: a traceback would name it, too.
    """
    first = next((case for case in verdict.cases if not case.passed), None)
    if first is None:
        return tally(verdict)
    path = tested_file(task)
    where = f"file {sorted(task.editable).index(path) + 1}: " if path else ""
    return f"{tally(verdict)}\n{where}{_short(first)}"


def tested_file(task: Task) -> str | None:
    """Which of several editable files the public cases call into; None where there is one, or it is no such file."""
    path = f"{task.public.module.replace('.', '/')}.py"
    return path if len(task.editable) > 1 and path in task.editable else None


def _short(case: CaseResult) -> str:
    # An error's first word is its type; the message and the expected value would cost more tokens than they tell.
    got = f" {case.got}" if case.got.startswith("raises") else f" got {case.got}" if case.got else ""
    if not got and case.error:
        got = f" {case.error.split(':')[0]}"
    expected = f" not {case.expected}" if case.got and case.expected else ""
    return f"{case.name}{got}{expected}"[:FAILURE_CHARS]
