"""The task file keeps every value and every byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_ext.gym.tasks import dump_tasks, load_tasks, task_from_json, task_to_json
from verl_ext.types import BadInput, Case, Task, Tests

TASK = Task(
    task_id="f-1/off_by_one/2",
    sources={"solution.py": "def f(x):\n    return 'ü'\n", "data.txt": ""},
    editable=("solution.py",),
    issue="Do it.",
    public=Tests(cases=(Case("f", ((1, 2.0), {3}, b"x"), {"key": {1: None}}, expected=(1, [2])),)),
    hidden=Tests(
        cases=(
            Case("F", (), then=(("add", (1,)), ("total", ())), expected=(None, frozenset({1}))),
            Case("f", ("",), raises="ValueError"),
            Case("f", (0.5,), expected=0.1, compare="tolerance", tolerance=1e-6),
        ),
        files={"test_f.py": "def test(): pass\n"},
    ),
    bug_type="off_by_one",
    gold={"solution.py": "def f(x):\n    return 'u'\n"},
    split="train",
    provenance={"line": 2, "repair": [2, "plus_one"]},
)


def test_round_trip_keeps_types() -> None:
    back = task_from_json(task_to_json(TASK))
    assert back == TASK
    assert task_to_json(back) == task_to_json(TASK)
    assert type(back.public.cases[0].args[0]) is tuple
    assert type(back.hidden.cases[0].expected[1]) is frozenset


def test_file_in_order_and_by_folder(tmp_path: Path) -> None:
    tasks = [replace(TASK, task_id=name) for name in ("b", "a")]
    dump_tasks(tmp_path / "new" / "tasks.jsonl", tasks)
    assert list(load_tasks(tmp_path / "new").values()) == tasks
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["tasks.jsonl"]


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no task file .*build one with `verl-ext tasks build"):
        load_tasks(tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match=r"build one with `verl-ext tasks build --long --out"):
        load_tasks(tmp_path / "absent", long=True)
    with pytest.raises(BadInput, match=r"no task file .*/runs/tasks/tasks.jsonl; .* --out .*/runs/tasks`"):
        load_tasks(tmp_path / "runs" / "tasks")
    path = tmp_path / "tasks.jsonl"
    path.write_text(task_to_json(TASK) + "\n{}\n")
    with pytest.raises(BadInput, match=r"line 2: not a task \(KeyError: 'task_id'\)"):
        load_tasks(path)
    path.write_text(2 * (task_to_json(TASK) + "\n"))
    with pytest.raises(BadInput, match="line 2: task f-1/off_by_one/2 stands twice"):
        load_tasks(path)
