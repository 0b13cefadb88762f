"""What the policy reads: the first messages of a session and the JSON schemas of its tools.

TinyAgent (``ops``) gets the numbered source and nothing else: the function's name states the intent, and every further
token costs time. Where there are several files (``ops_files``) it gets their numbered names, and reads one at a time. A
language model (``code``) gets the issue, the files and a way of working.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from verl_ext.gym.edits import OPS
from verl_ext.types import BadInput, Task

ToolsName = Literal["ops", "ops_files", "code"]
TOOL_SETS: tuple[str, ...] = ("ops", "ops_files", "code")

_SYSTEM = """You repair Python code. Each turn, call exactly one tool.
Find the defect with view and grep, mend it with str_replace or insert, check with run_tests, and call submit once the
code does what the issue asks. Hidden tests decide, with other inputs than the public ones: repair the cause, do not
write in the answers. Change as little as possible. undo takes back your last edit."""

_INTEGER = {"type": "integer"}
_PATH = {"type": "string", "description": "Path of a file, as listed."}


def messages(task: Task, tools: str = "ops") -> list[dict[str, str]]:
    """First messages of a session on ``task``, as a chat template takes them.

    Raises:
        BadInput: ``tools`` names no tool set.
    """
    check_tools(tools)
    if tools == "ops":
        return [{"role": "user", "content": numbered(task.sources[task.editable[0]])}]
    if tools == "ops_files":
        return [{"role": "user", "content": numbered("\n".join(sorted(task.editable)))}]
    files = "\n".join(
        f"- {path} ({task.sources[path].count(chr(10))} lines{'' if path in task.editable else ', read only'})"
        for path in sorted(task.sources)
    )
    public = f"{len(task.public)} public tests; run_tests shows which fail."
    content = f"Issue: {task.issue}\n\nFiles:\n{files}\n\nThe code has a defect. There are {public}"
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": content}]


def numbered(source: str) -> str:
    """``source`` with a 1-based number before each line: ``1: def f(x):``."""
    return "\n".join(f"{number}: {line}" for number, line in enumerate(source.removesuffix("\n").split("\n"), 1))


def check_tools(tools: str) -> None:
    """Refuses an unknown tool set."""
    if tools not in TOOL_SETS:
        raise BadInput(f"tools={tools!r} is no tool set; choose one of {', '.join(TOOL_SETS)}")


def tool_schemas(tools: str = "ops") -> list[dict[str, Any]]:
    """OpenAI function schemas of a tool set, as verl's tool parsers and chat templates take them.

    Raises:
        BadInput: ``tools`` names no tool set.
    """
    check_tools(tools)
    return copy.deepcopy(_SCHEMAS[tools])


@lru_cache
def parameters(tools: str) -> Mapping[str, Mapping[str, Any]]:
    """Tool name to its JSON schema of parameters."""
    check_tools(tools)
    return {schema["function"]["name"]: schema["function"]["parameters"] for schema in _SCHEMAS[tools]}


def tool(name: str, description: str, optional: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    required = [key for key in properties if key not in optional]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


_EDIT = {
    "line": {**_INTEGER, "description": "Line number, from 1."},
    "op": {"type": "string", "description": "Name of the edit.", "enum": list(OPS)},
}
_COMMON = [
    tool("run_tests", "Runs the public tests on the files as they stand."),
    tool("undo", "Takes back your last edit."),
    tool("submit", "Ends the session; hidden tests judge the files as they stand."),
]
_SCHEMAS: dict[str, list[dict[str, Any]]] = {
    "ops": [
        tool("edit", "Applies one edit of the menu to one line.", **_EDIT),
        *_COMMON,
    ],
    "ops_files": [
        tool(
            "view",
            "Shows the numbered lines of a file, which edits then go to.",
            file={**_INTEGER, "description": "Number of the file in the list, from 1."},
        ),
        tool("edit", "Applies one edit of the menu to one line of the file viewed last.", **_EDIT),
        *_COMMON,
    ],
    "code": [
        tool(
            "view",
            "Shows numbered lines of a file.",
            ("start", "end"),
            path=_PATH,
            start={**_INTEGER, "description": "First line, from 1. Default 1."},
            end={**_INTEGER, "description": "Last line. Default: the last of the file."},
        ),
        tool(
            "grep",
            "Searches all files for a regular expression, line by line.",
            pattern={"type": "string", "description": "Python regular expression."},
        ),
        tool(
            "str_replace",
            "Replaces text in a file. old must occur exactly once.",
            path=_PATH,
            old={"type": "string", "description": "Text to replace, copied exactly, without line numbers."},
            new={"type": "string", "description": "Text to put there."},
        ),
        tool(
            "insert",
            "Inserts lines into a file.",
            path=_PATH,
            line={**_INTEGER, "description": "Insert after this line; 0 is the top of the file."},
            text={"type": "string", "description": "Lines to insert, with their indentation."},
        ),
        *_COMMON,
    ],
}
