"""The task file: one JSON object a line, values in the sandbox's tagged JSON.

Plain JSON would turn tuples into lists and lose sets, so arguments and expected values travel in the wire format that
the sandbox speaks. Keys are in a fixed order and nothing depends on hashes: equal tasks give equal bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verl_ext.sandbox.wire import decode, encode
from verl_ext.types import BadInput, Case, Task, Tests


def task_to_json(task: Task) -> str:
    """One line of JSON, the same bytes for equal tasks."""
    fields = {
        "task_id": task.task_id,
        "split": task.split,
        "bug_type": task.bug_type,
        "issue": task.issue,
        "sources": dict(task.sources),
        "editable": list(task.editable),
        "gold": dict(task.gold),
        "public": _tests_to_json(task.public),
        "hidden": _tests_to_json(task.hidden),
        "provenance": dict(task.provenance),
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def task_from_json(text: str) -> Task:
    """The task of one line.

    Raises:
        BadInput: The line is not a task.
    """
    try:
        fields = json.loads(text)
        return Task(
            task_id=fields["task_id"],
            sources=fields["sources"],
            editable=tuple(fields["editable"]),
            issue=fields["issue"],
            public=_tests_from_json(fields["public"]),
            hidden=_tests_from_json(fields["hidden"]),
            bug_type=fields["bug_type"],
            gold=fields["gold"],
            split=fields["split"],
            provenance=fields["provenance"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"not a task ({type(error).__name__}: {error}); build the file with `verl-ext tasks build`"
        ) from None


def dump_tasks(path: str | Path, tasks: Iterable[Task]) -> None:
    """Write a task file, whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        for task in tasks:
            file.write(task_to_json(task) + "\n")
    os.replace(part, target)


def load_tasks(path: str | Path, long: bool = False) -> dict[str, Task]:
    """Tasks by id, in the order of the file; a folder stands for its ``tasks.jsonl``. ``long`` words the error.

    Raises:
        BadInput: No such file, a broken line, or an id that stands twice.
    """
    target = Path(path)
    if target.is_dir() or not target.suffix:
        target = target / "tasks.jsonl"
    if not target.is_file():
        raise BadInput(
            f"no task file {target}; build one with `verl-ext tasks build{' --long' * long} --out {target.parent}`"
        )
    tasks: dict[str, Task] = {}
    with target.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                task = task_from_json(line)
            except BadInput as error:
                raise BadInput(f"{target}, line {number}: {error}") from None
            if task.task_id in tasks:
                raise BadInput(f"{target}, line {number}: task {task.task_id} stands twice; build the file again")
            tasks[task.task_id] = task
    return tasks


def case_to_json(case: Case) -> dict[str, Any]:
    """A case as JSON values; fields at their default are left out."""
    fields: dict[str, Any] = {"call": case.call, "args": encode(case.args)}
    if case.kwargs:
        fields["kwargs"] = encode(dict(case.kwargs))
    if case.then:
        fields["then"] = encode(case.then)
    if case.raises is not None:
        fields["raises"] = case.raises
    else:
        fields["expected"] = encode(case.expected)
    if case.compare != "exact":
        fields["compare"] = case.compare
        fields["tolerance"] = case.tolerance
    return fields


def case_from_json(fields: dict[str, Any]) -> Case:
    """Inverse of :func:`case_to_json`."""
    return Case(
        call=fields["call"],
        args=decode(fields["args"]),
        kwargs=decode(fields["kwargs"]) if "kwargs" in fields else {},
        then=decode(fields["then"]) if "then" in fields else (),
        expected=decode(fields["expected"]) if "expected" in fields else None,
        raises=fields.get("raises"),
        compare=fields.get("compare", "exact"),
        tolerance=fields.get("tolerance", 0.0),
    )


def _tests_to_json(tests: Tests) -> dict[str, Any]:
    fields: dict[str, Any] = {"module": tests.module, "cases": [case_to_json(c) for c in tests.cases]}
    if tests.files:
        fields |= {"files": dict(tests.files), "shared": tests.shared}
    return fields


def _tests_from_json(fields: dict[str, Any]) -> Tests:
    cases = tuple(case_from_json(c) for c in fields["cases"])
    return Tests(fields["module"], cases, fields.get("files", {}), fields.get("shared", False))
