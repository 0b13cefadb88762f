"""Entry point of verl's ``verl.plugins`` group: registers everything, lazily and loudly.

verl imports this module at the end of ``import verl``, in every process, and hides whatever goes wrong at DEBUG level.
Two rules follow. Registration happens when verl's own registry module is imported (post-import hooks by ``wrapt``), so
that ``import verl`` stays as fast as before; and a part that cannot load prints an ERROR with its cause to stderr
before the exception goes on.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from wrapt import when_imported


@dataclass(frozen=True)
class Plugin:
    """One registration with verl.

    Attributes:
        kind: What verl calls the extension point.
        name: The name users write in a recipe.
        after: verl module that holds the registry; our module is imported right after it.
        module: Our module whose import registers the plugin.
        registry: Attribute path of the registry, a mapping keyed by ``name``: inside ``after``, or ``module:path``.
        cpu_only: Registered only with ``VERL_PLATFORM=cpu``.
    """

    kind: str
    name: str
    after: str
    module: str
    registry: str
    cpu_only: bool = False


PLUGINS: tuple[Plugin, ...] = (
    Plugin(
        "agent loop",
        "bugfix",
        "verl.experimental.agent_loop.agent_loop",
        "verl_ext.agent.loop",
        "_agent_loop_registry",
    ),
    Plugin(
        "reward manager",
        "verifier",
        "verl.experimental.reward_loop.reward_manager.registry",
        "verl_ext.reward.manager",
        "REWARD_MANAGER",
    ),
    Plugin(
        "trainer",
        "bugfix_sync",
        "verl.trainer.ppo.v1.trainer_sync",
        "verl_ext.trainer.sync",
        "verl.trainer.ppo.v1.trainer_base:TRAINER_REGISTRY",
    ),
    Plugin(
        "trainer",
        "bugfix_colocate_async",
        "verl.trainer.ppo.v1.trainer_colocate_async",
        "verl_ext.trainer.colocate_async",
        "verl.trainer.ppo.v1.trainer_base:TRAINER_REGISTRY",
    ),
    Plugin(
        "trainer",
        "bugfix_separate_async",
        "verl.trainer.ppo.v1.trainer_separate_async",
        "verl_ext.trainer.separate_async",
        "verl.trainer.ppo.v1.trainer_base:TRAINER_REGISTRY",
    ),
    Plugin(
        "advantage estimator",
        "gigpo",
        "verl.trainer.ppo.core_algos",
        "verl_ext.trainer.estimators",
        "ADV_ESTIMATOR_REGISTRY",
    ),
    Plugin(
        "advantage estimator",
        "potential",
        "verl.trainer.ppo.core_algos",
        "verl_ext.trainer.estimators",
        "ADV_ESTIMATOR_REGISTRY",
    ),
    Plugin(
        "platform",
        "cpu",
        "verl.plugin.platform.platform_manager",
        "verl_ext.cpu.platform",
        "PlatformRegistry._platforms",
        cpu_only=True,
    ),
    Plugin(
        "training engine",
        "cpu",
        "verl.workers.engine.fsdp.transformer_impl",
        "verl_ext.cpu.engine",
        "EngineRegistry._engines.language_model.fsdp2",
        cpu_only=True,
    ),
    Plugin(
        "checkpoint engine",
        "gloo",
        "verl.checkpoint_engine.base",
        "verl_ext.cpu.checkpoint_engine",
        "CheckpointEngineRegistry._registry",
        cpu_only=True,
    ),
)


def cpu_platform() -> bool:
    """True when the user chose the CPU platform. It is never guessed: a cluster's head node has no GPU either."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"


def loudly(what: str, action: Callable[[], None]) -> None:
    """Run ``action``; on failure print an ERROR with the cause, since verl logs it where nobody looks, and re-raise."""
    try:
        action()
    except Exception as error:
        print(f"ERROR verl_ext: {what} cannot load: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        raise


def _hook(plugin: Plugin) -> None:
    def register(_module: object) -> None:
        loudly(f"{plugin.kind} '{plugin.name}'", lambda: importlib.import_module(plugin.module) and None)

    when_imported(plugin.after)(register)


def register() -> None:
    """Install the hooks of every plugin that applies to this process; idempotent within a process by import."""
    for plugin in PLUGINS:
        if not plugin.cpu_only or cpu_platform():
            _hook(plugin)
    from verl_ext import compat

    compat.install(cpu=cpu_platform())


loudly("plugin", register)
