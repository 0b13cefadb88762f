"""The CPU platform answers what verl asks, and vLLM keeps weights that can be reloaded."""

import pytest
import torch

pytest.importorskip("verl")
from verl.plugin.platform.platform_base import PlatformBase

from verl_ext.compat import _single_gloo_backend
from verl_ext.cpu.platform import PlatformCPU


def test_every_question_of_verls_interface_has_an_answer():
    platform = PlatformCPU()
    assert not PlatformCPU.__abstractmethods__ and issubclass(PlatformCPU, PlatformBase)
    assert torch.zeros(1, device=platform.current_device()).device.type == "cpu"
    assert torch.nn.Linear(1, 1).to(platform.current_device()).weight.device.type == "cpu"
    assert platform.ray_resource_options(1) == {"num_gpus": 1}
    assert not platform.is_ipc_supported()
    with platform.nvtx_range("step"):
        pass


@pytest.mark.parametrize("name", ["memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"])
def test_memory_is_the_resident_size(name):
    assert 1e6 < getattr(PlatformCPU().device_module, name)() < 1e12


def test_rng_state_round_trip():
    device = PlatformCPU().device_module
    state = device.get_rng_state()
    first = torch.rand(3)
    device.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)


def test_auto_detection_passes_it_by(monkeypatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    assert not PlatformCPU().is_platform_available(use_smi_check=True)
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert PlatformCPU().is_platform_available()


def test_users_environment_wins_over_rollout_defaults(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    assert PlatformCPU().rollout_env_vars()["VLLM_CPU_KVCACHE_SPACE"] == "7"


def test_doubled_gloo_backend_is_named_once():
    class Distributed:
        def init_process_group(self, backend=None, **kwargs):
            return backend

    module = type("M", (), {"torch": type("T", (), {"distributed": Distributed()})})
    _single_gloo_backend(module)
    assert module.torch.distributed.init_process_group("cpu:gloo,cpu:gloo") == "cpu:gloo"
    assert module.torch.distributed.init_process_group(backend="cpu:gloo,cuda:nccl") == "cpu:gloo,cuda:nccl"


def test_vllm_keeps_the_parameter_that_weights_are_reloaded_into(monkeypatch):
    utils = pytest.importorskip("vllm.model_executor.layers.utils")
    from verl_ext.cpu import vllm_plugin

    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setattr(utils, "dispatch_cpu_unquantized_gemm", utils.dispatch_cpu_unquantized_gemm)
    vllm_plugin.register()
    layer = torch.nn.Linear(8, 4, bias=False)
    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    x = torch.randn(2, 8)
    with torch.no_grad():
        layer.weight.fill_(0.5)  # a reload in place
        assert torch.allclose(layer.cpu_linear(x, layer.weight, None), x.sum(1, keepdim=True).expand(2, 4) * 0.5)
