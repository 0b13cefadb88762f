"""verl's own FSDP engine code on a tiny float64 model, without Ray, process groups or devices.

``OneRank`` runs verl's ``forward_backward_batch`` and ``forward_step`` as they stand; only what needs other processes
is replaced: the sum of tokens over the ranks, and the averaging of gradients that FSDP does after the backward pass.
"""

import itertools
from functools import partial
from types import SimpleNamespace
from unittest import mock

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils import torch_functional as verl_F
from verl.workers.config import ActorConfig
from verl.workers.engine.fsdp import transformer_impl

VOCABULARY = 11
MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]


class Model(torch.nn.Module):
    """A token's logits from it and its position; so packed rows need no attention to be kept apart."""

    def __init__(self):
        super().__init__()
        self.token = torch.nn.Embedding(VOCABULARY, 6)
        self.place = torch.nn.Embedding(64, 6)
        self.head = torch.nn.Linear(6, VOCABULARY)
        self.to(torch.float64)

    def forward(self, input_ids, position_ids, attention_mask=None, use_cache=False):
        hidden = torch.tanh(self.token(input_ids) + self.place(position_ids))
        return SimpleNamespace(logits=3 * self.head(hidden))


class OneRank(transformer_impl.FSDPEngineWithLMHead):
    def __init__(self, module, ranks):
        self.module, self.ranks = module, ranks
        self.ulysses_sequence_parallel_size, self.use_ulysses_sp = 1, False
        self.pad_to_length, self.scaler, self._autocast_dtype = False, None, torch.float32
        self.compute_entropy_from_logits = verl_F.entropy_from_logits
        self.engine_config = SimpleNamespace(entropy_checkpointing=False, entropy_from_logits_with_chunking=False)

    def get_data_parallel_group(self):
        return None

    def get_data_parallel_size(self):
        return self.ranks


def actor(loss_agg_mode, **changes):
    return ActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        loss_agg_mode=loss_agg_mode,
        loss_scale_factor=20 if loss_agg_mode == "seq-mean-token-sum-norm" else None,
        calculate_entropy=True,
        **changes,
    )


def jagged(rows, dtype):
    return torch.nested.as_nested_tensor([torch.as_tensor(row, dtype=dtype) for row in rows], layout=torch.jagged)


def batch(masks, model, seed=0, prompt=3, **columns):
    """Rows with these response masks, random tokens and advantages; ``old_log_probs`` a little off the model's."""
    make = torch.Generator().manual_seed(seed)
    draw = partial(torch.randint, VOCABULARY, generator=make)
    prompts, responses = [draw((prompt,)) for _ in masks], [draw((len(mask),)) for mask in masks]
    full = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
    old = []
    for ids in full:
        with torch.no_grad():
            logits = model(ids, torch.arange(len(ids))).logits
        log_probs = logits.log_softmax(-1)[prompt - 1 : -1].gather(-1, ids[prompt:, None]).squeeze(-1)
        old.append(log_probs + 0.02 * torch.randn(len(log_probs), generator=make, dtype=torch.float64))
    data = {
        "prompts": jagged(prompts, torch.int64),
        "responses": jagged(responses, torch.int64),
        "input_ids": jagged(full, torch.int64),
        "position_ids": jagged([torch.arange(len(ids)) for ids in full], torch.int64),
        "response_mask": jagged(masks, torch.int64),
        "loss_mask": jagged(masks, torch.int64),
        "old_log_probs": jagged(old, torch.float64),
        "advantages": jagged([torch.randn(len(m), generator=make, dtype=torch.float64) for m in masks], torch.float64),
    }
    return TensorDict({**data, **columns}, batch_size=len(masks))


PER_TOKEN = ("response_mask", "loss_mask", "old_log_probs", "advantages", "ref_log_prob", "rollout_is_weights")


def segments(data, cuts, padding=0):
    """The sessions of a batch cut into rows: a segment's prompt is the end of what came before it.

    Args:
        data: One row a session, as of :func:`batch`.
        cuts: For each session the places in its response where another row begins.
        padding: Rows of padding after the others.

    Returns:
        The rows, and the session of each as a number; padding has numbers of its own.
    """
    names = [name for name in PER_TOKEN if name in data]
    columns = {name: [] for name in ("prompts", "responses", "input_ids", "position_ids", *names)}
    owner = []
    for session, places in enumerate(cuts):
        prompt, whole = len(data["prompts"][session]), data["input_ids"][session]
        edges = [0, *places, len(data["responses"][session])]
        for begin, end in itertools.pairwise(edges):
            at = slice(begin, prompt + end)  # as many tokens of prompt as the session has, whose positions stay
            columns["prompts"].append(whole[begin : prompt + begin])
            columns["responses"].append(whole[prompt + begin : prompt + end])
            columns["input_ids"].append(whole[at])
            columns["position_ids"].append(torch.arange(len(whole))[at])
            for name in names:
                columns[name].append(data[name][session][begin:end])
            owner.append(session)
    for number in range(padding):
        for name, column in columns.items():
            like = column[0]
            length = {"prompts": 3, "input_ids": 4, "position_ids": 4}.get(name, 1)
            column.append(torch.zeros(length, dtype=like.dtype))
        owner.append(len(cuts) + number)
    nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
    return TensorDict(nested, batch_size=len(owner)), torch.tensor(owner)


def mini_batch_gradient(model, loss_fn, data, *, ranks=1, remove_padding=True, global_batch_size=None, **split):
    """Gradient and loss of one optimiser step on ``data``, as verl's ranks would accumulate and average them.

    Args:
        split: ``micro_batch_size_per_gpu=n``, or ``max_token_len_per_gpu=n`` for dynamic micro-batches.

    Returns:
        ``{parameter: gradient}``, loss, and the metrics of every rank as lists over its micro-batches.
    """
    tokens = data["loss_mask"].values().sum()
    gradients = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    loss, metrics = 0.0, []
    for of_rank in tu.chunk_tensordict(data, ranks):
        tu.assign_non_tensor(
            of_rank,
            global_batch_size=global_batch_size or len(data),
            calculate_entropy=True,
            temperature=1.0,
            use_remove_padding=remove_padding,
            use_dynamic_bsz="max_token_len_per_gpu" in split,
            **split,
        )
        model.zero_grad()
        with (
            mock.patch.object(transformer_impl, "get_device_id", lambda: "cpu"),
            mock.patch.object(transformer_impl, "get_device_name", lambda: "cpu"),
            mock.patch.object(torch.distributed, "all_reduce", lambda count, **_: count.fill_(tokens)),
        ):
            output = OneRank(model, ranks).forward_backward_batch(of_rank, loss_fn)
        for name, value in model.named_parameters():
            gradients[name] += value.grad / ranks
        loss += sum(output["loss"]) / ranks
        metrics.append(output["metrics"])
    return gradients, loss, metrics
