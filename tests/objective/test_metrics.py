"""Entropy by position in a turn."""

import pytest
import torch

from verl_ext.objective.metrics import POSITIONS, entropy_by_position, share_of_entropy

MASK = torch.tensor([[1, 1, 0, 1, 1, 1, 0, 1], [1, 0, 0, 1, 0, 0, 0, 0]])
NATS = torch.tensor([[0.5, 0.1, 9, 2.0, 1.0, 0.4, 9, 4.0], [0.7, 9, 9, 3.0, 9, 9, 9, 9]])


def test_means_over_positions_by_hand():
    assert entropy_by_position(NATS, MASK) == pytest.approx(
        {
            "entropy/after_observation/0": 3.0,
            "entropy/after_observation/1": 1.0,
            "entropy/after_observation/2": 0.4,
            "entropy/first_turn/0": 0.6,
            "entropy/first_turn/1": 0.1,
            "entropy/after_observation_share/0": 3 / 8,
            "entropy/after_observation_share/1": 1 / 8,
            "entropy/after_observation_share/2": 1 / 8,
            "entropy/first_turn_share/0": 2 / 8,
            "entropy/first_turn_share/1": 1 / 8,
            "entropy/all": 11.7 / 8,
        }
    )


def test_nested_rows_give_what_padded_rows_give():
    nested = [torch.nested.as_nested_tensor([table[0], table[1, :5]], layout=torch.jagged) for table in (NATS, MASK)]
    assert entropy_by_position(*nested) == entropy_by_position(NATS, MASK)


def test_a_bucket_ends_where_the_next_begins():
    mask = torch.ones(1, 201)
    mask[0, 0] = 0
    positions = torch.arange(-1, 200.0).unsqueeze(0)
    found = entropy_by_position(positions, mask)
    ends = (*POSITIONS[1:], 200)
    for first, end in zip(POSITIONS, ends, strict=True):
        assert found[f"entropy/after_observation/{first}"] == pytest.approx((first + end - 1) / 2)


def test_padding_rows_and_batches_without_policy_tokens_are_silent():
    rows = [torch.cat([table, torch.zeros(1, 8)]) for table in (NATS, MASK)]
    assert entropy_by_position(*rows) == entropy_by_position(NATS, MASK)
    assert entropy_by_position(torch.ones(2, 3), torch.zeros(2, 3)) == {}


def test_no_name_makes_verl_aggregate_it_as_anything_but_a_mean():
    from verl.trainer.ppo.v1.utils import MetricsAggregator

    names = [*entropy_by_position(NATS, MASK), "entropy/bonus/coeff", "entropy/bonus/factor", "actor/entropy_bonus"]
    names += ["entropy/bonus/token_share", "entropy/bonus/share"]
    assert {MetricsAggregator()._get_aggregation_type(name) for name in names} == {"weighted_avg"}


def test_share_of_entropy():
    weight = torch.zeros(MASK.shape)
    weight[0, 3] = weight[1, 3] = 0.2
    assert share_of_entropy(NATS, weight, MASK) == pytest.approx(5 / 11.7)
    assert share_of_entropy(NATS * 0, weight, MASK) == 0.0
