"""The teacher's sessions, the SFT data made of them, and the loss mask."""

from __future__ import annotations

import dataclasses
import random

import pyarrow.parquet as pq
import pytest
import pytest_asyncio

from verl_ext.gym.edits import applicable, apply
from verl_ext.gym.env import BugFixEnv
from verl_ext.gym.generator import generate_many
from verl_ext.gym.prompts import numbered
from verl_ext.gym.splits import HELDOUT_TEMPLATES
from verl_ext.sandbox import open_sandbox
from verl_ext.tiny import data
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
async def test_demonstrations_repair_first_or_second_and_then_submit(sandbox):
    found = await sessions([task()] * 20, sandbox, seed=1, demonstrations=1.0, judge=True)
    places = set()
    for session in found:
        made = calls(session)
        edits = [arguments for tool, arguments in made if tool == "edit"]
        # Another edit may pass the public tests too; then the session ends there.
        assert edits[-1] == {"line": 4, "op": "flip"} or len(edits) == 1
        assert made[-1] == ("submit", {}) and session.demonstration
        places.add(len(edits))
    assert places == {1, 2}
    assert sum(session.passed for session in found) >= 18


@pytest.mark.asyncio(loop_scope="module")
async def test_the_weak_policy_explores_and_keeps_the_limit(sandbox):
    found = await sessions([task()] * 40, sandbox, seed=2, turns=6, judge=True)
    tools = [tool for session in found for tool, _ in calls(session)]
    assert set(tools) == {"edit", "run_tests", "undo", "submit"}
    assert all(1 <= session.turns <= 6 and not session.demonstration for session in found)
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


def test_code_comes_from_train_and_from_programs_that_are_not_evaluated():
    extra = generate_many(1_000_003, 60)
    judged = next(p for p in extra if p.template not in HELDOUT_TEMPLATES)
    held = {
        "provenance": {"function": judged.name},
        "gold": {"solution.py": judged.source},
    }
    tasks = [task(), dataclasses.replace(task("other", "val"), **held)]
    code = data.correct_code(tasks, seed=0, extra=60)
    assert GOLD in code and judged.source not in code
    hidden = {p.source for p in extra if p.template in HELDOUT_TEMPLATES}
    assert hidden and not hidden & set(code)
    assert len(code) == 1 + len({p.source for p in extra}) - len(hidden) - 1


def test_no_train_split_is_refused():
    with pytest.raises(BadInput, match="no train split"):
        data.train_tasks([task(split="val")])


def test_the_mask_covers_what_a_policy_samples():
    """5 is the assistant mark, 1 the end of turn."""
    ids = [3, 9, 9, 1, 8, 5, 20, 21, 1, 8, 4, 9, 1, 8, 5, 22, 1, 8]
    assert sampled(ids, 5, 1) == [0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]


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
    data.write_sft(path, [Session(messages, "t", True, 2, None)], [GOLD], seed=0)
    assert pq.read_table(path).num_rows == 2
    rows = SessionDataset(str(path), tokenizer)
    by_text = {tokenizer.decode(rows[i]["input_ids"]): rows[i] for i in range(2)}
    (session,) = [row for text, row in by_text.items() if "tool_call" in text]
    (plain,) = [row for text, row in by_text.items() if "tool_call" not in text]
    trained = tokenizer.decode(session["input_ids"][session["loss_mask"] == 1])
    assert trained == "".join(call + "<|im_end|>" for call in calls_made)
    assert plain["loss_mask"].tolist() == [0.0] + [pytest.approx(TEXT_WEIGHT)] * (len(plain["input_ids"]) - 1)
    assert plain["input_ids"].tolist() == tokenizer.apply_chat_template(
        [{"role": "user", "content": numbered(GOLD)}], return_dict=False
    )
    for row in (session, plain):
        assert row["loss_mask"][0] == 0 and row["position_ids"].tolist() == list(range(len(row["input_ids"])))
