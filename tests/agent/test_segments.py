"""Segments of real sessions: environment, tokenizer, parser and builder are real, the sampler is a script.

Each row is held against what the sampler was asked and answered at the time. So whatever a manager does later cannot
have changed it: no later knowledge in an earlier context, no copied mask, no token trained twice.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

pytest.importorskip("verl")

from tokenizers import AddedToken

from tests.agent.test_loop import BUGGY, FIX, SUBMIT, TASK, TEST, UNDO, WRONG, configuration, play_rows
from tests.agent.test_loop import closed_sandboxes as closed_sandboxes
from verl_ext.agent.context import DROPPED
from verl_ext.agent.folding import NOTED, OPENED, REQUEST
from verl_ext.agent.settings import ContextConfig
from verl_ext.credit import TurnTable, gigpo
from verl_ext.gym.prompts import messages
from verl_ext.tiny.tokenizer import call_text, train_tokenizer
from verl_ext.types import Turn

NOTE = call_text("note", {"text": "tried 3"})
BRANCH = call_text("branch", {"goal": "mend solution"})
RETURN = call_text("return", {"message": "flip helped"})
ELSEWHERE = call_text("branch", {"goal": "other.py and solution"})
BY_NUMBER = call_text("branch", {"goal": "file 2"})
MANAGERS = ("none", "drop_oldest", "env_summary", "note", "fold")


@pytest.fixture(scope="module")
def tokenizer():
    """As short as TinyAgent's: each call of the script is one token."""
    trained = train_tokenizer([message["content"] for message in messages(TASK, "ops")] + [BUGGY] * 20)
    own = [NOTE, BRANCH, RETURN, ELSEWHERE, BY_NUMBER]
    trained.add_tokens([AddedToken(text, normalized=False) for text in own])
    return trained


def folding(manager, budget=220, turns=40, response=400, seed_calls=(), **context):
    return configuration(
        max_turns=turns,
        response=response,
        max_turn_tokens=context.pop("max_turn_tokens", 24),
        max_invalid_calls=context.pop("max_invalid_calls", 100),
        context={"manager": manager, "budget": budget, **context},
    )


def check_rows(rows, script):
    """Rows hold what was sampled, each token once, in the context it was sampled in; answers the contexts' texts."""
    turns = [(row, turn) for row in rows for turn in row.extra_fields["session"]["turns"]]
    assert [turn["index"] for _, turn in turns] == list(range(len(turns)))
    for (row, turn), (prompt, sampled) in zip(turns, script.seen, strict=False):
        ids, at = row.prompt_ids + row.response_ids, len(row.prompt_ids)
        assert ids[: at + turn["start"]] == prompt and ids[at + turn["start"] : at + turn["end"]] == sampled
    for row in rows:
        covered = {i for turn in row.extra_fields["session"]["turns"] for i in range(turn["start"], turn["end"])}
        assert {i for i, bit in enumerate(row.response_mask) if bit} == covered and row.response_mask[-1] == 1
        assert len(row.response_ids) == len(row.response_mask) == len(row.response_logprobs)
    trained = sum(sum(row.response_mask) for row in rows)
    assert trained == sum(len(sampled) for _, sampled in script.seen[: len(turns)])
    return turns


@pytest.mark.parametrize("name", MANAGERS)
async def test_each_sampled_token_is_trained_once_in_the_context_it_was_sampled_in(tokenizer, name):
    """Random sessions of random budgets; folding managers must also have folded."""
    several = 0
    for seed in range(6):
        rng = random.Random(f"{name}/{seed}")
        own = {"note": [NOTE], "fold": [BRANCH, RETURN], "env_summary": [TEST] * 20}.get(name, [])
        lines = [rng.choice([TEST, WRONG, UNDO, FIX, "babble", *own, *own]) for _ in range(40)]
        config = folding(name, budget=rng.randint(200, 300), branch_turns=rng.randint(2, 5), max_segments=20)
        rows, script = await play_rows(tokenizer, lines, config)
        check_rows(rows, script)
        several += len(rows) > 1
        for row in rows:
            assert len(row.prompt_ids) + len(row.response_ids) <= row.extra_fields["session"]["budget"]
    assert several == 0 if name == "none" else several >= 4


async def test_overflow_without_a_manager_is_a_stop_reason(tokenizer):
    ((row,), _) = await play_rows(tokenizer, [TEST, UNDO] * 21, folding("none"))
    assert row.extra_fields["session"]["stop"] == "context_overflow"


