"""Attention over packed rows against transformers' own on each sequence alone."""

from __future__ import annotations

import os

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from verl_ext.cpu import engine
from verl_ext.cpu.attention import NAME, packed_sdpa


def network(attention: str) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=50,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=8,
    )
    config._attn_implementation = attention
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).float()


@pytest.mark.parametrize("lengths", [[7], [1, 1, 1], [5, 1, 9, 3]])
def test_a_packed_row_equals_its_sequences_one_by_one(lengths):
    packed, plain = network(NAME), network("sdpa")
    ids = [torch.randint(0, 50, (1, length)) for length in lengths]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    found = packed(input_ids=torch.cat(ids, dim=1), position_ids=positions, use_cache=False).logits
    wanted = torch.cat([plain(input_ids=row, use_cache=False).logits for row in ids], dim=1)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
    weights = torch.randn_like(found)
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    for (name, one), other in zip(packed.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_a_later_sequence_does_not_see_an_earlier_one():
    model = network(NAME)
    positions = torch.tensor([[0, 1, 2, 0, 1]])
    first, second = torch.tensor([[1, 2, 3, 7, 8]]), torch.tensor([[9, 9, 9, 7, 8]])
    a, b = (model(input_ids=ids, position_ids=positions, use_cache=False).logits[0, 3:] for ids in (first, second))
    assert torch.equal(a, b)


def test_padded_batches_are_refused():
    x = torch.randn(2, 1, 4, 8)
    with pytest.raises(ValueError, match="use_remove_padding=true"):
        packed_sdpa(torch.nn.Identity(), x, x, x, None, position_ids=torch.arange(4).expand(2, 4))


def test_freed_memory_is_kept_on_glibc():
    assert engine.keep_freed_memory() is True


@pytest.mark.parametrize("name", ["RAY_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE"])
def test_ranks_share_the_cores(monkeypatch, name):
    before, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    try:
        monkeypatch.delenv("RAY_LOCAL_WORLD_SIZE", raising=False)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
        assert engine.use_all_cores() == cores
        monkeypatch.setenv(name, str(2 * cores))
        assert engine.use_all_cores() == 1
    finally:
        torch.set_num_threads(before)
