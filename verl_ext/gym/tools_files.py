"""The ``ops_files`` tool set: the menu of :mod:`verl_ext.gym.tools_ops` on several files, read one at a time.

A file is named by its place in the sorted list, which is one token, and edits go to the file that was viewed last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_ext.gym.prompts import numbered
from verl_ext.gym.tools_ops import edit_file, report
from verl_ext.gym.workspace import Outcome, Workspace, refuse, useless

__all__ = ["act", "report"]

VIEW_CHARS = 800
"""Longest view, in characters; recipes give no shorter ``max_tool_response_length``."""


def act(workspace: Workspace, tool: str, arguments: Mapping[str, Any]) -> Outcome:
    """Answers ``view`` or ``edit``; arguments have passed the schema."""
    return _TOOLS[tool](workspace, **arguments)


def view(workspace: Workspace, file: int) -> Outcome:
    """The numbered lines of editable file ``file``, from 1, in sorted order; edits go to it from now on."""
    paths = sorted(workspace.editable)
    if not 1 <= file <= len(paths):
        return refuse(f"no file {file}")
    shown = paths[file - 1], workspace.sources[paths[file - 1]]
    text = numbered(shown[1])[:VIEW_CHARS]
    if workspace.viewed == shown:
        return useless(text)
    workspace.viewed = shown
    return Outcome(text)


def edit(workspace: Workspace, line: int, op: str) -> Outcome:
    """Applies menu edit ``op`` on 1-based ``line`` of the file viewed last."""
    if workspace.viewed is None:
        return refuse("view a file first")
    path = workspace.viewed[0]
    number = sorted(workspace.editable).index(path) + 1
    return edit_file(workspace, path, line, op, f"file {number} line {line}")


_TOOLS = {"view": view, "edit": edit}
