"""The column of the entropy bonus."""

import pytest
import torch

from tests.objective.engine import jagged
from verl_ext.objective.coefficients import Aggregation
from verl_ext.objective.settings import EntropyConfig
from verl_ext.objective.weights import bonus_weights

MASK = torch.tensor([[1, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]])


def weights(entropy, mode, mask=MASK, policy=None, session=None, steps=1, step=1):
    session = torch.arange(len(mask)) if session is None else torch.tensor(session)
    aggregation = Aggregation.over_sessions(mask, session, mode, steps)
    return bonus_weights(entropy, step, mask, mask if policy is None else policy, aggregation)


@pytest.mark.parametrize("steps", [1, 2])
def test_weights_match_over_the_step_however_many_mini_batches_it_has(steps):
    entropy = EntropyConfig(where="after_observation", coeff=0.5, tokens=1)
    weight, metrics = weights(entropy, "token-mean", steps=steps)
    each = steps * 0.5 / 4  # a quarter of the step's weight on each of the four selected tokens
    assert weight.tolist() == [[0, 0, each, 0], [0, 0, each, 0], [0, each, 0, each], [0, 0, 0, 0]]
    assert metrics == pytest.approx(
        {"entropy/bonus/coeff": 0.5, "entropy/bonus/factor": 11 / 4, "entropy/bonus/token_share": 4 / 11}
    )


def test_sessions_weigh_alike_where_the_aggregation_says_so():
    entropy = EntropyConfig(where="after_observation", coeff=0.6, tokens=1)
    weight, _ = weights(entropy, "seq-mean-token-mean")
    assert weight.sum(-1).tolist() == pytest.approx([0.2, 0.2, 0.2, 0])  # three of four have a selected token
    weight, _ = weights(entropy, "seq-mean-token-mean", session=[0, 0, 1, 2])  # the first two are one session
    assert weight.sum(-1).tolist() == pytest.approx([0.15, 0.15, 0.3, 0])


def test_tokens_out_of_the_loss_are_neither_selected_nor_taken_for_observations():
    policy, rejected = torch.tensor([[1, 1, 0, 1, 1, 1]]), torch.tensor([[0, 1, 0, 0, 1, 1]])
    entropy = EntropyConfig(where="after_observation", coeff=1.0, tokens=2, match="none")
    weight, _ = weights(entropy, "token-mean", rejected, policy)
    assert weight.tolist() == [pytest.approx([0, 0, 0, 0, 1 / 3, 0])]


def test_coefficient_decays_in_the_column():
    entropy = EntropyConfig(where="uniform", coeff=1.0, decay_steps=4, end_coeff=0.2)
    assert [round(entropy.at(step), 12) for step in (1, 2, 3, 5, 6)] == [1.0, 0.8, 0.6, 0.2, 0.2]
    weight, metrics = weights(entropy, "token-sum", torch.tensor([[1, 0, 1]]), step=3)
    assert weight.tolist() == [pytest.approx([0.6, 0, 0.6])] and metrics["entropy/bonus/factor"] == 1.0


def test_nothing_selected_is_no_bonus_and_no_nan():
    entropy = EntropyConfig(where="after_observation", coeff=1.0, tokens=2)
    for mask in (torch.tensor([[1, 1, 1], [0, 0, 0]]), torch.zeros(2, 3, dtype=torch.int64)):
        weight, metrics = weights(entropy, "token-mean", mask)
        assert not weight.any() and metrics["entropy/bonus/factor"] == metrics["entropy/bonus/token_share"] == 0


def test_nested_and_padded_columns_agree():
    nested = jagged([MASK[0], MASK[1, :3]], torch.int64)
    entropy = EntropyConfig(where="after_observation", coeff=1.0, tokens=1)
    padded, _ = weights(entropy, "token-mean", MASK[:2])
    column, _ = weights(entropy, "token-mean", nested)
    assert column.to_padded_tensor(0.0).tolist() == padded.tolist()
    assert column.dtype == torch.float32
