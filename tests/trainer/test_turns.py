"""Rows to turn table and back, by hand."""

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize("fields", [{}, {"session": {"turns": []}}])
def test_a_row_without_turns_is_an_error_that_names_the_session(fields):
    with pytest.raises(BadInput, match="session g_3_0 has no turn data"):
        rows_with_turns(["g_3_0"], [False], [fields])
