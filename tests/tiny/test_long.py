"""TinyAgent for long tasks: its tokens, sessions of its teacher under every manager, and what is learnt of them."""

from __future__ import annotations

import json
import random

import pytest
import pytest_asyncio
from transformers import AutoTokenizer

from tests.gym.test_long import POOL
from verl_ext.agent.folding import REQUEST, manager
from verl_ext.agent.settings import ContextConfig
from verl_ext.gym.env import BugFixEnv, Verdicts
from verl_ext.gym.generator import generate_many
from verl_ext.gym.lengthen import lengthen
from verl_ext.gym.prompts import numbered, tool_schemas
from verl_ext.sandbox import open_sandbox
from verl_ext.tiny import data, worked
from verl_ext.tiny.check import read_call
from verl_ext.tiny.dataset import TEXT_WEIGHT, SessionDataset
from verl_ext.tiny.long_play import Measure, Played, play
from verl_ext.tiny.long_teacher import MANAGERS, LongPolicy, sessions
from verl_ext.tiny.long_tokenizer import TAIL, TOP_FILE, WRITTEN, head, long_tokens, train_long_tokenizer
from verl_ext.tiny.long_worked import long_repair
from verl_ext.tiny.tokenizer import PARSER, call_text, fixed_tokens
from verl_ext.types import Action, BadInput

