"""vLLM entry point (``vllm.general_plugins``): what its processes need on CPU, with ``VERL_PLATFORM=cpu`` alone.

- Weights stay reloadable: after loading, vLLM's CPU backend packs linear weights for oneDNN and drops the parameter, so
  that verl's in-place weight updates have nothing to write to. The plain parameter stays and ``F.linear`` reads it.
- Waiting costs nothing: engine and worker spin for a second after each message before they sleep. On a GPU node cores
  idle anyway; on two cores the spinning took two thirds of the worker's time away from the rest.
"""

from __future__ import annotations

from verl_ext.plugin import cpu_platform, loudly


def register() -> None:
    """Called by vLLM in each of its processes; does nothing on an accelerator."""
    if cpu_platform():
        loudly("vLLM weight reload on CPU", _keep_plain_weights)
        loudly("vLLM waiting without spinning", _sleep_at_once)


def _keep_plain_weights() -> None:
    from torch.nn import functional as F
    from vllm.model_executor.layers import utils

    def dispatch_cpu_unquantized_gemm(layer, remove_weight: bool) -> None:
        layer.cpu_linear = F.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm


def _sleep_at_once() -> None:
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    # Spinning lasts until ``busy_loop_s`` after the last recorded read; without records it never starts again.
    SpinCondition.record_read = lambda self: None
