"""FSDP2 training engines for device ``cpu``: the classes that verl registers for cuda and npu, at a CPU's pace.

Four things cost more than half of the time of a small model: log-probs token by token (:mod:`verl_ext.cpu.logprobs`),
padding (:mod:`verl_ext.cpu.attention`), one thread, which is what Ray gives a worker, and memory. A training step
allocates and frees the same megabytes hundreds of times; glibc gives such blocks back to the kernel at once, which has
to zero them again at the next use.
"""

from __future__ import annotations

import ctypes
import os

import torch
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl

from verl_ext.cpu import attention, logprobs

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_GIB = 1 << 30


def keep_freed_memory() -> bool:
    """Ask the C library to reuse freed memory below 1 GiB; False where it does not offer that (musl, macOS)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, _GIB) for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))


def use_all_cores() -> int:
    """Share this machine's cores among its training ranks, and return a rank's number of threads.

    Nobody else needs them: in synchronous training sampling has ended when a step begins.
    """
    ranks = int(os.environ.get("RAY_LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_WORLD_SIZE") or 1)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    return torch.get_num_threads()


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device=["cpu"])
class FSDPEngineWithLMHead(transformer_impl.FSDPEngineWithLMHead):
    """verl's engine; with ``use_remove_padding`` its attention keeps packed sequences apart."""

    def _build_module(self):
        use_all_cores()
        module = super()._build_module()
        if self.model_config.use_remove_padding:
            # On the module and not in the configuration: saved models load anywhere.
            module.set_attn_implementation(attention.NAME)
        return module


EngineRegistry.register(model_type="value_model", backend=["fsdp2"], device=["cpu"])(
    transformer_impl.FSDPEngineWithValueHead
)
logprobs.install()
keep_freed_memory()
