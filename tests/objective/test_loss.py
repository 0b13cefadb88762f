"""The loss in verl's own engine: what a session and a token weigh, and that no split changes the gradient."""

import pickle
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn
from verl.utils import tensordict_utils as tu
from verl.utils.metric import Metric
from verl.workers.config import PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

from tests.objective.engine import MODES, Model, actor, batch, jagged, mini_batch_gradient, segments
from verl_ext.objective.coefficients import Aggregation
from verl_ext.objective.loss import ENTROPY_WEIGHT, LOSS_WEIGHT, weighted_ppo_loss, with_entropy_bonus
from verl_ext.objective.settings import WEIGHABLE, EntropyConfig
from verl_ext.objective.weights import bonus_weights

PADDING = [0]
SESSIONS = [
    [1, 1, 0, 0, 1, 1, 1, 0, 1],
    [1, 1, 1, 1, 1, 1],  # one turn only
    [1, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1],
    [1, 1, 0, 1],
    [0, 1, 1, 1],  # begins with an observation
]
MASKS = [*SESSIONS[:3], PADDING, [0, 0, 0], *SESSIONS[3:], PADDING]  # one session without a trained token
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
ONE = dict(micro_batch_size_per_gpu=1)
TERMS = dict(entropy_coeff=0.2, use_kl_loss=True, kl_loss_coef=0.3)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(7)
    return Model()


def a_batch(model, masks=MASKS):
    """Rows with every column that verl's loss can read."""
    make = torch.Generator().manual_seed(11)
    data = batch(masks, model)
    draw = [torch.randn(len(mask), generator=make, dtype=torch.float64) for mask in masks]
    near = [old + 0.1 * d for old, d in zip(data["old_log_probs"].unbind(), draw, strict=True)]
    data["ref_log_prob"] = jagged(near, torch.float64)
    data["rollout_is_weights"] = jagged([(1 + 0.3 * d).clamp(min=0.1) for d in draw], torch.float64)
    return data


def weigh(data, mode, entropy=AFTER, session=None, steps=1, step=1):
    """``data`` with its columns; each row a session of its own if not said otherwise."""
    session = torch.arange(len(data)) if session is None else session
    aggregation = Aggregation.over_sessions(data["response_mask"], session, mode, steps, 20)
    data[LOSS_WEIGHT] = aggregation.coefficients(data["response_mask"])
    data[ENTROPY_WEIGHT], _ = bonus_weights(entropy, step, data["response_mask"], data["loss_mask"], aggregation)
    return data


def loss_fn(mode, **changes):
    return partial(with_entropy_bonus, partial(weighted_ppo_loss, actor(mode, **changes)))


def verls(mode, **changes):
    return partial(ppo_loss, actor(mode, **changes))


def largest(found, expected):
    return max(float((found[name] - value).abs().max()) for name, value in expected.items())


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("terms", [{}, TERMS], ids=["policy", "entropy-and-kl"])
@pytest.mark.parametrize("mode", MODES)
def test_sessions_of_one_row_are_trained_as_verl_trains_them(model, mode, terms, corrected):
    data = a_batch(model, SESSIONS)
    if not corrected:
        del data["rollout_is_weights"]
    theirs, their_loss, their_metrics = mini_batch_gradient(model, verls(mode, **terms), data, **ONE)
    ours, loss, metrics = mini_batch_gradient(
        model, partial(weighted_ppo_loss, actor(mode, **terms)), weigh(data, mode), **ONE
    )
    assert loss == pytest.approx(their_loss, abs=1e-6)
    assert largest(ours, theirs) < 1e-6 < largest(ours, {name: 0 * value for name, value in ours.items()})
    assert metrics[0].keys() == their_metrics[0].keys()
    for name in ("actor/pg_loss", "actor/entropy_loss", *(["kl_loss"] if terms else [])):
        assert metrics[0][name].aggregate() == pytest.approx(their_metrics[0][name].aggregate(), abs=1e-6), name


@pytest.mark.parametrize("loss_mode", sorted(WEIGHABLE))
def test_every_policy_loss_of_verls_that_is_let_through_is_trained_as_verl_trains_it(model, loss_mode):
    changes = {"policy_loss": PolicyLossConfig(loss_mode=loss_mode, dro_beta=0.1, kl_cov_ratio=0.2, clip_cov_ratio=0.2)}
    data = a_batch(model, SESSIONS)
    whole = dict(micro_batch_size_per_gpu=len(SESSIONS))
    torch.manual_seed(0)  # clip_cov draws
    theirs, _, _ = mini_batch_gradient(model, verls("seq-mean-token-mean", **changes), data, **whole)
    weigh(data, "seq-mean-token-mean")
    torch.manual_seed(0)
    fn = partial(weighted_ppo_loss, actor("seq-mean-token-mean", **changes))
    assert largest(mini_batch_gradient(model, fn, data, **whole)[0], theirs) < 1e-6


