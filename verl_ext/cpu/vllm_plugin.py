"""vLLM entry point (``vllm.general_plugins``): what its processes need on CPU, with ``VERL_PLATFORM=cpu`` alone.

Weights stay reloadable: after loading, vLLM's CPU backend packs linear weights for oneDNN and drops the parameter, so
that verl's in-place weight updates have nothing to write to. The plain parameter stays and ``F.linear`` reads it.
"""

from __future__ import annotations

from verl_ext.plugin import cpu_platform, loudly


def register() -> None:
    """Called by vLLM in each of its processes; does nothing on an accelerator."""
    if cpu_platform():
        loudly("vLLM weight reload on CPU", _keep_plain_weights)


def _keep_plain_weights() -> None:
    from torch.nn import functional as F
    from vllm.model_executor.layers import utils

    def dispatch_cpu_unquantized_gemm(layer, remove_weight: bool) -> None:
        layer.cpu_linear = F.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm
