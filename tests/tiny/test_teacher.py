"""The teacher's sessions, the SFT data made of them, and the loss mask."""

from __future__ import annotations

import dataclasses
import random

import pyarrow.parquet as pq
import pytest
import pytest_asyncio

from verl_ext.gym import plan, splits, validate
from verl_ext.gym.edits import applicable, apply
from verl_ext.gym.env import BugFixEnv
from verl_ext.gym.generator import generate_many
from verl_ext.gym.prompts import numbered
from verl_ext.gym.splits import HELDOUT_TEMPLATES
from verl_ext.sandbox import open_sandbox
from verl_ext.tiny import data, worked
from verl_ext.tiny.check import read_call
from verl_ext.tiny.dataset import TEXT_WEIGHT, SessionDataset, sampled
from verl_ext.tiny.teacher import Habits, Session, WeakPolicy, repairs, sessions
from verl_ext.tiny.tokenizer import call_text, train_tokenizer
from verl_ext.types import BadInput, Case, Task, Tests

GOLD = """def largest(values):
    best = values[0]
    for x in values:
        if x > best:
            best = x
    return best
"""
SMALLEST = GOLD.replace("x > best", "x < best")


def task(task_id: str = "largest/direction", split: str = "train", source: str = SMALLEST, gold: str = GOLD) -> Task:
    public = Tests(cases=(Case("largest", ([3, 9, 2],), expected=9), Case("largest", ([4],), expected=4)))
    hidden = Tests(cases=(Case("largest", ([1, 5],), expected=5), Case("largest", ([7, 6],), expected=7)))
    return Task(
        task_id=task_id,
        sources={"solution.py": source},
        editable=("solution.py",),
        issue="Return the largest of the values.",
        public=public,
        hidden=hidden,
        bug_type="comparison_direction",
        gold={"solution.py": gold},
        split=split,
        provenance={"function": "largest"},
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox():
    sandbox = await open_sandbox()
    yield sandbox
    await sandbox.aclose()


def calls(session: Session) -> list[tuple[str, dict]]:
    read = [read_call(message["content"]) for message in session.messages if message["role"] == "assistant"]
    assert all(action.error is None for action in read)
    return [(action.tool, dict(action.arguments)) for action in read]


def test_the_repair_is_found_in_the_menu():
    assert repairs(task()) == [(4, "flip")]
    assert apply(SMALLEST, 4, "flip") == GOLD


@pytest.mark.asyncio(loop_scope="module")
async def test_with_full_insight_the_first_edit_is_the_repair(sandbox):
    found = await sessions([task()] * 20, sandbox, seed=1, insight=1.0, judge=True)
    for session in found:
        made = [call for call in calls(session) if call[0] != "run_tests"]
        assert made == [("edit", {"line": 4, "op": "flip"}), ("submit", {})]
        assert session.passed


@pytest.mark.asyncio(loop_scope="module")
async def test_insight_is_a_chance_at_every_edit_of_the_original_source(sandbox):
    found = await sessions([task()] * 150, sandbox, seed=3, insight=0.5)
    repaired = [[call == ("edit", {"line": 4, "op": "flip"}) for call in calls(s) if call[0] == "edit"] for s in found]
    first = [edits[0] for edits in repaired if edits]
    # One of a dozen edits is the repair anyway: 0.5 + 0.5/12 expected, five standard deviations of 150 allowed.
    assert 0.34 < sum(first) / len(first) < 0.75
    assert any(True in edits[1:] for edits in repaired), "a later edit too"


@pytest.mark.asyncio(loop_scope="module")
async def test_the_weak_policy_explores_and_keeps_the_limit(sandbox):
    found = await sessions([task()] * 40, sandbox, seed=2, turns=6, judge=True)
    tools = [tool for session in found for tool, _ in calls(session)]
    assert set(tools) == {"edit", "run_tests", "undo", "submit"}
    assert all(1 <= session.turns <= 6 for session in found)
    edits = {(a["line"], a["op"]) for session in found for tool, a in calls(session) if tool == "edit"}
    assert len(edits) > 5
    assert 0 < sum(session.passed for session in found) < 40, "weak, not hopeless"
    for session in found:
        roles = [message["role"] for message in session.messages]
        assert roles == ["user", *["assistant", "tool"] * (session.turns - 1), "assistant"]


@pytest.mark.asyncio(loop_scope="module")
async def test_sessions_depend_on_the_seed_alone(sandbox):
    once, again, other = [
        await sessions([task()] * 6, sandbox, seed=seed, parallel=parallel)
        for seed, parallel in ((5, 1), (5, 6), (6, 6))
    ]
    assert once == again != other


@pytest.mark.asyncio(loop_scope="module")
async def test_repeats_are_a_habit(sandbox):
    """Without it every menu edit is tried before any is tried again: no edit gives 100."""
    never = Tests(cases=(Case("largest", ([3, 9, 2],), expected=100),))
    env = BugFixEnv(dataclasses.replace(task("never"), public=never), sandbox)
    await env.reset()
    policy = WeakPolicy(random.Random(0), Habits(look_first=0, look_again=0, give_up=0, keep_failed_edit=0, repeat=0))
    tried = []
    while len(tried) < len(applicable(SMALLEST)):
        action = policy(env)
        if action.tool == "edit":
            tried.append((action.arguments["line"], action.arguments["op"]))
        await env.step(action)
    assert sorted(tried) == sorted(applicable(SMALLEST))


def test_programs_of_worked_repairs_are_of_no_evaluated_task():
    drawn = generate_many(1_000_003, 60)
    named, copied = [p for p in drawn if p.template not in HELDOUT_TEMPLATES][:2]
    by_name = {"provenance": {"function": named.name}}
    by_text = {"provenance": {"function": "another"}, "gold": {"solution.py": copied.source}}
    tasks = [task(), *(dataclasses.replace(task(split, split), **x) for split, x in (("val", by_name), ("z", by_text)))]
    found = worked.programs(tasks, seed=0, count=60)
    held = [p for p in drawn if p.template in HELDOUT_TEMPLATES]
    assert held and len(found) == 60 - len(held) - 2
    assert not {p.source for p in found} & {p.source for p in (*held, named, copied)}


@pytest.mark.asyncio(loop_scope="module")
async def test_worked_repairs_read_like_played_ones(sandbox):
    pool = worked.programs([], seed=0, count=12)
    found = worked.worked_repairs(pool, [], seed=0)
    assert len(found) > len(pool)
    program = pool[0]
    prompt, call, answer, last = found[0]
    rng = random.Random(0)
    cases = tuple(program.inputs(rng) for _ in range(validate.PUBLIC))
    outcomes = await sandbox.evaluate({"solution.py": program.source}, Tests(cases=cases))
    cases = tuple(
        dataclasses.replace(case, expected=outcome.value, raises=outcome.raised)
        for case, outcome in zip(cases, outcomes, strict=True)
    )
    source = "\n".join(line.split(": ", 1)[1] for line in prompt["content"].split("\n")) + "\n"
    env = BugFixEnv(dataclasses.replace(task("w", source=source), public=Tests(cases=cases)), sandbox)
    await env.reset()
    assert env.prompt()[0]["content"] == prompt["content"]
    assert (await env.step(read_call(call["content"]))).text == answer["content"]
    assert env.sources["solution.py"] == program.source
    assert read_call(last["content"]).tool == "submit"


def test_no_worked_repair_shows_an_evaluated_text():
    pool = worked.programs([], seed=0, count=12)
    before = worked.worked_repairs(pool, [], seed=0)
    wishes_of = [w.mutant.source for w in plan.wishes(splits.Source(pool[0], "train"), 0) if w.repair]
    judged = task("judged", "val", source=wishes_of[0])
    after = worked.worked_repairs(pool, [judged], seed=0)
    assert [c for c in before if c not in after] == [c for c in before if c[0]["content"] == numbered(wishes_of[0])]
    assert len(after) == len(before) - 1


def test_no_train_split_is_refused():
    with pytest.raises(BadInput, match="no train split"):
        data.train_tasks([task(split="val")])


def test_the_mask_covers_what_a_policy_samples():
    """5 is the assistant mark, 1 the end of turn."""
    ids = [3, 9, 9, 1, 8, 5, 20, 21, 1, 8, 4, 9, 1, 8, 5, 22, 1, 8]
    assert sampled(ids, 5, 1) == [bool(x) for x in (0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0)]


def test_rows_for_verl(tmp_path):
    tokenizer = train_tokenizer([numbered(GOLD), numbered(SMALLEST)])
    calls_made = [call_text("edit", {"line": 4, "op": "flip"}), call_text("submit")]
    messages = (
        {"role": "user", "content": numbered(SMALLEST)},
        {"role": "assistant", "content": calls_made[0]},
        {"role": "tool", "content": "4:         if x > best:\nall 2 passed"},
        {"role": "assistant", "content": calls_made[1]},
    )
    path = tmp_path / "sft.parquet"
    data.write_rows(path, [messages, messages[:2]], seed=0)
    rows = SessionDataset(str(path), tokenizer)
    assert len(rows) == pq.read_table(path).num_rows == 2
    short, whole = sorted((rows[i] for i in range(2)), key=lambda row: len(row["input_ids"]))
    for row, own in ((short, calls_made[:1]), (whole, calls_made)):
        trained = tokenizer.decode(row["input_ids"][row["loss_mask"] == 1])
        assert trained == "".join(call + "<|im_end|>" for call in own)
        assert sorted({round(weight, 6) for weight in row["loss_mask"].tolist()}) == [0.0, TEXT_WEIGHT, 1.0]
        assert row["loss_mask"][0] == 0 and (row["loss_mask"][1:] > 0).all()
        assert row["position_ids"].tolist() == list(range(len(row["input_ids"])))
    assert whole["input_ids"].tolist() == tokenizer.apply_chat_template(list(messages), return_dict=False)
