"""``verl-ext grade``: what it prints, where it finds tasks, and how it refuses."""

import json

import pytest
from click.testing import CliRunner

from verl_ext.gym.tasks import dump_tasks, task_to_json
from verl_ext.sandbox.commands import grade
from verl_ext.types import Case, Task, Tests

TASK = Task(
    task_id="add-1",
    sources={"solution.py": "def add(a, b):\n    return a - b\n"},
    editable=("solution.py",),
    issue="add adds",
    public=Tests(cases=(Case("add", (1, 1), expected=2),)),
    hidden=Tests(cases=(Case("add", (2, 3), expected=5), Case("add", (0, 0), expected=0))),
    bug_type="arithmetic",
    gold={"solution.py": "def add(a, b):\n    return a + b\n"},
    split="train",
)


@pytest.fixture
def files(tmp_path):
    dump_tasks(tmp_path / "tasks.jsonl", [TASK])
    (tmp_path / "one.json").write_text(json.dumps(json.loads(task_to_json(TASK)), indent=2))
    (tmp_path / "good.py").write_text(TASK.gold["solution.py"])
    (tmp_path / "bad.py").write_text(TASK.sources["solution.py"])
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(grade, [str(argument) for argument in arguments])


def test_prints_the_verdict(files):
    result = run("--task", f"{files}/tasks.jsonl:add-1", "--solution", files / "good.py")
    assert result.exit_code == 0, result.output
    verdict = json.loads(result.output)
    assert (verdict["passed"], verdict["trust"], verdict["failure"], len(verdict["cases"])) == (True, "oracle", None, 2)
    assert 0 < verdict["seconds"] < 60


def test_a_wrong_solution_exits_1(files):
    result = run("--task", "add-1", "--tasks", files, "--solution", files / "bad.py")
    assert result.exit_code == 1
    verdict = json.loads(result.output)
    assert [case["passed"] for case in verdict["cases"]] == [False, True]
    assert verdict["failure"] == "wrong"


def test_one_task_in_a_file_and_a_directory_as_solution(files):
    folder = files / "work"
    folder.mkdir()
    (folder / "solution.py").write_text(TASK.gold["solution.py"])
    (folder / "conftest.py").write_text("raise SystemExit")
    assert run("--task", files / "one.json", "--solution", folder).exit_code == 0


def test_a_link_is_not_followed(files):
    folder = files / "work"
    folder.mkdir()
    (folder / "solution.py").symlink_to(files / "good.py")
    result = run("--task", files / "one.json", "--solution", folder)
    assert result.exit_code == 2
    assert "is a link" in result.output


@pytest.mark.parametrize("task", ["nowhere", "nowhere.jsonl:x"])
def test_unknown_tasks_get_one_line(files, task):
    for extra in ((), ("--tasks", files)):
        result = run("--task", task, "--solution", files / "good.py", *extra)
        assert result.exit_code == 2
        assert len(result.output.strip().splitlines()) == 1
