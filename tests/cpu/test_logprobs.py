"""The batched log-probs against verl's own, bit for bit, with their gradient."""

from __future__ import annotations

import pytest
import torch

from verl_ext.cpu import logprobs


@pytest.mark.parametrize("shape", [(40,), (3, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_same_bits_as_row_by_row(shape, dtype):
    torch.manual_seed(0)
    labels = torch.randint(0, 31, shape)
    ours = torch.randn(*shape, 31).to(dtype).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    found, wanted = logprobs.logprobs_from_logits_v2(ours, labels), logprobs._row_by_row(theirs, labels)
    assert found.shape == labels.shape and torch.equal(found, wanted)
    found.sum().backward()
    wanted.sum().backward()
    assert torch.equal(ours.grad, theirs.grad)


def test_verl_calls_it(monkeypatch):
    functional = logprobs.torch_functional
    monkeypatch.setattr(functional, "logprobs_from_logits_v2", None)
    logprobs.install()
    original, calls = functional.logprobs_from_logits_v2, []
    assert original is logprobs.logprobs_from_logits_v2
    monkeypatch.setattr(functional, "logprobs_from_logits_v2", lambda *a: calls.append(1) or original(*a))
    functional.logprobs_from_logits(torch.randn(4, 5), torch.tensor([0, 1, 2, 3]))
    assert calls == [1]
