"""verl's platform interface for a machine without an accelerator (``VERL_PLATFORM=cpu``).

verl asks a platform for a ``torch.<device>`` module, a device to move tensors to, and a Ray resource to schedule
workers by. ``torch.cpu`` lacks the memory and RNG calls, so :data:`device_module` adds them; the Ray resource stays
``GPU`` because placement groups are built for it, and a recipe declares how many with ``ray_kwargs.ray_init.num_gpus``.
"""

from __future__ import annotations

import contextlib
import os
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _resident_bytes(*_args: Any, **_kwargs: Any) -> int:
    return psutil.Process().memory_info().rss


def _mem_get_info(*_args: Any) -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _device_module() -> ModuleType:
    """``torch.cpu`` plus what verl calls on a device module; memory is the process's resident size in bytes."""
    module = ModuleType("verl_ext.cpu.device")
    module.__dict__.update({name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")})
    module.__dict__.update(
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: torch.device("cpu"),
        set_device=_nothing,
        get_device_name=lambda *_: "cpu",
        empty_cache=_nothing,
        ipc_collect=_nothing,
        set_per_process_memory_fraction=_nothing,
        reset_peak_memory_stats=_nothing,
        mem_get_info=_mem_get_info,
        memory_allocated=_resident_bytes,
        memory_reserved=_resident_bytes,
        max_memory_allocated=_resident_bytes,
        max_memory_reserved=_resident_bytes,
        get_rng_state=lambda *_: torch.get_rng_state(),
        set_rng_state=lambda state, *_: torch.set_rng_state(state),
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
    )
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """verl on plain CPU cores with gloo."""

    _module = _device_module()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        # Only an explicit VERL_PLATFORM=cpu selects this platform; auto-detection must pass it by.
        return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"

    def current_device(self) -> torch.device:
        # verl passes this to ``Module.to`` and ``torch.tensor(device=...)``, where an index would mean cuda.
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        # Ray's placement groups hand out the GPU resource, so the servers are given their "devices" by this name.
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str):
        return contextlib.nullcontext()

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        """vLLM's settings: GiB of KV cache, one thread, and no compiler at run time.

        Threads: a step of a small model is many short operations, and a second thread that has to wait for a core makes
        each of them wait. Compiler: vLLM builds small sampler functions with a C++ compiler at first use, half a minute
        that eager code does not need and that fails where none is installed.
        """
        chosen = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCHDYNAMO_DISABLE": "1"}
        return {"OMP_NUM_THREADS": "1"} | {name: os.environ.get(name, value) for name, value in chosen.items()}

    def cudart(self) -> Any:
        return None