TASKS = lengthen(POOL, 0)
SMALL = 190, 260
"""Budgets that sessions on three lines of code outgrow."""
CALLS = [
    *(("view", {"file": number}) for number in range(1, TOP_FILE + 1)),
    ("note", {"text": "file 2 tried 3 15"}),
    ("branch", {"goal": "file 3"}),
    ("return", {"message": "not fixed tried 4 21"}),
    ("return", {"message": "fixed"}),
    ("edit", {"line": 12, "op": "flip"}),
    ("submit", {}),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("long")
    train_long_tokenizer(numbered(program.source) for program in generate_many(3, 60)).save_pretrained(path)
    return AutoTokenizer.from_pretrained(path)


@pytest.fixture(scope="module")
def measure(tokenizer) -> Measure:
    return Measure(tokenizer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox():
    sandbox = await open_sandbox()
    yield sandbox
    await sandbox.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played(sandbox, measure) -> list[Played]:
    return await sessions(TASKS * 4, sandbox, measure, seed=0, insight=0.0, budgets=SMALL)


def pieces(tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer(text, add_special_tokens=False).input_ids]


def test_fixed_parts_are_one_token_each(tokenizer):
    for text in (*fixed_tokens(), *long_tokens()):
        assert pieces(tokenizer, text) == [text]
    count = len(long_tokens())
    assert [tokenizer.decode([i]) for i in range(len(tokenizer) - count, len(tokenizer))] == long_tokens(), "appended"


def test_written_calls_are_head_words_and_tail(tokenizer):
    assert pieces(tokenizer, call_text("note", {"text": "file 2 tried 3 15"})) == [
        head("note"), "file", " ", "2", " ", "tried", " ", "3", " ", "15", TAIL,
    ]  # fmt: skip
    assert pieces(tokenizer, call_text("return", {"message": "fixed"})) == [head("return"), "fixed", TAIL]
    assert pieces(tokenizer, call_text("branch", {"goal": "file 3"}))[0] == head("branch")


async def test_verls_parser_reads_every_call(tokenizer):
    from verl.experimental.agent_loop.tool_parser import ToolParser

    parser = ToolParser.get_tool_parser(PARSER, tokenizer)
    for tool, arguments in CALLS:
        text = call_text(tool, arguments)
        ids = [*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        _, (call,) = await parser.extract_tool_calls(ids)
        assert (call.name, json.loads(call.arguments)) == (tool, arguments)
        assert (read_call(text).tool, dict(read_call(text).arguments)) == (tool, arguments)


def test_tools_that_are_written_are_those_of_the_managers():
    schemas = [schema["function"] for name in MANAGERS for schema in manager(name).schemas]
    assert {s["name"]: list(s["parameters"]["properties"]) for s in schemas} == {k: [v] for k, v in WRITTEN.items()}
    assert "view" in [schema["function"]["name"] for schema in tool_schemas("ops_files")]


def test_a_measure_is_what_verls_builder_fills(tokenizer, measure):
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    builder = create_continuous_token_builder(tokenizer, hf_model_type="qwen3")
    messages = [
        {"role": "user", "content": "1: a_b.py\n2: c.py\nfold"},
        {"role": "assistant", "content": call_text("view", {"file": 2})},
        {"role": "tool", "content": numbered(POOL[0].sources["solution.py"])},
    ]
    for count in (1, 3):
        assert measure(messages[:count]) + 1 == len(builder.build_initial_tokens(messages[:count]))


@pytest.mark.asyncio(loop_scope="module")
async def test_every_manager_keeps_its_sessions_within_the_budget(played, measure):
    assert {session.manager for session in played} == set(MANAGERS)
    shortened = {session.manager for session in played if len(session.segments) > 1}
    assert shortened == set(MANAGERS) - {"none"}
    for session in played:
        for segment in session.segments:
            assert measure(segment.messages) <= session.budget
            assert segment.messages[-1]["role"] == "assistant" or segment is session.segments[-1]


@pytest.mark.asyncio(loop_scope="module")
async def test_each_message_is_learnt_once(played):
    for session in played:
        assert sum(sum(segment.sampled) for segment in session.segments) == session.turns
        for segment in session.segments:
            assert not any(segment.sampled[: segment.shown]) and any(segment.sampled)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_later_context_repeats_what_an_earlier_one_held(played):
    """Of the policy's messages: no context knows a call that was not made before it."""
    for session in played:
        made: list[str] = []
        for segment in session.segments:
            shown = [m["content"] for m in segment.messages[: segment.shown] if m["role"] == "assistant"]
            assert set(shown) <= set(made)
            made += [m["content"] for m, own in zip(segment.messages, segment.sampled, strict=True) if own]


def made(session: Played) -> list[Action]:
    return [
        read_call(message["content"])
        for segment in session.segments
        for message, own in zip(segment.messages, segment.sampled, strict=True)
        if own
    ]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_teacher_uses_the_managers_tools_and_views_before_it_edits(played):
    for session in played:
        tools = [action.tool for action in made(session)]
        assert all(action.error is None for action in made(session))
        if session.manager != "note":
            assert "note" not in tools
        if session.manager != "fold":
            assert "branch" not in tools and "return" not in tools
        viewed = meant = None
        for action in made(session):
            if action.tool == "view":
                viewed = meant = action.arguments["file"]
            if action.tool == "branch":
                meant = int(action.arguments["goal"].removeprefix("file "))
            assert action.tool != "edit" or (viewed == meant and viewed), "an edit goes to the file viewed last"
    by = {name: [a for s in played if s.manager == name for a in made(s)] for name in ("note", "fold")}
    notes = [action.arguments["text"] for action in by["note"] if action.tool == "note"]
    assert any(note.startswith("file ") and " tried " in note for note in notes)
    assert any(action.tool == "branch" for action in by["fold"])
    assert any(a.tool == "return" and a.arguments["message"].startswith("not fixed tried") for a in by["fold"])


@pytest.mark.asyncio(loop_scope="module")
async def test_asked_for_a_note_the_teacher_writes_one(played):
    asked = [
        read_call(after["content"]).tool
        for session in played
        for segment in session.segments
        for before, after in zip(segment.messages, segment.messages[1:], strict=False)
        if before["content"].endswith(REQUEST)
    ]
    assert asked and set(asked) == {"note"}


@pytest.mark.asyncio(loop_scope="module")
async def test_sessions_depend_on_the_seed_alone(sandbox, measure, played):
    again = await sessions(TASKS, sandbox, measure, seed=0, insight=0.0, budgets=SMALL, parallel=3)
    assert again == played[: len(TASKS)]
    assert await sessions(TASKS, sandbox, measure, seed=1, insight=0.0, budgets=SMALL) != played[: len(TASKS)]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_teacher_mostly_views_the_file_whose_function_fails(sandbox):
    env = BugFixEnv(TASKS[0], sandbox, "ops_files", verdicts=Verdicts())
    await env.reset()
    context = manager("none")(ContextConfig())
    report = (await env.step(Action("run_tests"))).text
    told = [*env.prompt(), {"role": "tool", "content": report}]
    views = [LongPolicy(random.Random(seed))(env, context, told) for seed in range(200)]
    right = sum(view == Action("view", {"file": TASKS[0].provenance["file"]}) for view in views)
    assert 158 <= right < 200, "0.9 of 200, five standard deviations less"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_context_that_is_too_small_ends_the_session(sandbox, measure):
    task = TASKS[0]

    def view(env, context, messages):
        return Action("view", {"file": 1})

    small = measure(BugFixEnv(task, sandbox, "ops_files").prompt()) + 60
    found = await play(task, sandbox, view, ContextConfig(manager="none", budget=small), measure, 10)
    assert 1 <= found.turns < 10 and len(found.segments) == 1


def test_long_worked_repairs_name_the_failing_function():
    pool = worked.programs([], seed=0, count=20)
    found = worked.worked_repairs(pool, [], 0, written=long_repair(pool, 0))
    plain = worked.worked_repairs(pool, [], 0)
    assert len(found) == len(plain)
    for long, short in zip(found, plain, strict=True):
        files = [line.split(": ")[1] for line in long[0]["content"].split("\n")]
        assert files == sorted(files) and len(files) in (3, 4)
        view = read_call(long[3]["content"])
        number = view.arguments["file"]
        name = files[number - 1].removesuffix(".py")
        assert long[2]["content"].split("\n")[1].startswith(f"file {number}: {name[:40]}")
        assert [long[4]["content"], *[m["content"] for m in long[5:]]] == [m["content"] for m in short]


def test_rows_for_verl_weigh_what_is_shown_again_as_read(tokenizer, tmp_path):
    calls = [call_text("view", {"file": n}) for n in (1, 2)]
    shown = [{"role": "user", "content": "1: a.py"}, {"role": "assistant", "content": calls[0]}]
    messages = [*shown, {"role": "tool", "content": "[dropped]"}, {"role": "assistant", "content": calls[1]}]
    data.write_rows(tmp_path / "rows.parquet", [messages], 0, [[False, False, False, True]])
    (row,) = [SessionDataset(str(tmp_path / "rows.parquet"), tokenizer)[0]]
    assert tokenizer.decode(row["input_ids"][row["loss_mask"] == 1]) == calls[1] + "<|im_end|>"
    assert sorted({round(weight, 6) for weight in row["loss_mask"].tolist()}) == [0.0, TEXT_WEIGHT, 1.0]


def test_tasks_of_the_other_kind_are_refused():
    assert data.train_tasks(TASKS, long=True) == TASKS
    for tasks, long in ((TASKS, False), (POOL, True)):
        with pytest.raises(BadInput, match="give `verl-ext tiny build` --long for tasks that were built with --long"):
            data.train_tasks(tasks, long=long)