async def test_dropped_answers_and_whole_turns_stand_in_the_new_prompt(tokenizer):
    rows, script = await play_rows(tokenizer, [TEST, WRONG, UNDO] * 14, folding("drop_oldest"))
    check_rows(rows, script)
    first, second = (tokenizer.decode(row.prompt_ids) for row in rows[:2])
    assert DROPPED not in first and DROPPED in second
    assert second.startswith(first.removesuffix("<|im_start|>assistant\n"))  # the task stays


async def test_summaries_say_how_things_stood_then(tokenizer):
    """`time travel`: after the repair, earlier lines still tell of the state before it."""
    rows, script = await play_rows(
        tokenizer, [TEST, FIX, TEST, UNDO, TEST, FIX] * 8, folding("env_summary", keep_turns=1)
    )
    check_rows(rows, script)
    prompt = tokenizer.decode(rows[1].prompt_ids)
    assert "run_tests: ok, 1/2 passed" in prompt and "edit 4: ok, 2/2 passed" in prompt
    assert prompt.index("run_tests: ok, 1/2") < prompt.index("edit 4: ok, 2/2")


async def test_a_note_is_an_action_and_replaces_the_history(tokenizer):
    rows, script = await play_rows(tokenizer, [TEST, WRONG, NOTE, FIX, SUBMIT], folding("note"))
    turns = check_rows(rows, script)
    assert [turn["tool"] for _, turn in turns] == ["run_tests", "edit", "note", "edit", "submit"]
    assert [len(row.extra_fields["session"]["turns"]) for row in rows] == [3, 2]
    prompt = tokenizer.decode(rows[1].prompt_ids)
    assert NOTE in prompt and NOTED in prompt and WRONG not in prompt
    assert rows[-1].extra_fields["session"]["stop"] == "submitted"


async def test_a_note_is_asked_for_in_an_observation(tokenizer):
    lines = [TEST, WRONG, UNDO, WRONG, UNDO, WRONG, UNDO, NOTE, SUBMIT]
    config = folding("note", budget=260)
    rows, script = await play_rows(tokenizer, lines, config)
    while REQUEST not in tokenizer.decode(script.seen[-2][0]):  # the note comes too early or too late: move it
        lines.insert(0, TEST) if len(rows) > 1 else lines.pop(1)
        rows, script = await play_rows(tokenizer, lines, config)
    check_rows(rows, script)
    asked = tokenizer.decode(rows[0].response_ids)
    assert REQUEST in asked and len(rows) == 2
    # The request is observed, the note is trained.
    sampled = [i for i, bit in zip(rows[0].response_ids, rows[0].response_mask, strict=True) if bit]
    assert REQUEST not in tokenizer.decode(sampled) and NOTE in tokenizer.decode(sampled)


async def test_asked_for_a_note_another_call_ends_the_session(tokenizer):
    rows, _ = await play_rows(tokenizer, [TEST, WRONG, UNDO] * 9, folding("note", budget=260))
    record = rows[-1].extra_fields["session"]
    assert record["stop"] == "context_overflow" and not record["turns"][-1]["valid"]


async def test_a_branch_returns_to_the_ids_that_were_sampled(tokenizer):
    rows, script = await play_rows(tokenizer, [TEST, BRANCH, WRONG, UNDO, RETURN, FIX, SUBMIT], folding("fold"))
    turns = check_rows(rows, script)
    assert [turn["tool"] for _, turn in turns][4:] == ["return", "edit", "submit"]
    branch = turns[1][1]
    kept = rows[0].prompt_ids + rows[0].response_ids[: branch["end"]]
    assert rows[1].prompt_ids[: len(kept)] == kept
    prompt = tokenizer.decode(rows[1].prompt_ids)
    assert "flip helped" in prompt and OPENED not in prompt and WRONG not in prompt
    # The branch worked in the same workspace.
    assert rows[1].extra_fields["final_sources"]["solution.py"] == TASK.gold["solution.py"]


async def test_an_unclosed_branch_is_closed_by_the_environment(tokenizer):
    rows, script = await play_rows(tokenizer, [BRANCH, TEST, WRONG, UNDO, SUBMIT], folding("fold", branch_turns=3))
    check_rows(rows, script)
    assert len(rows) == 2 and "[branch closed: out of turns] undo: ok, 1/2 passed" in tokenizer.decode(
        rows[1].prompt_ids
    )


@pytest.mark.parametrize(("name", "lines"), [("note", [NOTE] * 30), ("fold", [BRANCH, RETURN] * 15)])
async def test_foldings_that_never_end_are_ended(tokenizer, name, lines):
    rows, script = await play_rows(tokenizer, lines, folding(name, max_segments=3, branches=99))
    check_rows(rows, script)
    assert len(rows) == 3 and rows[-1].extra_fields["session"]["stop"] == "fold_limit"


