"""verl's older asynchronous entry points: which one a configuration is for, and what of ours cannot work there.

Their trainers are not V1 trainers: they take one row a session, know no turns, and call none of our hooks. The agent
loop, the reward manager and the sandbox are the same.
"""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from verl_ext.types import BadInput

ENTRY_POINTS = {
    "fully_async": "verl.experimental.fully_async_policy.fully_async_main",
    "one_step_off": "verl.experimental.one_step_off_policy.main_ppo",
}
"""Recipe in ``recipes/legacy`` and the module that runs it."""

INSTEAD = {"fully_async": "bugfix_fully_async", "one_step_off": "bugfix_one_step"}
"""The recipe that does the same on V1."""

_RUNNER_CPUS = {"one_step_off": 10, "fully_async": 23}
"""CPUs that verl's own actors ask Ray for: ``@ray.remote(num_cpus=...)`` in ``one_step_off_policy/main_ppo.py``; in
``fully_async_main.py`` (1), ``_trainer.py`` (10), ``_rollouter.py`` (10) and ``message_queue.py`` (2)."""
_WORKER_CPUS = 8
"""And at least so many for two devices, the agent loops and the reward workers."""


def entry_point(config: DictConfig) -> str | None:
    """Key of :data:`ENTRY_POINTS` that the configuration is for, told by the keys that only these have; else None."""
    if "async_training" in config:
        return "fully_async"
    return "one_step_off" if "rollout" in config else None


def check(config: DictConfig, used: dict[str, bool]) -> None:
    """Refuse what the entry point would ignore, or fail on after Ray has started.

    Args:
        config: A configuration for which :func:`entry_point` is not None.
        used: V1-only parts of ours by the setting that asks for them, and whether it does.

    Raises:
        BadInput: Names the setting, and the recipe to use instead.
    """
    name = entry_point(config)
    module = ENTRY_POINTS[name]
    for setting, asked in used.items():
        if asked:
            raise BadInput(f"{setting} has no effect in {module}; use the recipe {INSTEAD[name]} instead")
    if config.actor_rollout_ref.hybrid_engine:
        raise BadInput(f"actor_rollout_ref.hybrid_engine=true: {module} has a rollout of its own; set it to false")
    if config.actor_rollout_ref.rollout.checkpoint_engine.backend == "naive":
        raise BadInput(
            f"{module} sends weights to other processes, which checkpoint_engine.backend=naive cannot; set "
            "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl, or gloo on CPU"
        )
    for key in ("nnodes", "n_gpus_per_node"):
        if not config.rollout[key] > 0:
            raise BadInput(f"rollout.{key}={config.rollout[key]}: {module} has a rollout of its own; give 1")
    slots, needed = OmegaConf.select(config, "ray_kwargs.ray_init.num_cpus"), _RUNNER_CPUS[name] + _WORKER_CPUS
    if slots is not None and slots < needed:
        raise BadInput(
            f"ray_kwargs.ray_init.num_cpus={slots}: {module} asks for {needed} or more, and Ray would wait for them "
            "for ever; give 48 (slots, not cores)"
        )
    if name == "one_step_off":
        return
    for key, wanted in (("train_batch_size", 0), ("gen_batch_size", 1)):
        if config.data[key] != wanted:
            raise BadInput(f"data.{key}={config.data[key]}: {module} streams single prompts; set it to {wanted}")
    settings = config.async_training
    for key, least in (("staleness_threshold", 0), ("trigger_parameter_sync_step", 1), ("require_batches", 1)):
        if settings[key] < least:
            raise BadInput(f"async_training.{key}={settings[key]} must be {least} or more")
    step = config.actor_rollout_ref.actor.ppo_mini_batch_size * settings.require_batches
    step *= settings.trigger_parameter_sync_step
    total = config.rollout.total_rollout_steps
    if total is not None and total < step:
        raise BadInput(f"rollout.total_rollout_steps={total} prompts are less than one step's {step}; give a multiple")


def refuse_v1(config: DictConfig) -> None:
    """Raise :class:`BadInput` for a configuration of these entry points in ``verl.trainer.main_ppo``."""
    if name := entry_point(config):
        raise BadInput(
            f"the recipe legacy/{name} is for python -m {ENTRY_POINTS[name]}; with verl.trainer.main_ppo use "
            f"the recipe {INSTEAD[name]}"
        )
