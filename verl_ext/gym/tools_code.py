"""The ``code`` tool set: read, search and rewrite text, for language models.

Reading may go to every file of the workspace, writing only to the editable ones. A refusal says what to do instead,
because the policy has nothing else to learn from. Searches run under a time limit: a pattern comes from the policy, and
backtracking must not hang the trusted process.
"""

from __future__ import annotations

import ast
import time
import warnings
from collections.abc import Mapping
from typing import Any

import regex

from verl_ext.gym.tools_ops import tested_file
from verl_ext.gym.workspace import Outcome, Workspace, refuse, useless
from verl_ext.types import Task, Verdict

MAX_CHARS = 4_000
"""Longest answer, in characters."""
MAX_LINES = 120
MAX_MATCHES = 40
MAX_FAILURES = 5
LINE_CHARS = 200
GREP_SECONDS = 1.0
CONTEXT_LINES = 3


def act(workspace: Workspace, tool: str, arguments: Mapping[str, Any]) -> Outcome:
    """Answers ``view``, ``grep``, ``str_replace`` or ``insert``; arguments have passed the schema."""
    return _TOOLS[tool](workspace, **arguments)


def view(workspace: Workspace, path: str, start: int = 1, end: int | None = None) -> Outcome:
    """Numbered lines ``start`` to ``end`` (1-based, inclusive) of a file."""
    if (error := _unknown(workspace, path)) is not None:
        return error
    lines = _lines(workspace.sources[path])
    last = len(lines) if end is None else min(end, len(lines))
    if not 1 <= start <= last:
        return refuse(f"{path} has lines 1 to {len(lines)}; {start} to {last if end is None else end} is no part of it")
    shown = lines[start - 1 : min(last, start - 1 + MAX_LINES)]
    text = "\n".join(_numbered(shown, start))
    if start - 1 + len(shown) < last:
        text += f"\n({last - start + 1 - len(shown)} more lines; view from {start + len(shown)})"
    return Outcome(_cut(text))


def grep(workspace: Workspace, pattern: str) -> Outcome:
    """Lines of all files that match a regular expression, as ``path:line: text``."""
    deadline = time.monotonic() + GREP_SECONDS  # for the whole call: other sessions wait for it
    try:
        compiled = regex.compile(pattern)
        found = [
            f"{path}:{number}: {line[:LINE_CHARS]}"
            for path, text in sorted(workspace.sources.items())
            for number, line in enumerate(_lines(text), 1)
            if compiled.search(line, timeout=max(deadline - time.monotonic(), 1e-3))
        ]
    except regex.error as error:
        return refuse(f"bad pattern {pattern[:LINE_CHARS]!r}: {error}")
    except (TimeoutError, RecursionError, MemoryError):
        return refuse("the pattern takes too long; use a simpler one")
    if not found:
        return Outcome(f"no line matches {pattern[:LINE_CHARS]!r}")
    more = [f"({len(found) - MAX_MATCHES} more)"] if len(found) > MAX_MATCHES else []
    return Outcome(_cut("\n".join(found[:MAX_MATCHES] + more)))


def str_replace(workspace: Workspace, path: str, old: str, new: str) -> Outcome:
    """Replaces the one place where ``old`` stands in an editable file."""
    if (error := _unknown(workspace, path) or _frozen(workspace, path)) is not None:
        return error
    source = workspace.sources[path]
    if not old:
        return refuse("old is empty; use insert to add text")
    if old == new:
        return useless("no change: old and new are the same")
    first = source.find(old)
    if first < 0:
        return useless(f"old does not occur in {path}; copy it exactly, with its spaces and without line numbers")
    if (second := source.find(old, first + 1)) >= 0:
        at = f"lines {_line_of(source, first)} and {_line_of(source, second)}"
        return useless(f"old occurs more than once in {path} ({at}); add neighbouring text to make it unique")
    return _write(workspace, path, source[:first] + new + source[first + len(old) :], _line_of(source, first), new)


def insert(workspace: Workspace, path: str, line: int, text: str) -> Outcome:
    """Inserts whole lines after 1-based ``line`` of an editable file; 0 is the top."""
    if (error := _unknown(workspace, path) or _frozen(workspace, path)) is not None:
        return error
    source = workspace.sources[path]
    lines = [f"{old}\n" for old in _lines(source)] if source else []
    if not 0 <= line <= len(lines):
        return refuse(f"{path} has {len(lines)} lines; line must be 0 to {len(lines)}")
    if not text:
        return useless("no change: text is empty")
    block = text if text.endswith("\n") else text + "\n"
    return _write(workspace, path, "".join([*lines[:line], block, *lines[line:]]), line + 1, text)


_TOOLS = {"view": view, "grep": grep, "str_replace": str_replace, "insert": insert}


def report(verdict: Verdict, task: Task) -> str:
    """Passes, then each of the first failing calls with expected and got; of several files the tested one is named."""
    where = f"{path}: " if (path := tested_file(task)) else ""
    failed = [case for case in verdict.cases if not case.passed]
    lines = [f"{len(verdict.cases) - len(failed)} of {len(verdict.cases)} public tests pass"]
    for case in failed[:MAX_FAILURES]:
        outcome = f"got {case.got}" if case.got else case.error or "no result"
        expected = f"expected {case.expected}, " if case.expected else ""
        lines.append(f"FAILED {where}{case.name[:LINE_CHARS]}: {expected[:LINE_CHARS]}{outcome[:LINE_CHARS]}")
    if len(failed) > MAX_FAILURES:
        lines.append(f"({len(failed) - MAX_FAILURES} more failures)")
    return _cut("\n".join(lines))


def _write(workspace: Workspace, path: str, text: str, line: int, new: str) -> Outcome:
    if reason := workspace.write(path, text, f"the last edit of {path} (line {line})"):
        return refuse(reason)
    lines = _lines(text)
    start = max(1, line - CONTEXT_LINES)
    end = min(len(lines), line + min(new.count("\n"), MAX_LINES) + CONTEXT_LINES)
    shown = "\n".join(_numbered(lines[start - 1 : end], start))
    broken = syntax_error(text) if path.endswith(".py") else None
    return Outcome(_cut(f"{path} changed:\n{shown}" + (f"\nwarning: {broken}" if broken else "")))


def syntax_error(source: str) -> str | None:
    """Why ``source`` does not parse, in one line; None when it does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(source)
        except SyntaxError as error:
            return f"{type(error).__name__}: {error.msg} (line {error.lineno})"
        except (ValueError, RecursionError, MemoryError) as error:
            return f"the file does not parse ({type(error).__name__})"
    return None


def _unknown(workspace: Workspace, path: str) -> Outcome | None:
    if path in workspace.sources:
        return None
    return refuse(f"no file {path[:LINE_CHARS]!r}; there are {', '.join(sorted(workspace.sources))}")


def _frozen(workspace: Workspace, path: str) -> Outcome | None:
    if path in workspace.editable:
        return None
    return refuse(f"{path} may not be edited; editable: {', '.join(workspace.editable)}")


def _lines(text: str) -> list[str]:
    # Not str.splitlines, which also breaks at form feeds and Unicode separators: those end no line in Python.
    return text.removesuffix("\n").split("\n")


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _numbered(lines: list[str], start: int) -> list[str]:
    return [f"{number}: {line[:LINE_CHARS]}" for number, line in enumerate(lines, start)]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "\n(cut)"
