"""Registration, each in a fresh interpreter: what is active where, and that failures are loud."""

import os
import subprocess
import sys

import pytest


def python(code: str, **env: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if k != "VERL_PLATFORM"}
    return subprocess.run(
        [sys.executable, "-c", code], env={**clean, **env}, capture_output=True, text=True, timeout=120
    )


NOTHING_OF_CPU = """
import importlib.metadata, sys
before = importlib.metadata.version
import verl
from verl.plugin.platform.platform_manager import PlatformRegistry
import verl.utils.distributed, torch.distributed
from verl_ext import compat
assert "cpu" not in PlatformRegistry.registered_names()
assert importlib.metadata.version is before
assert torch.distributed.init_process_group.__module__ != "verl_ext.compat"
assert not [m for m in sys.modules if m.startswith("verl_ext.cpu")], "cpu shims imported"
from verl_ext.cpu import vllm_plugin
vllm_plugin.register()
assert "vllm" not in sys.modules
print("clean")
"""


def test_nothing_of_cpu_is_active_without_verl_platform():
    done = python(NOTHING_OF_CPU)
    assert done.stdout.strip().endswith("clean"), done.stderr[-2000:]


ALL_OF_CPU = """
import verl, importlib.metadata
from verl.utils.device import get_device_name, get_nccl_backend, get_device_id
import verl.workers.engine, verl.workers.engine.fsdp
from verl.workers.engine.base import EngineRegistry
assert (get_device_name(), get_nccl_backend(), str(get_device_id())) == ("cpu", "gloo", "cpu")
assert EngineRegistry.get_engine_cls("language_model", "fsdp2").__name__ == "FSDPEngineWithLMHead"
assert importlib.metadata.version("vllm").endswith("+cpu")
try:
    importlib.metadata.version("no-such-distribution")
except importlib.metadata.PackageNotFoundError:
    print("cpu")
"""


def test_cpu_platform_is_active_when_chosen():
    done = python(ALL_OF_CPU, VERL_PLATFORM="cpu")
    assert done.stdout.strip().endswith("cpu"), done.stderr[-2000:]


REGISTERED = """
import verl
import verl.experimental.agent_loop, verl.trainer.ppo.v1
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
modes = {name: get_trainer_cls(f"bugfix_{name}").base_mode for name in ("sync", "colocate_async", "separate_async")}
assert all(name == base for name, base in modes.items()), modes
print(_agent_loop_registry["bugfix"]["_target_"], get_reward_manager_cls("verifier").__name__,
      get_adv_estimator_fn("gigpo").__module__, get_adv_estimator_fn("potential").__module__)
"""


def test_loop_reward_trainers_and_estimators_are_registered():
    done = python(REGISTERED, VERL_PLATFORM="cpu")
    expected = "verl_ext.agent.loop.BugFixAgentLoop VerifierRewardManager" + 2 * " verl_ext.trainer.estimators"
    assert done.stdout.strip().endswith(expected), done.stderr[-2000:]


@pytest.mark.parametrize("module", ["verl_ext.agent.loop", "verl_ext.compat"])
def test_a_part_that_cannot_load_is_an_error_with_its_cause(module):
    code = f"""
import sys
sys.modules[{module!r}] = None  # importing it now raises ImportError
try:
    import verl, verl.experimental.agent_loop
except ImportError:
    pass
"""
    done = python(code)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR verl_ext: ")]
    assert errors and "cannot load" in errors[0] and module in errors[0], done.stderr[-2000:]
