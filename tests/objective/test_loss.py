"""The bonus in verl's own engine: its value, its gradient, and that no split changes either."""

from functools import partial

import pytest
import torch
from verl.utils.metric import Metric
from verl.workers.utils.losses import ppo_loss

from tests.objective.engine import Model, actor, batch, mini_batch_gradient
from verl_ext.objective.loss import WEIGHT, ppo_loss_with_entropy_bonus
from verl_ext.objective.settings import EntropyConfig
from verl_ext.objective.weights import bonus_weights

MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
PADDING = [0]
MASKS = [
    [1, 1, 0, 0, 1, 1, 1, 0, 1],
    [1, 1, 1, 1, 1, 1],  # one turn only
    [1, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1],
    PADDING,
    [0, 0, 0],  # a session without loss
    [1, 1, 0, 1],
    [0, 1, 1, 1],  # begins with an observation
    PADDING,
]
AFTER = EntropyConfig(where="after_observation", coeff=0.3, tokens=2)
SPLITS = [
    dict(micro_batch_size_per_gpu=8),
    dict(micro_batch_size_per_gpu=1),
    dict(micro_batch_size_per_gpu=2, remove_padding=False),
    dict(micro_batch_size_per_gpu=8, remove_padding=False),
    dict(max_token_len_per_gpu=24),
    dict(ranks=2, micro_batch_size_per_gpu=2),
    dict(ranks=2, max_token_len_per_gpu=20, remove_padding=False),
    dict(ranks=4, micro_batch_size_per_gpu=1),
]


@pytest.fixture
def model():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine a second one waits ten times as long as it works
    torch.manual_seed(7)
    yield Model()
    torch.set_num_threads(threads)


def weigh(data, settings, mode, step=1):
    """``data`` as one mini-batch with its weight column."""
    rows = torch.zeros(len(data), dtype=torch.int64)
    column, _ = bonus_weights(settings, step, data["response_mask"], data["loss_mask"], rows, mode)
    data[WEIGHT] = column
    return data


def bonus_fn(mode):
    return partial(ppo_loss_with_entropy_bonus, config=actor(mode))


def assert_same(found, expected, tolerance=1e-12):
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=tolerance, atol=tolerance), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("match", ["total", "none"])
def test_no_split_changes_the_gradient(model, mode, match):
    settings = EntropyConfig(where="after_observation", coeff=0.3, tokens=2, match=match)
    data = weigh(batch(MASKS, model), settings, mode)
    whole, whole_loss, _ = mini_batch_gradient(model, bonus_fn(mode), data, **SPLITS[0])
    without, _, _ = mini_batch_gradient(model, partial(ppo_loss, config=actor(mode)), data, **SPLITS[0])
    assert max((whole[name] - without[name]).abs().max() for name in whole) > 1e-3
    for split in SPLITS[1:]:
        found, loss, _ = mini_batch_gradient(model, bonus_fn(mode), data, **split)
        assert loss == pytest.approx(whole_loss, abs=1e-6)
        for name in whole:
            assert (found[name] - whole[name]).abs().max() < 1e-6, (split, name)


