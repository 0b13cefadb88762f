"""The environment with the real sandbox: tools, anchors, potentials, flags, the cache, grading."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
import pytest_asyncio

from verl_ext.gym import prompts, tools_code, tools_ops
from verl_ext.gym.edits import OPS, applicable, apply
from verl_ext.gym.env import BugFixEnv, Verdicts, submission
from verl_ext.gym.hardcode import answered, hard_codes
from verl_ext.gym.workspace import MAX_FILE_CHARS
from verl_ext.sandbox import open_sandbox
from verl_ext.types import Action, BadInput, Case, InfrastructureError, Task, Tests, Verdict, digest

GOLD = """def clamp(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x
"""
BUGGY = GOLD.replace("x > high", "x < high")
TASK = Task(
    task_id="clamp/direction/0",
    sources={"solution.py": BUGGY, "notes.txt": "clamp keeps x in range\n"},
    editable=("solution.py",),
    issue="Return x, but never less than low nor more than high.",
    public=Tests(
        cases=(
            Case("clamp", (57, 0, 30), expected=30),
            Case("clamp", (-2, 0, 3), expected=0),
            Case("clamp", (3, 0, 3), expected=3),
            Case("clamp", (44, 40, 43), expected=43),
        )
    ),
    hidden=Tests(cases=(Case("clamp", (8, 1, 6), expected=6), Case("clamp", (2, 1, 6), expected=2))),
    bug_type="comparison_direction",
    gold={"solution.py": GOLD},
    split="train",
)
FIX = Action("edit", {"line": 4, "op": "flip"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox():
    sandbox = await open_sandbox()
    yield sandbox
    await sandbox.aclose()


pytestmark = pytest.mark.asyncio(loop_scope="module")


def with_source(source: str) -> Task:
    return dataclasses.replace(TASK, task_id="other", sources={"solution.py": source})


async def start(sandbox, tools: str = "ops", **options) -> BugFixEnv:
    options.setdefault("verdicts", Verdicts())
    env = BugFixEnv(TASK, sandbox, tools, **options)
    await env.reset()
    return env


class Counting:
    """The real sandbox, counting grades; fails as often as it is told."""

    def __init__(self, sandbox, failures: int = 0):
        self.sandbox, self.failures, self.grades = sandbox, failures, 0
        self.isolation, self.evaluate = sandbox.isolation, sandbox.evaluate

    async def grade(self, sources, tests, limits=None) -> Verdict:
        self.grades += 1
        if self.failures:
            self.failures -= 1
            raise InfrastructureError("the jail did not start")
        return await self.sandbox.grade(sources, tests, limits)


async def test_a_repair_by_hand_with_every_field(sandbox):
    """57 and 44 fail with the bug, so half of the public tests pass before the edit and all after."""
    env = await start(sandbox)
    assert (env.potential, env.public_passed, env.done) == (0.5, False, False)
    assert env.anchor == digest(TASK.sources)
    seen = await env.step(FIX)
    assert seen.text == "4:     if x > high:\nall 4 passed"
    assert (seen.anchor, seen.potential, seen.done) == (digest(TASK.sources), 1.0, False)
    assert (seen.valid, seen.redundant, seen.hard_coded) == (True, False, False)
    assert seen.seconds > 0
    assert env.sources["solution.py"] == GOLD
    end = await env.step(Action("submit"))
    assert end.done and env.done and end.anchor == env.anchor and end.potential == 1.0
    assert (await env.grade()).passed
    with pytest.raises(RuntimeError, match="over"):
        await env.step(FIX)


async def test_reset_starts_again_and_a_wrong_state_fails_hidden_tests(sandbox):
    env = await start(sandbox)
    await env.step(FIX)
    await env.reset()
    assert env.sources == dict(TASK.sources) and env.potential == 0.5
    assert not (await env.grade()).passed


async def test_step_needs_reset(sandbox):
    with pytest.raises(RuntimeError, match="reset"):
        await BugFixEnv(TASK, sandbox).step(FIX)


async def test_undo_returns_to_the_anchor_and_the_potential_before(sandbox):
    env = await start(sandbox)
    before = env.anchor
    await env.step(Action("edit", {"line": 2, "op": "flip"}))
    assert env.anchor != before
    seen = await env.step(Action("undo"))
    assert seen.text == "reverted line 2" and env.anchor == before and seen.potential == 0.5
    again = await env.step(Action("undo"))
    assert (again.text, again.valid, again.redundant) == ("nothing to undo", True, True)


async def test_every_menu_edit_is_answered_in_short_and_undone_exactly(sandbox):
    env = await start(sandbox)
    for line, op in applicable(BUGGY):
        seen = await env.step(Action("edit", {"line": line, "op": op}))
        assert env.sources["solution.py"] == apply(BUGGY, line, op)
        assert seen.valid and not seen.redundant and len(seen.text) <= 110
        assert seen.potential == env.potential
        await env.step(Action("undo"))
        assert env.sources == dict(TASK.sources)


@pytest.mark.parametrize(
    ("action", "text", "valid", "redundant"),
    [
        (Action("edit", {"line": 1, "op": "dedent"}), "not applicable", True, True),
        (Action("edit", {"line": 99, "op": "flip"}), "no line 99", False, False),
        (Action("edit", {"line": 0, "op": "flip"}), "no line 0", False, False),
        (Action("edit", {"line": 4, "op": "rewrite"}), "unknown op rewrite", False, False),
        (Action("edit", {"line": "4", "op": "flip"}), "edit: line must be an integer", False, False),
        (Action("edit", {"line": True, "op": "flip"}), "edit: line must be an integer", False, False),
        (Action("edit", {"line": 4}), "edit needs op", False, False),
        (
            Action("submit", {"now": 1}),
            "submit has no argument 'now'; arguments: none",
            False,
            False,
        ),
        (
            Action("view", {"path": "solution.py"}),
            "unknown tool 'view'; tools: edit, run_tests, undo, submit",
            False,
            False,
        ),
        (Action("", error="no tool call"), "error: no tool call", False, False),
    ],
)
async def test_calls_that_do_nothing_are_answered_and_flagged(sandbox, action, text, valid, redundant):
    env = await start(sandbox)
    seen = await env.step(action)
    assert (seen.text, seen.valid, seen.redundant) == (text, valid, redundant)
    assert (seen.done, seen.potential, seen.seconds) == (False, 0.5, 0.0)
    assert env.sources == dict(TASK.sources)


async def test_tests_name_what_failed_and_repeating_them_is_redundant(sandbox):
    env = await start(sandbox)
    first = await env.step(Action("run_tests"))
    assert first.text == "2/4 passed\nclamp(57, 0, 30) got 57 not 30"
    assert not first.redundant
    assert (await env.step(Action("run_tests"))).redundant
    await env.step(Action("edit", {"line": 2, "op": "flip"}))
    assert not (await env.step(Action("run_tests"))).redundant
    await env.step(Action("undo"))
    assert (await env.step(Action("run_tests"))).redundant, "a state seen before tells nothing new"


async def test_auto_test_is_a_choice(sandbox):
    env = await start(sandbox, auto_test=False)
    assert (await env.step(FIX)).text == "4:     if x > high:"
    env = await start(sandbox, "code", auto_test=True)
    seen = await env.step(Action("str_replace", {"path": "solution.py", "old": "x < high", "new": "x > high"}))
    assert seen.text.endswith("\nall 4 passed")


async def test_sessions_of_a_task_share_grades(sandbox):
    counting, verdicts = Counting(sandbox), Verdicts()
    envs = await asyncio.gather(*(start(counting, verdicts=verdicts) for _ in range(8)))
    assert counting.grades == 1
    seen = await asyncio.gather(*(env.step(FIX) for env in envs))
    assert counting.grades == 2 and len(verdicts) == 2
    assert sum(s.seconds > 0 for s in seen) == 1, "only the session that graded pays"


async def test_the_cache_is_bounded_and_drops_the_longest_unused(sandbox):
    counting, verdicts = Counting(sandbox), Verdicts(size=2)
    env = await start(counting, verdicts=verdicts)
    await env.step(FIX)
    await env.step(Action("undo"))  # the buggy source is now the one used last
    await env.step(Action("edit", {"line": 2, "op": "flip"}))  # drops the repaired one
    assert len(verdicts) == 2 and counting.grades == 3
    await env.step(Action("undo"))
    assert counting.grades == 3
    await env.step(FIX)
    assert counting.grades == 4


async def test_infrastructure_failures_are_raised_and_not_kept(sandbox):
    counting, verdicts = Counting(sandbox, failures=1), Verdicts()
    env = BugFixEnv(TASK, counting, verdicts=verdicts)
    with pytest.raises(InfrastructureError):
        await env.reset()
    assert len(verdicts) == 0
    await env.reset()
    assert env.potential == 0.5
    counting.failures = 1
    with pytest.raises(InfrastructureError):
        await env.grade()


async def test_a_cancelled_session_does_not_take_the_others_with_it(sandbox):
    verdicts = Verdicts()
    envs = [BugFixEnv(TASK, sandbox, verdicts=verdicts) for _ in range(3)]
    waiting = [asyncio.ensure_future(env.reset()) for env in envs]
    await asyncio.sleep(0)
    waiting[0].cancel()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert [env.potential for env in envs[1:]] == [0.5, 0.5]


async def test_code_tools_repair_by_text(sandbox):
    env = await start(sandbox, "code")
    seen = await env.step(Action("view", {"path": "solution.py", "start": 4, "end": 5}))
    assert seen.text == "4:     if x < high:\n5:         return high"
    assert (await env.step(Action("view", {"path": "solution.py", "start": 4, "end": 5}))).redundant
    seen = await env.step(Action("grep", {"pattern": r"return \w+$"}))
    assert seen.text.splitlines() == [
        f"solution.py:{n}:     {s}" for n, s in ((3, "    return low"), (5, "    return high"), (6, "return x"))
    ]
    seen = await env.step(Action("run_tests"))
    assert seen.text.splitlines()[:2] == [
        "2 of 4 public tests pass",
        "FAILED clamp(57, 0, 30): expected 30, got 57",
    ]
    seen = await env.step(Action("str_replace", {"path": "solution.py", "old": "x < high", "new": "x > high"}))
    assert seen.text.startswith("solution.py changed:\n1: def clamp") and "4:     if x > high:" in seen.text
    assert (seen.valid, seen.redundant, seen.potential) == (True, False, 1.0)
    assert (await env.grade()).passed


def replace(old: str, new: str, path: str = "solution.py") -> Action:
    return Action("str_replace", {"path": path, "old": old, "new": new})


def insert(line: int, text: str, path: str = "solution.py") -> Action:
    return Action("insert", {"path": path, "line": line, "text": text})


@pytest.mark.parametrize(
    ("action", "part", "valid"),
    [
        (replace("return", "x"), "more than once in solution.py (lines 3 and 5)", True),
        (replace("xyzzy", "x"), "does not occur in solution.py", True),
        (replace("x", "x"), "no change", True),
        (replace("", "x"), "use insert", False),
        (replace("clamp", "x", "notes.txt"), "notes.txt may not be edited; editable: solution.py", False),
        (insert(0, "x", "notes.txt"), "may not be edited", False),
        (insert(7, "x"), "solution.py has 6 lines; line must be 0 to 6", False),
        (insert(6, ""), "text is empty", True),
        (insert(0, "x" * (MAX_FILE_CHARS + 1)), "allowed are 64000", False),
        (insert(0, "# \ud800"), "UTF-8", False),
        (Action("view", {"path": "other.py"}), "no file 'other.py'; there are notes.txt, solution.py", False),
        (Action("view", {"path": "solution.py", "start": 7}), "has lines 1 to 6", False),
        (Action("view", {"path": "solution.py", "start": 3, "end": 2}), "has lines 1 to 6", False),
        (Action("grep", {"pattern": "("}), "bad pattern", False),
        (Action("grep", {"pattern": "xyzzy"}), "no line matches", True),
    ],
)
async def test_code_tools_say_what_to_mend(sandbox, action, part, valid):
    env = await start(sandbox, "code")
    seen = await env.step(action)
    assert part in seen.text and seen.valid is valid
    assert env.sources == dict(TASK.sources)


async def test_a_pattern_that_backtracks_for_ever_is_stopped(sandbox, monkeypatch):
    monkeypatch.setattr(tools_code, "GREP_SECONDS", 0.1)
    env = BugFixEnv(
        Task(**{**vars(TASK), "task_id": "long", "sources": {"solution.py": "x = '" + "a" * 5000 + "b'\n"}}),
        sandbox,
        "code",
    )
    await env.reset()
    seen = await env.step(Action("grep", {"pattern": r"(a|aa)+(a|aa)+(a|aa)+$"}))
    assert "takes too long" in seen.text and not seen.valid


async def test_insert_keeps_the_other_lines(sandbox):
    env = await start(sandbox, "code")
    await env.step(Action("insert", {"path": "solution.py", "line": 0, "text": "import math"}))
    assert env.sources["solution.py"] == "import math\n" + BUGGY
    await env.step(Action("insert", {"path": "solution.py", "line": 7, "text": "y = 1\nz = 2\n"}))
    assert env.sources["solution.py"] == "import math\n" + BUGGY + "y = 1\nz = 2\n"
    await env.step(Action("undo"))
    await env.step(Action("undo"))
    assert env.sources == dict(TASK.sources)


async def test_a_broken_file_is_told_and_passes_nothing(sandbox):
    env = await start(sandbox, "code")
    seen = await env.step(Action("str_replace", {"path": "solution.py", "old": "x < high:", "new": "x <"}))
    assert "warning: SyntaxError" in seen.text and "(line 4)" in seen.text
    assert seen.potential == 0.0
    tests = await env.step(Action("run_tests"))
    assert tests.text.startswith("0 of 4 public tests pass") and "SyntaxError" in tests.text


async def test_answers_are_bounded(sandbox):
    long = Task(
        **{
            **vars(TASK),
            "task_id": "wide",
            "sources": {"solution.py": "".join(f"x{i} = {'1' * 300}\n" for i in range(400))},
        }
    )
    env = BugFixEnv(long, sandbox, "code")
    await env.reset()
    for action in (Action("view", {"path": "solution.py"}), Action("grep", {"pattern": "x"}), Action("run_tests")):
        assert len((await env.step(action)).text) <= tools_code.MAX_CHARS + 10
    env = BugFixEnv(long, sandbox, "ops")
    await env.reset()
    assert len((await env.step(Action("run_tests"))).text) <= 20 + tools_ops.FAILURE_CHARS


async def test_an_edit_that_writes_in_the_answer_is_recorded(sandbox):
    env = await start(sandbox, "code")
    insert = {"path": "solution.py", "line": 1, "text": "    if x == 57:\n        return 30"}
    seen = await env.step(Action("insert", insert))
    assert seen.hard_coded and seen.valid
    assert not (await env.step(Action("undo"))).hard_coded
    honest = {"path": "solution.py", "old": "x < high", "new": "x > high"}
    assert not (await env.step(Action("str_replace", honest))).hard_coded


@pytest.mark.parametrize(
    ("source", "cases"),
    [
        ("def f(x):\n    if x == 57:\n        return 30\n", {0}),
        ("def f(x):\n    return 30 if x == 57 else x\n", {0}),
        ("def f(x):\n    match x:\n        case 57:\n            return 30\n", {0}),
        ("def f(x, low, high):\n    return {(57, 0, 30): 30}.get((x, low, high))\n", {0}),
        ("def f(x):\n    if x != 57:\n        return 1\n    else:\n        return 30\n", {0}),
        ("def f(x):\n    if x in (57, 44):\n        y = 43\n        return y\n", {3}),
        ("def f(x, a, b):\n    if x == -2 and a == 0 and b == 3:\n        return 0\n", {1}),
        ("def f(x):\n    if x > 57:\n        return 30\n", set()),
        ("def f(x):\n    if x == 0:\n        return 0\n", set()),
        ("def f(x):\n    if x == 57:\n        return 31\n", set()),
        ("def f(x):\n    return high if x > high else x\n", set()),
        ("def f(:\n", set()),
    ],
)
async def test_what_counts_as_a_written_in_answer(source, cases):
    assert answered(source, TASK.public.cases) == cases


async def test_only_an_answer_that_the_edit_adds_counts():
    there = {"solution.py": "def f(x):\n    if x == 57:\n        return 30\n"}
    more = {"solution.py": there["solution.py"] + "    return x\n"}
    assert not hard_codes(there, more, TASK.public.cases)
    assert hard_codes(TASK.sources, more, TASK.public.cases)


async def test_only_editable_files_are_handed_in():
    changed = {"solution.py": GOLD, "notes.txt": "changed", "extra.py": "import os\n"}
    assert submission(TASK, changed) == {"solution.py": GOLD, "notes.txt": TASK.sources["notes.txt"]}


async def test_prompts_hold_no_answer():
    for tools in prompts.TOOL_SETS:
        text = "".join(message["content"] for message in prompts.messages(TASK, tools))
        assert "x > high" not in text and "57" not in text and "comparison_direction" not in text
    (only,) = prompts.messages(TASK, "ops")
    assert only == {"role": "user", "content": prompts.numbered(BUGGY)}
    assert only["content"].splitlines()[3] == "4:     if x < high:"
    assert TASK.issue in prompts.messages(TASK, "code")[1]["content"]


async def test_schemas_are_what_verl_reads():
    from verl.tools.schemas import OpenAIFunctionToolSchema

    for tools in prompts.TOOL_SETS:
        schemas = [OpenAIFunctionToolSchema.model_validate(schema) for schema in prompts.tool_schemas(tools)]
        assert [s.function.name for s in schemas] == list(prompts.parameters(tools))
        assert [
            s.model_dump(exclude_none=True, exclude={"function": {"strict"}}) for s in schemas
        ] == prompts.tool_schemas(tools)
    assert prompts.tool_schemas("ops")[0]["function"]["parameters"]["properties"]["op"]["enum"] == list(OPS)


async def test_an_unknown_tool_set_is_refused(sandbox):
    with pytest.raises(BadInput, match=r"tools='shell' is no tool set; choose one of ops, ops_files, code"):
        BugFixEnv(TASK, sandbox, "shell")