async def test_the_sessions_of_a_group_have_one_budget(tokenizer):
    drawn = []
    for step in range(4):
        config = folding("drop_oldest", budget=300, budget_min=200)
        both = [(await play_rows(tokenizer, [TEST, SUBMIT], config, step=step))[0] for _ in range(2)]
        budgets = {row.extra_fields["session"]["budget"] for rows in both for row in rows}
        assert len(budgets) == 1
        drawn += budgets
    assert len(set(drawn)) > 1
    spread = [ContextConfig(budget=300, budget_min=200).of_group(f"task/{i}", 999) for i in range(2000)]
    assert min(spread) == 200 and max(spread) == 300 and 245 < sum(spread) / 2000 < 255


async def test_what_was_sampled_before_the_end_of_time_is_kept(tokenizer):
    config = folding("note")
    config.verl_ext.wall_clock_s = 5
    rows, script = await play_rows(tokenizer, [TEST, NOTE] * 12, config, delay=0.5)
    turns = check_rows(rows, script)
    assert rows[-1].extra_fields["session"]["stop"] == "wall_clock" and len(turns) < 12


async def test_masked_sessions_train_no_segment(tokenizer):
    config = folding("fold", max_segments=1)
    config.verl_ext.truncated = "mask"
    rows, _ = await play_rows(tokenizer, [BRANCH, TEST, RETURN, SUBMIT], config)
    assert [sum(row.response_mask) for row in rows] == [0]
    assert rows[0].extra_fields["session"]["stop"] == "fold_limit"


async def test_charges_stand_on_the_turn_that_earned_them(tokenizer):
    charges = {"main_tokens": 0.01, "main_share": 0.4, "failed_call": 0.25}
    rows, _ = await play_rows(
        tokenizer, [TEST, "babble", WRONG, UNDO, SUBMIT], folding("none", budget=300, charges=charges)
    )
    (row,) = rows
    turns = row.extra_fields["session"]["turns"]
    assert [turn["charges"]["failed_call"] for turn in turns] == [0, 0.25, 0, 0, 0]
    ends = [len(row.prompt_ids) + turn["end"] for turn in turns]
    seen = [len(row.prompt_ids), *ends]
    expected = [0.01 * max(end - max(120, before), 0) for before, end in pairwise(seen)]
    assert [turn["charges"]["main_tokens"] for turn in turns] == pytest.approx(expected) and sum(expected) > 0
    assert sum(expected) == pytest.approx(0.01 * (ends[-1] - 120))
    assert [turn["reward"] for turn in turns] == pytest.approx([-sum(turn["charges"].values()) for turn in turns])


async def test_a_stray_branch_is_charged_and_its_main_context_is_not(tokenizer):
    charges = {"stray_branch": 0.5, "main_tokens": 0.01, "main_share": 0.01}
    for goal in (ELSEWHERE, BRANCH, BY_NUMBER):
        rows, _ = await play_rows(tokenizer, [goal, WRONG, RETURN, SUBMIT], folding("fold", charges=charges))
        inside = rows[0].extra_fields["session"]["turns"][1]
        assert inside["charges"]["main_tokens"] == 0 and inside["charges"]["stray_branch"] == 0


async def test_each_turn_has_the_versions_it_was_sampled_with(tokenizer):
    rows, _ = await play_rows(tokenizer, [NOTE, SUBMIT], folding("note"))
    assert [turn["versions"] for row in rows for turn in row.extra_fields["session"]["turns"]] == [(3, 3)] * 2


async def test_splitting_a_session_into_segments_changes_no_advantage(tokenizer):
    """The same calls in one context and in several: the same turn table."""
    lines = [TEST, WRONG, UNDO, FIX, TEST, SUBMIT]

    async def table(name, budget):
        groups = []
        for line in (lines, [TEST, WRONG, SUBMIT]):
            rows, _ = await play_rows(tokenizer, list(line), folding(name, budget=budget))
            groups.append([Turn(**turn) for row in rows for turn in row.extra_fields["session"]["turns"]])
            groups[-1][-1] = groups[-1][-1].__class__(**{**vars(groups[-1][-1]), "reward": float(line is lines)})
        columns = [(i, turn.index, turn.anchor, turn.reward) for i, turns in enumerate(groups) for turn in turns]
        session, index, anchor, reward = zip(*columns, strict=True)
        return TurnTable.from_columns([0] * len(columns), session, index, anchor, reward), len(groups[0])

    whole, count = await table("none", 400)
    cut, same = await table("drop_oldest", 200)
    assert count == same == len(lines)
    assert gigpo(whole)[0].tolist() == gigpo(cut)[0].tolist()
