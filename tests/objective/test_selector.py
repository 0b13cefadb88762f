"""The selector against a loop that reads a row from left to right, in all three layouts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_ext.objective.selector import after_observation, position_after_observation

rows = st.lists(st.lists(st.integers(0, 1), max_size=14), max_size=7)


def by_loop(row: list[int], first_turn: bool) -> list[int]:
    """Position of each token of one row, as the definition reads."""
    found, position, observed = [], 0, first_turn
    for token in row:
        if token:
            found.append(position if observed else -1)
            position += 1
        else:
            found.append(-1)
            position, observed = 0, True
    return found


def packed(mask: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.tensor([token for row in mask for token in row], dtype=torch.int64)
    return values, torch.tensor([0, *map(len, mask)]).cumsum(0)


def padded(mask: list[list[int]], width: int) -> torch.Tensor:
    return torch.tensor([row + [0] * (width - len(row)) for row in mask], dtype=torch.int64).reshape(len(mask), width)


@settings(deadline=None)  # the first nested tensor of a process takes a second
@given(rows, st.booleans(), st.integers(0, 3))
def test_positions_are_those_of_the_loop(mask, first_turn, tail):
    expected = [by_loop(row, first_turn) for row in mask]
    flat = [position for row in expected for position in row]
    values, offsets = packed(mask)
    assert position_after_observation(values, first_turn=first_turn, offsets=offsets).tolist() == flat
    width = max(map(len, mask), default=0) + tail
    found = position_after_observation(padded(mask, width), first_turn=first_turn)
    assert found.tolist() == [row + [-1] * (width - len(row)) for row in expected]
    if mask:
        nested = torch.nested.nested_tensor_from_jagged(values, offsets)
        found = position_after_observation(nested, first_turn=first_turn)
        assert found.values().tolist() == flat
        assert found.offsets().tolist() == offsets.tolist()


@settings(deadline=None)  # the first nested tensor of a process takes a second
@given(rows, st.integers(1, 5), st.booleans())
def test_selected_are_the_first_tokens_of_each_turn(mask, tokens, first_turn):
    expected = [0 <= position < tokens for row in mask for position in by_loop(row, first_turn)]
    values, offsets = packed(mask)
    found = after_observation(values, tokens, first_turn, offsets=offsets)
    assert found.dtype == torch.bool
    assert found.tolist() == expected


@settings(deadline=None)  # the first nested tensor of a process takes a second
@given(rows.filter(bool), st.integers(1, 5), st.booleans(), st.data())
def test_rows_do_not_see_each_other(mask, tokens, first_turn, data):
    order = data.draw(st.permutations(range(len(mask))))
    width = max(map(len, mask))
    found = after_observation(padded(mask, width), tokens, first_turn)
    shuffled = after_observation(padded([mask[i] for i in order], width), tokens, first_turn)
    assert torch.equal(found[list(order)], shuffled)


def test_a_turn_of_the_previous_row_does_not_run_on_into_the_next():
    values, offsets = packed([[0, 1, 1], [1, 1, 0, 1]])
    assert position_after_observation(values, offsets=offsets).tolist() == [-1, 0, 1, -1, -1, -1, 0]


def test_turns_shorter_than_the_window_give_what_they_have():
    found = after_observation(torch.tensor([[1, 0, 1, 0, 0, 1, 1, 1]]), 2, False)
    assert found.int().tolist() == [[0, 0, 1, 0, 0, 1, 1, 0]]


def test_a_row_that_begins_with_an_observation_has_no_first_turn():
    assert after_observation(torch.tensor([[0, 1, 1]]), 1, False).int().tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("mask", [[[0, 0, 0]], [[1, 1, 1]]], ids=["only observation", "no observation"])
def test_rows_without_a_turn_after_an_observation_select_nothing(mask):
    assert not after_observation(torch.tensor(mask), 4, False).any()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_empty_batches(shape):
    assert after_observation(torch.zeros(shape), 2, True).shape == shape


def test_mask_types():
    mask = torch.tensor([[1, 0, 1]])
    for kind in (torch.bool, torch.int32, torch.float32, torch.bfloat16):
        assert after_observation(mask.to(kind), 1, False).int().tolist() == [[0, 0, 1]]


def test_errors_name_what_is_missing():
    with pytest.raises(ValueError, match="tokens=0"):
        after_observation(torch.ones(1, 3), 0, True)
    with pytest.raises(ValueError, match="offsets"):
        after_observation(torch.ones(3), 1, True)


def test_a_nested_answer_pads_to_its_longest_row_and_not_to_all_rows():
    values, offsets = packed([[1, 0, 1], [1, 1], [0, 1, 1, 1]])
    found = after_observation(torch.nested.nested_tensor_from_jagged(values, offsets), 1, False)
    assert found.to_padded_tensor(False).shape == (3, 4)
