"""``transcripts.md``: the same task before and after training, as the policy saw and wrote it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence

from verl_ext.demo.dumps import EvalSession
from verl_ext.types import BadInput, Task


def choose(before: Sequence[EvalSession], after: Sequence[EvalSession]) -> tuple[EvalSession, EvalSession]:
    """A telling pair on one task: failed before and passed after if there is one, else any task of both evaluations.

    Among the candidates the longest session after training is taken, since a session that tests before it submits says
    more; ties go to the smallest task id, so that the same dumps give the same pair.

    Raises:
        BadInput: The evaluations share no task.
    """
    failed = {session.task_id: session for session in reversed(before) if not session.passed}
    any_before = {session.task_id: session for session in reversed(before)}
    pairs = [(failed[s.task_id], s) for s in after if s.passed and s.task_id in failed]
    pairs = pairs or [(any_before[s.task_id], s) for s in after if s.task_id in any_before]
    if not pairs:
        raise BadInput("the evaluations before and after share no task")
    return min(pairs, key=lambda pair: (-len(pair[1].response), pair[1].task_id))


def render(task: Task, before: EvalSession, after: EvalSession, steps: int) -> str:
    """The Markdown text of the pair, with the issue and the true fix."""
    fix = "\n".join(_diff(path, task.sources.get(path, ""), text) for path, text in sorted(task.gold.items()))
    return "\n".join(
        [
            f"# One task before and after training: `{task.task_id}`",
            "",
            f"Intent: {task.issue}",
            "",
            f"Bug type `{task.bug_type}`, split `{task.split}`. The true fix, which the policy never sees:",
            "",
            _fence(fix, "diff"),
            "",
            "What the policy reads first:",
            "",
            _fence(readable(after.prompt)),
            "",
            *_session("Before training", before),
            *_session(f"After {steps} steps", after),
        ]
    )


_MARKER = re.compile(r"<\|im_start\|>(\w+)\n")
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


def readable(text: str) -> str:
    """A decoded conversation with role marks at line starts and tool calls as ``name(argument=value)``; what cannot be
    read as either stays as it is, since that is what the policy wrote."""
    text = _MARKER.sub(lambda mark: f"\n[{mark[1]}]\n", text.replace("<|im_end|>", ""))
    return re.sub(r"\n{2,}", "\n", _CALL.sub(_call, text)).strip("\n")


def _call(found: re.Match[str]) -> str:
    try:
        call = json.loads(found[1])
        arguments = ", ".join(f"{key}={value!r}" for key, value in call.get("arguments", {}).items())
        return f"{call['name']}({arguments})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return found[0]


def _session(title: str, session: EvalSession) -> list[str]:
    verdict = "passes" if session.passed else "does not pass"
    return [
        f"## {title}: {verdict} the hidden tests (stop: {session.stop or 'unknown'})",
        "",
        _fence(readable("<|im_start|>assistant\n" + session.response)),
        "",
    ]


def _diff(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, lineterm="", n=1)
    return "\n".join(lines)


def _fence(text: str, language: str = "") -> str:
    """A code block whose fence the text cannot close."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{language}\n{text.strip(chr(10))}\n{ticks}"


def transcripts(
    tasks: Mapping[str, Task], before: Sequence[EvalSession], after: Sequence[EvalSession], steps: int
) -> str:
    """Choose a pair among the sessions on ``tasks`` and render it."""
    pair = choose([s for s in before if s.task_id in tasks], [s for s in after if s.task_id in tasks])
    return render(tasks[pair[0].task_id], *pair, steps)