@pytest.mark.parametrize("mode", MODES)
def test_gradient_is_that_of_finite_differences(model, mode):
    data = weigh(batch(MASKS, model), AFTER, mode)
    split = dict(micro_batch_size_per_gpu=2)
    gradient, _, _ = mini_batch_gradient(model, bonus_fn(mode), data, **split)
    torch.manual_seed(1)
    for name, value in model.named_parameters():
        way = torch.randn_like(value)
        losses = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                value += step * way
            losses.append(mini_batch_gradient(model, bonus_fn(mode), data, **split)[1])
            with torch.no_grad():
                value -= step * way
        slope = (losses[0] - losses[1]) / 2e-5
        assert slope == pytest.approx(float((gradient[name] * way).sum()), rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize("mode", MODES)
def test_uniform_is_verls_entropy_coeff(model, mode):
    data = weigh(batch(MASKS, model), EntropyConfig(where="uniform", coeff=0.25), mode)
    ours, loss, _ = mini_batch_gradient(model, bonus_fn(mode), data, micro_batch_size_per_gpu=2)
    verls = partial(ppo_loss, config=actor(mode, entropy_coeff=0.25))
    theirs, their_loss, _ = mini_batch_gradient(model, verls, data, micro_batch_size_per_gpu=2)
    assert loss == pytest.approx(their_loss, abs=1e-12)
    assert_same(ours, theirs)


def flat_entropy_loss(mode, settings, model, masks=MASKS, **changes):
    """Loss with advantages 0 on a model whose entropy is 1 nat everywhere: minus the sum of all bonus weights."""
    data = batch(masks, model)
    data["advantages"] = data["advantages"] * 0
    data = weigh(data, settings, mode)

    def loss_fn(model_output, data, dp_group):
        ones = torch.nested.nested_tensor_from_jagged(
            torch.ones_like(model_output["entropy"].values()), model_output["entropy"].offsets()
        )
        return bonus_fn(mode)(model_output={**model_output, "entropy": ones}, data=data, dp_group=dp_group)

    return mini_batch_gradient(model, loss_fn, data, micro_batch_size_per_gpu=2, **changes)[1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("first_turn", [False, True])
def test_matched_weights_sum_to_those_of_the_uniform_bonus(model, mode, tokens, first_turn):
    settings = EntropyConfig(where="after_observation", coeff=0.3, tokens=tokens, first_turn=first_turn)
    uniform = flat_entropy_loss(mode, EntropyConfig(where="uniform", coeff=0.3), model)
    assert flat_entropy_loss(mode, settings, model) == pytest.approx(uniform, rel=1e-6)
    assert flat_entropy_loss(mode, settings, model, ranks=2) == pytest.approx(uniform, rel=1e-6)


def test_unmatched_weights_are_those_of_verls_aggregation(model):
    unmatched = EntropyConfig(where="after_observation", coeff=0.3, tokens=1, match="none")
    selected, tokens = 2 + 3 + 1 + 1, sum(map(sum, MASKS))
    assert flat_entropy_loss("token-mean", unmatched, model) == pytest.approx(-0.3 * selected / tokens)
    rows_with_a_selected_token = 4
    assert flat_entropy_loss("seq-mean-token-mean", unmatched, model) == pytest.approx(
        -0.3 * rows_with_a_selected_token / len(MASKS)
    )


def test_tokens_out_of_the_loss_are_neither_selected_nor_taken_for_observations(model):
    data = batch([[1, 1, 0, 1, 1, 1]], model)
    rejected = torch.tensor([0, 1, 0, 0, 1, 1])
    data["response_mask"] = torch.nested.as_nested_tensor([rejected], layout=torch.jagged)
    unmatched = EntropyConfig(where="after_observation", coeff=1.0, tokens=2, match="none")
    assert weigh(data, unmatched, "token-mean")[WEIGHT].values().tolist() == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("mode", MODES)
def test_rows_without_weight_leave_the_loss_as_verl_has_it(model, mode):
    data = weigh(batch([[1, 1, 1], PADDING, [0, 0], PADDING], model), AFTER, mode)
    assert not data[WEIGHT].values().any()
    ours, loss, _ = mini_batch_gradient(model, bonus_fn(mode), data, micro_batch_size_per_gpu=1)
    theirs, their_loss, _ = mini_batch_gradient(
        model, partial(ppo_loss, config=actor(mode)), data, micro_batch_size_per_gpu=1
    )
    assert loss == their_loss
    assert_same(ours, theirs, 0)
    assert all(value.isfinite().all() for value in ours.values())


def test_coefficient_decays_in_the_column(model):
    settings = EntropyConfig(where="uniform", coeff=1.0, decay_steps=4, end_coeff=0.2)
    assert [round(settings.at(step), 12) for step in (1, 2, 3, 5, 6)] == [1.0, 0.8, 0.6, 0.2, 0.2]
    data = weigh(batch([[1, 0, 1]], model), settings, "token-mean", step=3)
    assert data[WEIGHT].values().tolist() == pytest.approx([0.6, 0, 0.6])


def test_metric_is_the_bonus_of_the_mini_batch_whatever_the_split(model):
    mode = "seq-mean-token-mean"
    data = weigh(batch(MASKS, model), AFTER, mode)
    _, with_bonus, _ = mini_batch_gradient(model, bonus_fn(mode), data, **SPLITS[0])
    _, without, _ = mini_batch_gradient(model, partial(ppo_loss, config=actor(mode)), data, **SPLITS[0])
    for split in SPLITS:
        _, _, metrics = mini_batch_gradient(model, bonus_fn(mode), data, **split)
        by_rank = [rank["actor/entropy_bonus"] for rank in metrics]
        if all(len(m.values) == len(by_rank[0].values) for m in by_rank):  # verl sees to it with process groups
            assert Metric.aggregate_dp(by_rank) == pytest.approx(without - with_bonus, rel=1e-6)


def test_missing_entropy_and_missing_column_say_what_to_do(model):
    data = batch(MASKS[:1], model)
    with pytest.raises(RuntimeError, match="needs a verl_ext trainer"):
        mini_batch_gradient(model, bonus_fn("token-mean"), data, micro_batch_size_per_gpu=1)
    with pytest.raises(RuntimeError, match="calculate_entropy=true"):
        ppo_loss_with_entropy_bonus(actor("token-mean"), {}, data)
