"""Long tasks: one buggy file among correct ones, the tools that read them, and that the right file is graded."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner

from verl_ext.gym import leaks, prompts
from verl_ext.gym.build import build
from verl_ext.gym.check import check
from verl_ext.gym.commands import tasks as command
from verl_ext.gym.edits import applicable
from verl_ext.gym.env import BugFixEnv, Verdicts
from verl_ext.gym.lengthen import FILES, lengthen
from verl_ext.gym.splits import problems
from verl_ext.gym.tasks import load_tasks
from verl_ext.gym.tools_files import VIEW_CHARS
from verl_ext.sandbox import open_sandbox
from verl_ext.types import Action, BadInput, Case, Task, Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZES = {"train": 12, "val": 0, "heldout_functions": 0, "heldout_types": 0}
BODY = "def {name}(x):\n    y = x + {n}\n    return y\n"


def short(n: int, split: str = "train", template: str = "", name: str | None = None) -> Task:
    """A task of one file whose function adds ``n`` and should; the bug subtracts."""
    name = name or f"add_{n}"
    gold = BODY.format(name=name, n=n)
    return Task(
        task_id=f"{name}/arithmetic",
        sources={"solution.py": gold.replace("+", "-")},
        editable=("solution.py",),
        issue=f"Add {n}.",
        public=Tests(cases=(Case(name, (1,), expected=1 + n), Case(name, (4,), expected=4 + n))),
        hidden=Tests(cases=(Case(name, (7,), expected=7 + n),)),
        bug_type="arithmetic_swap",
        gold={"solution.py": gold},
        split=split,
        provenance={"function": name, "template": template},
    )


POOL = [short(n) for n in range(1, 10)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox():
    sandbox = await open_sandbox(workers=2)
    yield sandbox
    await sandbox.aclose()


async def start(sandbox) -> tuple[BugFixEnv, int]:
    """A session on a long task, and the number of its buggy file."""
    task = lengthen(POOL, 0)[0]
    env = BugFixEnv(task, sandbox, "ops_files", verdicts=Verdicts())
    await env.reset()
    return env, task.provenance["file"]


async def test_a_buggy_file_among_correct_ones():
    found = lengthen(POOL, 3)
    assert found == lengthen(POOL, 3) != lengthen(POOL, 4)
    golds = {task.gold["solution.py"] for task in POOL}
    for before, task in zip(POOL, found, strict=True):
        name = before.provenance["function"]
        path = f"{name}.py"
        assert len(task.sources) in FILES and task.editable == tuple(sorted(task.sources))
        assert task.editable[task.provenance["file"] - 1] == path
        assert task.sources[path] == before.sources["solution.py"] and task.gold == {path: before.gold["solution.py"]}
        assert {text for other, text in task.sources.items() if other != path} <= golds
        assert task.public.module == task.hidden.module == name
        assert task.public.cases == before.public.cases and task.split == before.split
    assert problems(found) == []
    assert len({task.task_id for task in found}) == len(found)


async def test_the_place_of_the_buggy_file_is_drawn_evenly():
    many = [short(n) for n in range(100, 400)]
    places = Counter((t.provenance["file"], t.provenance["files"]) for t in lengthen(many, 0))
    assert set(places) == {(place, count) for count in FILES for place in range(1, count + 1)}
    # Of 300 some 43 each: between 23 and 63 lies within three standard deviations.
    assert all(23 <= number <= 63 for number in places.values()), places


async def test_no_twin_of_the_same_template_stands_beside_the_bug():
    twins = [short(n, template="twin") for n in range(10, 60)]
    for task in lengthen([*twins, *POOL], 0)[: len(twins)]:
        beside = set(task.sources) - set(task.gold)
        assert beside <= {f"add_{n}.py" for n in range(1, 10)}


async def test_a_file_hides_no_module_of_the_standard_library():
    found = lengthen([short(1, name="bisect"), *POOL], 0)
    assert found[0].public.module == "bisect_" and "bisect_.py" in found[0].gold
    assert not any("bisect.py" in task.sources for task in found)


async def test_too_few_functions_are_refused_in_one_line():
    with pytest.raises(BadInput, match=r"--long: split train has 1 other functions .* ask for more tasks of it"):
        lengthen(POOL[:2], 0)


async def test_problems_name_what_may_not_stand_beside_a_bug():
    task, other = lengthen(POOL, 0)[:2]
    path = next(path for path in task.sources if path not in task.gold)

    def holding(text: str) -> Task:
        return dataclasses.replace(task, sources={**task.sources, path: text})

    (bug,) = (other.sources[path] for path in other.gold)
    (line,) = problems([other, *POOL, holding(bug)])[-1:]
    assert line.endswith(f"{path} is the buggy source of {other.task_id}")
    assert problems([*lengthen(POOL, 0)[1:], holding("x = 1\n")]) == [
        f"{task.task_id}: {path} is no repaired source of its split"
    ]
    elsewhere = short(70, "heldout_functions")
    assert problems([*lengthen(POOL, 0)[1:], elsewhere, holding(elsewhere.gold["solution.py"])]) == [
        f"{task.task_id}: {path} is no repaired source of its split"
    ]


async def test_no_leak_and_the_repair_of_the_right_file_passes(sandbox):
    found = lengthen(POOL, 0)
    for task in found:
        await leaks.check(task, sandbox)
    assert await check(found, sandbox) == []
    assert (await sandbox.grade({**task.sources, **task.gold}, task.hidden)).passed
    assert not (await sandbox.grade(task.sources, task.hidden)).passed


async def test_the_prompt_is_the_numbered_list_of_files():
    task = lengthen(POOL, 0)[0]
    (only,) = prompts.messages(task, "ops_files")
    assert only["content"].split("\n") == [f"{n}: {path}" for n, path in enumerate(sorted(task.sources), 1)]


async def test_one_file_keeps_its_tools():
    assert list(prompts.parameters("ops")) == ["edit", "run_tests", "undo", "submit"]
    assert list(prompts.parameters("ops_files")) == ["view", "edit", "run_tests", "undo", "submit"]


async def test_edits_go_to_the_file_viewed_last_and_undo_to_whatever_file_it_was(sandbox):
    env, number = await start(sandbox)
    edit = Action("edit", {"line": 2, "op": "arith"})
    seen = await env.step(edit)
    assert (seen.text, seen.valid) == ("view a file first", False)
    seen = await env.step(Action("run_tests"))
    path = env.task.editable[number - 1]
    assert seen.text.startswith(f"0/2 passed\nfile {number}: {path.removesuffix('.py')}("), (
        "file and function are named"
    )
    other = number % len(env.task.editable) + 1
    for file in (other, number):
        seen = await env.step(Action("view", {"file": file}))
        name = env.task.editable[file - 1]
        assert seen.text == prompts.numbered(env.task.sources[name]) and seen.valid and not seen.redundant
    again = await env.step(Action("view", {"file": number}))
    assert again.text == seen.text and again.redundant
    seen = await env.step(edit)
    assert seen.text.endswith("all 2 passed") and env.sources == {**env.task.sources, **env.task.gold}
    assert not (await env.step(Action("view", {"file": other}))).redundant
    seen = await env.step(Action("undo"))
    assert seen.text == f"reverted file {number} line 2" and env.sources == dict(env.task.sources)
    for file in (0, len(env.task.editable) + 1):
        seen = await env.step(Action("view", {"file": file}))
        assert (seen.text, seen.valid) == (f"no file {file}", False)


async def test_the_file_that_is_viewed_is_part_of_the_anchor(sandbox):
    """The same edit on the same sources does another thing there; GiGPO must not compare the two."""
    env = BugFixEnv(lengthen(POOL, 0)[0], sandbox, "ops_files", verdicts=Verdicts())
    await env.reset()
    before = env.anchor
    anchors = []
    for file in (1, 2, 1):
        seen = await env.step(Action("view", {"file": file}))
        anchors += [seen.anchor, env.state]
    assert env.anchor == before == anchors[0]
    assert anchors[1] == anchors[2] == anchors[5] and anchors[3] == anchors[4]
    assert len({before, anchors[1], anchors[3]}) == 3


async def test_what_left_the_context_may_be_shown_again(sandbox):
    env = BugFixEnv(lengthen(POOL, 0)[0], sandbox, "ops_files", verdicts=Verdicts())
    await env.reset()
    for action in (Action("view", {"file": 1}), Action("run_tests")):
        assert not (await env.step(action)).redundant
        assert (await env.step(action)).redundant
    anchor = env.state
    env.forget()
    assert env.state == anchor
    for action in (Action("view", {"file": 1}), Action("run_tests")):
        assert not (await env.step(action)).redundant


async def test_a_view_keeps_within_the_recipes_limit(sandbox):
    env, number = await start(sandbox)
    path = env.task.editable[number - 1]
    long = env.task.sources[path] + "# more\n" * 200
    env = BugFixEnv(dataclasses.replace(env.task, sources={**env.task.sources, path: long}), sandbox, "ops_files")
    await env.reset()
    assert len((await env.step(Action("view", {"file": number}))).text) == VIEW_CHARS
    assert applicable(long), "its lines can be edited nevertheless"


async def test_build(tmp_path: Path, sandbox):
    """The ordinary build's tasks, made long; the same bytes again; every file that the ordinary build writes."""
    from pyarrow import parquet

    told = []
    data = await build(tmp_path / "a", sandbox, 0, SIZES, "ops_files", lambda *args: told.append(args), long=True)
    plain = await build(tmp_path / "b", sandbox, 0, SIZES)
    assert [t.task_id.rpartition("/")[0] for t in data.all()] == [t.task_id for t in plain.all()]
    assert told[-1] == ("checked", 12)
    await build(tmp_path / "a", sandbox, 0, SIZES, "ops_files", long=True)
    tasks = load_tasks(tmp_path / "a")
    assert list(tasks.values()) == data.all()
    rows = parquet.read_table(tmp_path / "a" / "train.parquet").to_pylist()
    assert {row["extra_info"]["tools"] for row in rows} == {"ops_files"}
    for row in rows:
        assert row["prompt"] == prompts.messages(tasks[row["reward_model"]["ground_truth"]], "ops_files")
    counts = json.loads((tmp_path / "a" / "stats.json").read_text())["splits"]["train"]["files"]
    assert sum(counts.values()) == 12 and set(counts) <= {"3", "4"}
    assert "files" not in json.loads((tmp_path / "b" / "stats.json").read_text())["splits"]["train"]
    shown = CliRunner().invoke(command, ["show", next(iter(tasks)), "--dir", str(tmp_path / "a")])
    assert shown.exit_code == 0 and "(buggy)" in shown.output, shown.output


async def test_tools_for_language_models_name_the_files(sandbox):
    task = lengthen(POOL, 0)[0]
    env = BugFixEnv(task, sandbox, "code", verdicts=Verdicts())
    await env.reset()
    content = env.prompt()[1]["content"]
    assert all(f"- {path} (3 lines)" in content for path in task.sources)
    (path,) = task.gold
    seen = await env.step(Action("view", {"path": path}))
    assert seen.text == prompts.numbered(task.sources[path])
    await env.step(Action("str_replace", {"path": path, "old": "x -", "new": "x +"}))
    assert env.public_passed and (await env.grade()).passed
