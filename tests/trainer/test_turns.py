"""Rows to turn table and back, by hand."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_ext.credit import gigpo
from verl_ext.trainer.turns import place, rows_with_turns, turn_table
from verl_ext.types import BadInput


def turn(index, start, end, anchor="a", reward=0.0, potential=0.0, valid=True):
    return {
        "index": index,
        "start": start,
        "end": end,
        "anchor": anchor,
        "reward": reward,
        "potential": potential,
        "valid": valid,
        "action": "x",
    }


def rows_of(**turns):
    padding = [key.startswith("pad") for key in turns]
    return rows_with_turns(list(turns), padding, [{"session": {"turns": list(value)}} for value in turns.values()])


ROWS = rows_of(
    g_0_0=[turn(0, 0, 2), turn(1, 4, 5, reward=-0.5)],
    pad_0_0=[turn(0, 0, 2)],  # padding copies another row's fields
    g_1_0=[turn(0, 0, 3)],
)
MASK = torch.tensor([[1, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]])


def test_a_turn_earns_its_tokens_rewards_and_what_its_record_says():
    kl = torch.tensor([[-0.1, -0.1, 0, 0, 0.9, 0], [0] * 6, [-0.2, 0, 1.0, 0, 0, 0]])
    verdicts = torch.tensor([[0.0, 0, 0, 0, 1, 0], [0] * 6, [0, 0, 1.0, 0, 0, 0]])
    table = turn_table(ROWS, kl, verdicts)
    assert table.sessions == [("g", "0"), ("g", "1")]
    assert table.reward_T == pytest.approx([-0.2, 0.4, 0.8])


def test_fractional_rewards_of_turns_survive_verdicts_that_are_integers():
    verdicts = torch.tensor([[0, 0, 0, 0, 1, 0], [0] * 6, [0, 0, 1, 0, 0, 0]])
    assert turn_table(ROWS, verdicts, verdicts).reward_T.tolist() == [0, 0.5, 1]


def test_a_verdict_counts_once_in_a_session_of_several_rows():
    rows = rows_of(g_0_1=[turn(1, 0, 1), turn(2, 2, 3)], g_0_0=[turn(0, 0, 2)], g_1_0=[turn(0, 0, 1)])
    verdicts = torch.tensor([[0.0, 0, 1], [0, 1, 0], [0, 0, 0]])
    table = turn_table(rows, verdicts - 0.25 * (verdicts > 0), verdicts)
    assert table.return_S == pytest.approx([0.75 - 0.25, 0.0])
    assert table.reward_T == pytest.approx([-0.25, 0, 0.75, 0])


def test_a_turns_advantage_goes_to_its_policy_tokens_only():
    placed = place(ROWS, np.array([1.0, -2.0, 3.0]), MASK)
    assert placed.tolist() == [[1, 1, 0, 0, -2, 0], [0] * 6, [3, 3, 3, 0, 0, 0]]


def test_a_rejected_token_gets_nothing():
    placed = place(ROWS, np.array([1.0, -2.0, 3.0]), MASK * torch.tensor([[1], [1], [0]]))
    assert placed.tolist() == [[1, 1, 0, 0, -2, 0], [0] * 6, [0] * 6]


def test_a_policy_token_outside_every_turn_is_an_error_that_names_the_session():
    mask = MASK.clone()
    mask[0, 3] = 1
    with pytest.raises(BadInput, match="session g_0_0: policy token 3 of its response belongs to none of its turns"):
        place(ROWS, np.zeros(3), mask)


@pytest.mark.parametrize(
    ("turns", "says"),
    [
        ([{"index": 0, "start": 0, "end": 2}], "session g_0_0, turn 0: its record lacks anchor, action, reward"),
        ([turn(0, 2, 2)], "session g_0_0, turn 0: tokens 2 to 2 come before 0 or are none"),
        ([turn(0, 0, 3), turn(1, 2, 4)], "session g_0_0, turn 1: tokens 2 to 4 come before 3"),
    ],
)
def test_a_record_that_cannot_be_right_names_session_and_turn(turns, says):
    with pytest.raises(BadInput, match=says):
        rows_of(g_0_0=turns)


def test_a_turn_after_the_response_names_session_and_turn():
    rows = rows_of(g_0_0=[turn(0, 0, 2), turn(1, 4, 9)])
    with pytest.raises(BadInput, match="session g_0_0, turn 1 ends at token 9, after the response"):
        place(rows, np.zeros(2), MASK[:1])


@settings(deadline=None)
@given(st.data())
def test_cutting_sessions_into_rows_changes_no_advantage(data):
    """The same sessions as one row each and as several, with process rewards and a KL penalty in the token rewards."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    whole, cut, rewards, verdicts = {}, {}, {}, {}
    for session in range(4):
        count, verdict = int(random.integers(1, 6)), float(random.integers(0, 2))
        kl = random.normal(size=count)
        turns = [
            turn(i, 2 * i, 2 * i + 1, anchor=str(random.integers(3)), reward=float(random.normal()), potential=0.5)
            for i in range(count)
        ]
        cuts = sorted({0, count, *random.integers(0, count + 1, size=2).tolist()})
        for name, pieces in ((whole, [(0, count)]), (cut, list(itertools.pairwise(cuts)))):
            for segment, (begin, end) in enumerate(pieces):
                key = f"g_{session}_{segment}"
                moved = [{**t, "start": t["start"] - 2 * begin, "end": t["end"] - 2 * begin} for t in turns[begin:end]]
                name[key] = moved
                score = torch.zeros(12)
                score[moved[-1]["end"] - 1] = verdict  # verl copies the verdict to every row
                tokens = score.clone()
                tokens[[t["start"] for t in moved]] += torch.tensor(kl[begin:end]).float()
                verdicts[id(name), key], rewards[id(name), key] = score, tokens
    found = []
    for name in (whole, cut):
        rows = rows_of(**name)
        table = turn_table(
            rows, *(torch.stack([column[id(name), key] for key in name]) for column in (rewards, verdicts))
        )
        advantages = gigpo(table, shaping_weight=0.5)[0]
        ids = [(*row.session, t["index"]) for row in rows for t in row.turns]
        found.append(dict(zip(ids, advantages.tolist(), strict=True)))
    assert found[0] == pytest.approx(found[1], abs=1e-5)


@pytest.mark.parametrize("fields", [{}, {"session": {"turns": []}}])
def test_a_row_without_turns_is_an_error_that_names_the_session(fields):
    with pytest.raises(BadInput, match="session g_3_0 has no turn data"):
        rows_with_turns(["g_3_0"], [False], [fields])
