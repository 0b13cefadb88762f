"""TinyAgent's network: the Qwen3 architecture at 0.4 million parameters.

Qwen3 and not Qwen2, although both would do: transformers puts Qwen's own tokenizer into every ``qwen2`` folder,
with Qwen's splitting of text, and TinyAgent's tokens are half of what makes it work. Heads of 32 are the smallest that
vLLM's CPU attention takes. The vocabulary is exactly the tokenizer's: verl masks surplus ids in the sampler only, and
sampler and trainer would disagree. Hidden size 128 with four layers takes twice the time of everything on two cores.
"""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """Sizes of TinyAgent for a tokenizer."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        # The usual 0.02 suits hidden sizes of thousands; one near 1/sqrt(hidden) learns in two thirds of the tokens.
        initializer_range=0.06,
        dtype="float32",
    )


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """An untrained TinyAgent in float32, the same for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config(tokenizer)).float()


def parameters(model: torch.nn.Module) -> int:
    """Number of trained parameters; tied ones count once."""
    return sum(p.numel() for p in model.parameters())
