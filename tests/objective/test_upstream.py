"""What the bonus leans on in verl's code that cannot run here: Megatron, and the ways to compute an entropy."""

import ast
import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import verl
from torch.utils.checkpoint import checkpoint
from verl.utils.experimental.torch_functional import FusedLinearForPPO
from verl.utils.torch_functional import entropy_from_logits, entropy_from_logits_with_chunking

from verl_ext.objective.loss import weighted_ppo_loss, with_entropy_bonus

VERL = Path(verl.__file__).parent


@pytest.mark.parametrize("engine", ["fsdp", "megatron", "veomni", "torchtitan", "automodel"])
def test_engines_call_a_loss_with_the_arguments_that_ours_takes(engine):
    source = (VERL / "workers/engine" / engine / "transformer_impl.py").read_text()
    calls = [
        {keyword.arg for keyword in node.keywords}
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "loss_function"
    ]
    if engine == "veomni":  # inherits FSDP's forward_step
        assert not calls
    else:
        for loss in (weighted_ppo_loss, with_entropy_bonus):
            takes = set(list(inspect.signature(loss).parameters)[1:])  # the first is bound when it is installed
            assert calls and all(call == takes for call in calls)


def gradient(entropy_of, logits):
    logits.grad = None
    entropy_of(logits * 1.0).sum().backward()
    return logits.grad.clone()


@pytest.mark.parametrize(
    "entropy_of",
    [
        lambda logits: entropy_from_logits_with_chunking(logits, chunk_size=3),
        lambda logits: checkpoint(entropy_from_logits, logits, use_reentrant=True),
    ],
    ids=["chunked", "checkpointed"],
)
def test_every_way_of_fsdp_to_an_entropy_has_its_gradient(entropy_of):
    logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.allclose(gradient(entropy_of, logits), gradient(entropy_from_logits, logits), atol=1e-6)


def test_fused_entropy_has_its_gradient():
    torch.manual_seed(0)
    hidden, head = torch.randn(1, 6, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
    labels = torch.randint(9, (1, 6))
    weight = torch.rand(1, 6)
    _, fused = FusedLinearForPPO(chunk_size=4)(hidden, head, labels, temperature=0.7)
    found = torch.autograd.grad((fused * weight).sum(), (hidden, head))
    plain = torch.autograd.grad((entropy_from_logits(hidden @ head.T / 0.7) * weight).sum(), (hidden, head))
    assert all(torch.allclose(f, p, atol=1e-5) for f, p in zip(found, plain, strict=True))


def vocab_parallel():
    """verl's entropy over logits split across tensor-parallel ranks, for one rank and without Megatron."""
    source = (VERL / "utils/megatron/tensor_parallel.py").read_text()
    names = ("_VocabParallelEntropy", "vocab_parallel_entropy", "vocab_parallel_entropy_with_chunking")
    nodes = [node for node in ast.parse(source).body if getattr(node, "name", None) in names]
    plain = SimpleNamespace(**{**vars(torch), "compile": lambda **_: lambda function: function})
    alone = SimpleNamespace(all_reduce=lambda *_, **__: None, ReduceOp=SimpleNamespace(MAX=None))
    space = {"torch": plain, "dist": alone, "mpu": SimpleNamespace(get_tensor_model_parallel_group=lambda: None)}
    exec(compile(ast.Module(nodes, []), "tensor_parallel.py", "exec"), space)
    return space


def test_entropy_of_megatron_has_its_gradient_but_not_in_chunks():
    """The fault for which ``check`` refuses chunks: a chunk's backward pass changes its logits in place, and the
    version that autograd keeps of them is that of the whole tensor. Once verl mends it, the refusal can go."""
    logits = torch.randn(1, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    space = vocab_parallel()
    assert torch.allclose(gradient(space["vocab_parallel_entropy"], logits), gradient(entropy_from_logits, logits))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradient(lambda x: space["vocab_parallel_entropy_with_chunking"](x, chunk_size=3), logits)