def policy_loss(loss_mode, mask, weight, number):
    """A registered loss of verl's on the numbers of four tokens, in rows of any shape."""
    config = actor("token-sum", policy_loss=PolicyLossConfig(loss_mode=loss_mode, dro_beta=0.1))
    config.global_batch_info.update(dp_size=1, batch_num_tokens=4, global_batch_size=1, loss_scale_factor=None)
    log_prob = (-number / 3).reshape(mask.shape)
    loss, _ = get_policy_loss_fn(loss_mode)(
        old_log_prob=log_prob + 0.1 * number.reshape(mask.shape).sin(),
        log_prob=log_prob,
        advantages=(number - 2.2).reshape(mask.shape),
        response_mask=mask,
        loss_agg_mode="token-sum",
        config=config,
        rollout_is_weights=weight.reshape(mask.shape),
    )
    return float(loss)


@pytest.mark.parametrize("loss_mode", sorted(POLICY_LOSS_REGISTRY))
def test_of_verls_policy_losses_those_are_let_through_whose_tokens_can_be_weighed(loss_mode):
    """Weights double a loss, and a row cut in two has the same loss: both, or the loss is refused at start-up."""
    number, weight = torch.arange(1.0, 5.0), torch.tensor([1.0, 2.0, 0.5, 1.0])
    row, rows = torch.ones(1, 4, dtype=torch.bool), torch.ones(2, 2, dtype=torch.bool)
    if loss_mode == "clip_cov":  # draws tokens to leave out; here none qualifies, whose loss would differ by chance
        number = number / 100
    once = policy_loss(loss_mode, row, weight, number)
    doubles = policy_loss(loss_mode, row, 2 * weight, number) == pytest.approx(2 * once, rel=1e-5)
    cuts = policy_loss(loss_mode, rows, weight, number) == pytest.approx(once, rel=1e-5)
    assert (doubles and cuts) == (loss_mode in WEIGHABLE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("match", ["total", "none"])
def test_no_split_changes_the_gradient(model, mode, match):
    entropy = EntropyConfig(where="after_observation", coeff=0.3, tokens=2, match=match)
    data = weigh(a_batch(model), mode, entropy)
    fn = loss_fn(mode, **TERMS)
    whole, whole_loss, _ = mini_batch_gradient(model, fn, data, **SPLITS[0])
    without, _, _ = mini_batch_gradient(model, verls(mode), data, **SPLITS[0])
    assert largest(whole, without) > 1e-3
    for split in SPLITS[1:]:
        found, loss, _ = mini_batch_gradient(model, fn, data, **split)
        assert loss == pytest.approx(whole_loss, abs=1e-6)
        assert largest(found, whole) < 1e-6, split


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=5)
@given(st.data())
def test_cutting_sessions_into_segments_changes_no_gradient(model, mode, draw):
    """One row a session against rows cut anywhere, dealt anyhow to mini-batches and ranks, with padding."""
    steps, ranks = draw.draw(st.integers(1, 3)), draw.draw(st.sampled_from([1, 2]))
    cuts = [
        sorted(draw.draw(st.sets(st.integers(1, len(mask) - 1), max_size=min(4, len(mask) - 1)))) for mask in SESSIONS
    ]
    whole = weigh(a_batch(model, SESSIONS), mode, EntropyConfig(where="uniform", coeff=0.3), steps=steps)
    fn = loss_fn(mode, **TERMS)
    expected, loss, _ = mini_batch_gradient(model, fn, whole, micro_batch_size_per_gpu=len(SESSIONS))
    size = steps * ranks * -(-(len(cuts) + sum(map(len, cuts))) // (steps * ranks))
    rows, owner = segments(a_batch(model, SESSIONS), cuts, padding=size - len(cuts) - sum(map(len, cuts)))
    weigh(rows, mode, EntropyConfig(where="uniform", coeff=0.3), session=owner, steps=steps)
    order = torch.tensor(draw.draw(st.permutations(range(size))))
    total, losses = {name: torch.zeros_like(value) for name, value in expected.items()}, 0.0
    for part in order.chunk(steps):
        data = tu.index_select_tensor_dict(rows, part)
        split = dict(ranks=ranks, micro_batch_size_per_gpu=len(data) // ranks)
        found, part_loss, _ = mini_batch_gradient(model, fn, data, **split)
        losses += part_loss
        total = {name: total[name] + value for name, value in found.items()}
    assert losses == pytest.approx(loss, abs=1e-6)
    assert largest(total, expected) < 1e-6


def test_a_session_weighs_as_one_row_however_many_segments_it_has(model):
    """The fault: under seq-mean verl gives a session of three rows three times the weight of one of one row."""
    data = a_batch(model, [[1] * 6, [1] * 6])
    data["advantages"] = jagged([[1.0] * 6, [-1.0] * 6], torch.float64)
    rows, owner = segments(data, [[2, 4], []])
    weigh(rows, "seq-mean-token-mean", session=owner)
    by_row = Aggregation.over_rows(rows["loss_mask"], "seq-mean-token-mean", 1).coefficients(rows["response_mask"])
    for column, weight in ((by_row, [3 / 4, 1 / 4]), (rows[LOSS_WEIGHT], [1 / 2, 1 / 2])):
        sums = torch.tensor([float(row.sum()) for row in column.unbind()])
        assert [float(sums[owner == number].sum()) for number in (0, 1)] == pytest.approx(weight)


@pytest.mark.parametrize("mode", MODES)
def test_padding_and_masked_rows_dilute_nothing(model, mode):
    whole = a_batch(model, SESSIONS)
    alone, _, _ = mini_batch_gradient(model, loss_fn(mode, **TERMS), weigh(whole, mode), **ONE)
    rows, owner = segments(a_batch(model, [*SESSIONS, [0] * 5]), [[]] * 6, padding=2)
    for name in ("responses", "input_ids", "old_log_probs", "advantages", "ref_log_prob", "rollout_is_weights"):
        with_others = [*whole[name].unbind(), *rows[name].unbind()[len(SESSIONS) :]]
        rows[name] = torch.nested.as_nested_tensor(with_others, layout=torch.jagged)
    weigh(rows, mode, session=owner)
    found, _, _ = mini_batch_gradient(model, loss_fn(mode, **TERMS), rows, **ONE)
    assert largest(found, alone) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_a_mini_batch_of_padding_has_no_gradient_and_no_nan(model, mode):
    data = weigh(a_batch(model, [PADDING] * 4), mode)
    found, loss, metrics = mini_batch_gradient(model, loss_fn(mode, **TERMS), data, ranks=2, micro_batch_size_per_gpu=2)
    assert loss == 0 and all((value == 0).all() for value in found.values())
    for rank in metrics:
        for name, metric in rank.items():
            values = metric.values if isinstance(metric, Metric) else metric if isinstance(metric, list) else [metric]
            assert torch.tensor(values).isfinite().all(), name
    if mode == "token-mean":
        assert not torch.tensor(mini_batch_gradient(model, verls(mode), data, **ONE)[1]).isfinite()


@pytest.mark.parametrize("mode", MODES)
def test_gradient_is_that_of_finite_differences(mode):
    torch.manual_seed(7)
    model = Model()
    data = weigh(a_batch(model), mode)
    split, fn = dict(micro_batch_size_per_gpu=2), loss_fn(mode, **TERMS)
    gradient, _, _ = mini_batch_gradient(model, fn, data, **split)
    torch.manual_seed(1)
    for name, value in model.named_parameters():
        way = torch.randn_like(value)
        losses = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                value += step * way
            losses.append(mini_batch_gradient(model, fn, data, **split)[1])
            with torch.no_grad():
                value -= step * way
        slope = (losses[0] - losses[1]) / 2e-5
        assert slope == pytest.approx(float((gradient[name] * way).sum()), rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize("rows_weigh", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_uniform_is_verls_entropy_coeff(model, mode, rows_weigh):
    masks = MASKS if rows_weigh else SESSIONS
    data = a_batch(model, masks)
    uniform = EntropyConfig(where="uniform", coeff=0.25)
    fn = loss_fn(mode)
    if rows_weigh:
        rows = Aggregation.over_rows(data["loss_mask"], mode, 1, 20)
        data[ENTROPY_WEIGHT], _ = bonus_weights(uniform, 1, data["response_mask"], data["loss_mask"], rows)
        fn = partial(with_entropy_bonus, verls(mode))
    else:
        weigh(data, mode, uniform)
    ours, loss, _ = mini_batch_gradient(model, fn, data, **ONE)
    theirs, their_loss, _ = mini_batch_gradient(model, verls(mode, entropy_coeff=0.25), data, **ONE)
    assert loss == pytest.approx(their_loss, abs=1e-6)
    assert largest(ours, theirs) < 1e-6


def bonus_of_one_nat(mode, entropy, model, masks=MASKS, **changes):
    """The bonus of a mini-batch whose every token has an entropy of 1 nat: the sum of all its weights."""
    data = weigh(a_batch(model, masks), mode, entropy)

    def flat(model_output, data, dp_group):
        ones = torch.nested.nested_tensor_from_jagged(
            torch.ones_like(model_output["entropy"].values()), model_output["entropy"].offsets()
        )
        return loss_fn(mode)(model_output={**model_output, "entropy": ones}, data=data, dp_group=dp_group)

    _, _, metrics = mini_batch_gradient(model, flat, data, micro_batch_size_per_gpu=2, **changes)
    return Metric.aggregate_dp([rank["actor/entropy_bonus"] for rank in metrics])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("first_turn", [False, True])
def test_matched_weights_sum_to_those_of_the_uniform_bonus(model, mode, tokens, first_turn):
    after = EntropyConfig(where="after_observation", coeff=0.3, tokens=tokens, first_turn=first_turn)
    uniform = bonus_of_one_nat(mode, EntropyConfig(where="uniform", coeff=0.3), model)
    assert uniform > 0.01
    assert bonus_of_one_nat(mode, after, model) == pytest.approx(uniform, rel=1e-6)
    assert bonus_of_one_nat(mode, after, model, ranks=2) == pytest.approx(uniform, rel=1e-6)


def test_unmatched_weights_are_those_of_verls_aggregation(model):
    unmatched = EntropyConfig(where="after_observation", coeff=0.3, tokens=1, match="none")
    selected, tokens = 2 + 3 + 1 + 1, sum(map(sum, MASKS))
    assert bonus_of_one_nat("token-mean", unmatched, model) == pytest.approx(0.3 * selected / tokens)
    with_a_selected_token = 4
    assert bonus_of_one_nat("seq-mean-token-mean", unmatched, model) == pytest.approx(
        0.3 * with_a_selected_token / len(SESSIONS)
    )


@pytest.mark.parametrize("mode", MODES)
def test_rows_without_a_bonus_leave_the_loss_as_it_is(model, mode):
    data = weigh(a_batch(model, [[1, 1, 1], PADDING, [0, 0], PADDING]), mode)
    assert not data[ENTROPY_WEIGHT].values().any()
    ours, loss, _ = mini_batch_gradient(model, loss_fn(mode), data, **ONE)
    theirs, their_loss, _ = mini_batch_gradient(model, loss_fn(mode).args[0], data, **ONE)
    assert loss == their_loss
    assert largest(ours, theirs) == 0


def test_metric_is_the_bonus_of_the_mini_batch_whatever_the_split(model):
    mode = "seq-mean-token-mean"
    data = weigh(a_batch(model), mode)
    _, with_bonus, _ = mini_batch_gradient(model, loss_fn(mode), data, **SPLITS[0])
    _, without, _ = mini_batch_gradient(model, loss_fn(mode).args[0], data, **SPLITS[0])
    for split in SPLITS:
        _, _, metrics = mini_batch_gradient(model, loss_fn(mode), data, **split)
        by_rank = [rank["actor/entropy_bonus"] for rank in metrics]
        if all(len(m.values) == len(by_rank[0].values) for m in by_rank):  # verl sees to it with process groups
            assert Metric.aggregate_dp(by_rank) == pytest.approx(without - with_bonus, rel=1e-5)


def test_a_loss_can_be_sent_to_the_workers():
    fn = pickle.loads(pickle.dumps(loss_fn("token-mean")))
    assert fn.args[0].args[0] == actor("token-mean")


def test_padded_columns_weigh_as_nested_ones(model):
    masks = [[1, 0, 1], [1, 1, 1]]
    data = weigh(a_batch(model, masks), "token-mean")
    expected, loss, _ = mini_batch_gradient(model, loss_fn("token-mean", **TERMS), data, **ONE)
    for name in (LOSS_WEIGHT, ENTROPY_WEIGHT, "rollout_is_weights", "ref_log_prob"):
        data[name] = data[name].to_padded_tensor(0.0)
    found, same, _ = mini_batch_gradient(model, loss_fn("token-mean", **TERMS), data, **ONE)
    assert same == pytest.approx(loss) and largest(found, expected) < 1e-12


def test_missing_entropy_and_missing_columns_say_what_to_do(model):
    data = a_batch(model, MASKS[:1])
    with pytest.raises(RuntimeError, match="no column entropy_weight; this loss needs a verl_ext trainer"):
        mini_batch_gradient(model, loss_fn("token-mean"), data, **ONE)
    with pytest.raises(RuntimeError, match="no column loss_weight; this loss needs a verl_ext trainer"):
        mini_batch_gradient(model, loss_fn("token-mean").args[0], data, **ONE)
    with pytest.raises(RuntimeError, match="calculate_entropy=true"):
        loss_fn("token-mean")(model_output={}, data=data, dp_group=None)
