"""What a token counts: verl's own aggregation, over whole sessions, by hand and under every split."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import agg_loss

from tests.objective.engine import MODES, jagged
from verl_ext.objective.coefficients import Aggregation

# Session 0 in two rows, session 1 in one, padding, a session without a trained token.
ROWS = jagged([[1, 0, 1], [1, 1], [1, 0, 0, 1], [0], [0, 0]], torch.int64)
SESSION = torch.tensor([0, 1, 0, 2, 3])


@pytest.mark.parametrize(
    ("mode", "first", "second"),
    [
        ("token-mean", 1 / 6, 1 / 6),
        ("token-sum", 1, 1),
        ("seq-mean-token-sum", 1 / 2, 1 / 2),
        ("seq-mean-token-sum-norm", 1 / 20, 1 / 20),
        ("seq-mean-token-mean", 1 / 8, 1 / 4),
    ],
)
@pytest.mark.parametrize("steps", [1, 3])
def test_by_hand(mode, first, second, steps):
    if mode != "token-sum":
        first, second = first * steps, second * steps
    found = Aggregation.over_sessions(ROWS, SESSION, mode, steps, 10).coefficients(ROWS)
    expected = [[first, 0, first], [second, second], [first, 0, 0, first], [0], [0, 0]]
    assert found.dtype == torch.float32
    for row, values in zip(found.unbind(), expected, strict=True):
        assert row.tolist() == pytest.approx(values)


@pytest.mark.parametrize("mode", MODES)
def test_sessions_of_one_row_have_what_verl_gives_them(mode):
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 1]])
    losses = torch.randn(mask.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    verls = agg_loss(losses, mask, mode, batch_num_tokens=8, global_batch_size=3, loss_scale_factor=10)
    ours = Aggregation.over_sessions(mask, torch.arange(3), mode, 1, 10).coefficients(mask)
    assert (ours * losses).sum() == pytest.approx(float(verls), abs=1e-6)
    rows = Aggregation.over_rows(mask, mode, 1, 10).coefficients(mask)
    assert torch.equal(rows, ours)


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 4))
def test_no_cut_of_sessions_into_rows_changes_a_coefficient(mode, seed, steps):
    make = torch.Generator().manual_seed(seed)
    sessions = [
        (torch.rand(int(torch.randint(1, 12, (), generator=make)), generator=make) < 0.6).long() for _ in "abcde"
    ]
    pieces = []
    for number, mask in enumerate(sessions):
        cuts = torch.randint(0, len(mask) + 1, (3,), generator=make).unique().tolist()
        for begin, end in zip([0, *cuts], [*cuts, len(mask)], strict=True):
            if begin < end:
                pieces.append((number, begin, mask[begin:end]))
    pieces += [(9, 0, torch.zeros(1, dtype=torch.int64))] * 2  # padding
    pieces = [pieces[i] for i in torch.randperm(len(pieces), generator=make)]
    whole = jagged(sessions, torch.int64)
    expected = Aggregation.over_sessions(whole, torch.arange(5), mode, steps, 7).coefficients(whole).unbind()
    rows = jagged([mask for _, _, mask in pieces], torch.int64)
    number = torch.tensor([session for session, _, _ in pieces])
    found = Aggregation.over_sessions(rows, number, mode, steps, 7).coefficients(rows).unbind()
    for (session, begin, mask), row in zip(pieces, found, strict=True):
        where = expected[session][begin : begin + len(mask)] if session < 9 else torch.zeros(1)
        assert torch.equal(row, where)


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_without_a_trained_token_has_zeros_and_no_nan(mode):
    mask = jagged([[0], [0, 0]], torch.int64)
    found = Aggregation.over_sessions(mask, torch.arange(2), mode, 2, 10).coefficients(mask)
    assert found.values().tolist() == [0, 0, 0]


def test_a_masked_session_takes_nothing_from_the_others():
    alone = torch.tensor([[1, 1, 1]])
    beside = torch.tensor([[1, 1, 1], [0, 0, 0], [0, 0, 0]])
    for mode in MODES:
        expected = Aggregation.over_sessions(alone, torch.arange(1), mode, 1, 10).coefficients(alone)
        found = Aggregation.over_sessions(beside, torch.arange(3), mode, 1, 10).coefficients(beside)
        assert torch.equal(found[0], expected[0]) and not found[1:].any()


def test_nested_and_padded_masks_agree():
    padded = torch.tensor([[1, 0, 1, 1], [1, 0, 1, 0]])
    nested = jagged([padded[0], padded[1, :3]], torch.int64)
    numbers = torch.tensor([4, 4])
    found = [Aggregation.over_sessions(m, numbers, "seq-mean-token-mean", 1).coefficients(m) for m in (padded, nested)]
    assert found[1].to_padded_tensor(0.0, output_size=padded.shape).tolist() == found[0].tolist()


def test_rows_have_verls_divisors():
    """Padding and masked rows count as verl counts them, and rejected tokens are in the number of tokens."""
    policy = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    mask = policy * torch.tensor([[1], [1], [1], [0]])
    found = Aggregation.over_rows(policy, "seq-mean-token-mean", 2).coefficients(mask)
    assert found.tolist() == [[1 / 8] * 4, [1 / 4] * 2 + [0] * 2, [0] * 4, [0] * 4]  # two rows a mini-batch
    assert Aggregation.over_rows(policy, "token-mean", 2).coefficients(mask).max() == 1 / 4
