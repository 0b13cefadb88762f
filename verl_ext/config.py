"""Typed configuration: what a recipe writes under ``verl_ext:``, checked before Ray or any worker starts.

verl's own keys are used where verl has them (turn limit ``rollout.multi_turn.max_assistant_turns``, observation limit
in characters ``rollout.multi_turn.max_tool_response_length``, call format ``rollout.multi_turn.format``, response
budget ``rollout.response_length``); this file adds only what verl lacks.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.agent.settings import ContextConfig
from verl_ext.agent.settings import check as check_context
from verl_ext.objective.settings import EntropyConfig
from verl_ext.objective.settings import check as check_entropy
from verl_ext.simulate.workload import distribution
from verl_ext.trainer.exactness_settings import ExactnessConfig
from verl_ext.trainer.exactness_settings import check as check_exactness
from verl_ext.types import BadInput, InfrastructureError

TRUNCATED = ("mask", "zero", "score")
BACKENDS = ("local", "fusion", "swerex")
DEPLOYMENTS = ("docker", "local")
TOOLS = ("ops", "ops_files", "code")


@dataclass(frozen=True)
class SandboxConfig:
    """Where untrusted code runs.

    Attributes:
        backend: ``local``: on this machine. ``fusion``: SandboxFusion servers, for tasks with cases.
            ``swerex``: SWE-ReX deployments, for tasks with cases whose code needs an image.
        isolation: For ``local``: ``auto`` (the best level that holds), ``bubblewrap`` or ``landlock``; ``none`` runs
            without isolation and prints a warning.
        workers: For ``local``: runs at a time, in each process that owns a sandbox.
        endpoints: For ``fusion``: URLs of ``run_code``.
        concurrency: For ``fusion``: requests, for ``swerex``: deployments at a time from this machine, all processes
            together.
        deployment: For ``swerex``: ``docker``, or ``local``, which does not isolate and needs ``isolation: none``.
        image: For ``swerex`` in Docker: the container image.
        shared: Whether tasks may have tests that run in the solution's own process, whose verdict can be fooled.
    """

    backend: str = "local"
    isolation: str = "auto"
    workers: int = 2
    endpoints: tuple[str, ...] = ()
    concurrency: int = 16
    deployment: str = "docker"
    image: str = ""
    shared: bool = False


@dataclass(frozen=True)
class Config:
    """The recipe's ``verl_ext`` node.

    Attributes:
        tools: ``ops`` (TinyAgent's edit menu), ``ops_files`` (the same on several files) or ``code`` (language models).
        wall_clock_s: Seconds a session may take, generation included.
        max_invalid_calls: Consecutive messages without a usable call that end a session.
        max_turn_tokens: Tokens of one message; a longer one ends the session like a spent response budget. 0: no limit
            but the budget.
        truncated: What becomes of a session that a limit cut: ``mask`` (graded, but no loss on its tokens: compact
            filtering), ``zero`` (reward 0), ``score`` (the final state is graded like any other).
        truncated_in_baseline: With ``mask``: whether the session's reward enters its group's statistics.
        poll_interval_s: Seconds between the trainer's looks at finished sessions (verl: 2.0, not configurable).
        grade_s: Seconds the grade of a session may take, waiting for a sandbox included. After that it counts as a
            failure of infrastructure.
        temperature_factor: Factor on the temperature that sessions are sampled at. Other than 1, sampler and trainer
            differ by a known amount: to measure what a correction does, in evaluation too.
        tool_delay: Seconds to wait after each tool's answer, as :func:`~verl_ext.simulate.workload.distribution` reads
            them: stands for slow tools where asynchrony is measured. They count into ``wall_clock_s``.
        watch_s: Seconds between looks at whether all actors live, see :mod:`verl_ext.trainer.watch`. 0: never, and no
            ``stall_s`` either.
        stall_s: Seconds beyond ``wall_clock_s`` that the trainer waits without any session's end before it ends the
            run. 0: for ever.
        session_dir: Folder for one JSON line a session with ids, log-probs and turn table; None for none.
        sandbox: See :class:`SandboxConfig`.
        entropy: See :class:`~verl_ext.objective.settings.EntropyConfig`.
        context: See :class:`~verl_ext.agent.settings.ContextConfig`.
        exactness: See :class:`~verl_ext.trainer.exactness_settings.ExactnessConfig`.
    """

    tools: str = "ops"
    wall_clock_s: float = 300.0
    max_invalid_calls: int = 3
    max_turn_tokens: int = 0
    truncated: str = "score"
    truncated_in_baseline: bool = True
    poll_interval_s: float = 0.1
    grade_s: float = 600.0
    temperature_factor: float = 1.0
    tool_delay: str = "constant:0"
    watch_s: float = 10.0
    stall_s: float = 600.0
    session_dir: str | None = None
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    entropy: EntropyConfig = field(default_factory=EntropyConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    exactness: ExactnessConfig = field(default_factory=ExactnessConfig)


def _build(cls: type, node: Any, where: str) -> Any:
    if not isinstance(node, dict):
        raise BadInput(f"{where}={node!r} must hold settings; known are: {', '.join(f.name for f in fields(cls))}")
    known = {f.name: f for f in fields(cls)}
    for key in node:
        if key not in known:
            raise BadInput(f"{where}.{key} is not a setting; known are: {', '.join(known)}")
    values = {}
    for name, f in known.items():
        if name not in node:
            continue
        value = node[name]
        default = f.default_factory() if callable(f.default_factory) else f.default
        if isinstance(default, str) and isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # Hydra reads a text of digits as a number
        if is_dataclass(default):
            value = _build(type(default), value, f"{where}.{name}")
        elif isinstance(default, tuple):
            if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
                raise BadInput(f"{where}.{name}={value!r} must be a list of texts")
            value = tuple(value)
        elif isinstance(default, bool) != isinstance(value, bool) or (
            default is not None and not isinstance(value, (int, float) if isinstance(default, float) else type(default))
        ):
            raise BadInput(f"{where}.{name}={value!r} must be {type(default).__name__}, like the default {default!r}")
        values[name] = value
    return cls(**values)


def _one_of(where: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise BadInput(f"{where}={value!r} is not one of {', '.join(allowed)}")


def _positive(where: str, value: float) -> None:
    if value <= 0:
        raise BadInput(f"{where}={value!r} must be greater than 0")


def parse(config: DictConfig) -> Config:
    """Read ``config.verl_ext`` (absent: defaults); raises :class:`BadInput` that names the key and what is allowed."""
    node = config.get("verl_ext", {})
    node = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    parsed = _build(Config, node, "verl_ext")
    _one_of("verl_ext.tools", parsed.tools, TOOLS)
    _one_of("verl_ext.truncated", parsed.truncated, TRUNCATED)
    _one_of("verl_ext.sandbox.backend", parsed.sandbox.backend, BACKENDS)
    _one_of("verl_ext.sandbox.isolation", parsed.sandbox.isolation, ("auto", "bubblewrap", "landlock", "none"))
    for name in ("wall_clock_s", "max_invalid_calls", "poll_interval_s", "grade_s", "temperature_factor"):
        _positive(f"verl_ext.{name}", getattr(parsed, name))
    try:
        distribution(parsed.tool_delay)
    except BadInput as error:
        raise BadInput(f"verl_ext.tool_delay: {error}") from None
    for name in ("watch_s", "stall_s"):
        if getattr(parsed, name) < 0:
            raise BadInput(f"verl_ext.{name}={getattr(parsed, name)} must not be negative; 0 is never")
    if parsed.max_turn_tokens < 0:
        raise BadInput(f"verl_ext.max_turn_tokens={parsed.max_turn_tokens} must not be negative; 0 is no limit")
    for name in ("workers", "concurrency"):
        _positive(f"verl_ext.sandbox.{name}", getattr(parsed.sandbox, name))
    if bool(parsed.sandbox.endpoints) != (parsed.sandbox.backend == "fusion"):
        raise BadInput(
            f"verl_ext.sandbox.backend={parsed.sandbox.backend} with endpoints={list(parsed.sandbox.endpoints)}: "
            "backend=fusion needs endpoints=[http://HOST:8080/run_code], and the others take none"
        )
    _check_deployment(parsed.sandbox)
    check_exactness(parsed.exactness)
    if not parsed.truncated_in_baseline and parsed.truncated != "mask":
        raise BadInput("verl_ext.truncated_in_baseline=false needs verl_ext.truncated=mask")
    return parsed


def _check_deployment(sandbox: SandboxConfig) -> None:
    """The settings of ``swerex`` go together, and belong to no other backend."""
    where = f"verl_ext.sandbox.backend={sandbox.backend}"
    _one_of("verl_ext.sandbox.deployment", sandbox.deployment, DEPLOYMENTS)
    if sandbox.backend != "swerex":
        if sandbox.image or sandbox.deployment != "docker":
            raise BadInput(
                f"{where} with deployment={sandbox.deployment}, image={sandbox.image!r}: these are for backend=swerex"
            )
    elif sandbox.deployment == "local":
        if sandbox.isolation != "none" or sandbox.image:
            raise BadInput(
                f"{where} with deployment=local, isolation={sandbox.isolation}, image={sandbox.image!r}: it does not "
                "isolate and has no image; set isolation=none for code you trust, else deployment=docker with an image"
            )
    elif sandbox.isolation != "auto" or not sandbox.image:
        raise BadInput(
            f"{where} with deployment=docker, isolation={sandbox.isolation}, image={sandbox.image!r}: it needs an "
            "image, e.g. image=verl-ext-swerex, and isolates by the container: leave isolation=auto"
        )


def data_files(config: DictConfig) -> dict[str, list[str]]:
    """Files of tasks on this machine, by the key under ``data`` that names them."""
    named = {key: config.data.get(key) or [] for key in ("train_files", "val_files")}
    listed = {key: [files] if isinstance(files, str) else list(files) for key, files in named.items()}
    return {key: [file for file in files if "://" not in file] for key, files in listed.items()}


def _check_rows(file: Path, tools: str, sandbox: SandboxConfig) -> str | None:
    """Why a parquet of ours cannot be used with these settings; None when it can, or does not say."""
    import pyarrow.parquet as pq

    from verl_ext.gym.tasks import task_from_json

    rows = [row or {} for row in pq.read_table(file, columns=["extra_info"])["extra_info"].to_pylist()]
    built = rows[0].get("tools") if rows else None
    if built not in (None, tools):
        return (
            f"was built for verl_ext.tools={built}, not {tools}; run: verl-ext tasks build "
            f"{'--long' if tools == 'ops_files' else f'--tools {tools}'} --out FOLDER"
        )
    for text in (row.get("task") or "" for row in rows):
        if '"files":' not in text or not (task := task_from_json(text)).hidden.files:
            continue
        if sandbox.backend != "local":
            return f"holds task {task.task_id} with pytest files, which need verl_ext.sandbox.backend=local"
        if task.hidden.shared and not sandbox.shared:
            return (
                f"holds task {task.task_id}, whose tests run in the solution's own process, where a policy can fool "
                "them; leave it out, or set verl_ext.sandbox.shared=true"
            )
    return None


def validate(config: DictConfig) -> None:
    """Refuse, in one line, what cannot work; called before verl's own validation, so before any worker starts.

    Runs for configurations that use our parts (agent loop ``bugfix``, an estimator of ours); others pass untouched.
    """
    if (parsed := check_settings(config)) is None:
        return
    on_cpu = os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"
    if (config.trainer.device == "cpu") != on_cpu:
        raise BadInput(
            f"trainer.device={config.trainer.device} but VERL_PLATFORM={os.environ.get('VERL_PLATFORM', '')!r}: "
            "for a CPU run use both hardware=cpu and VERL_PLATFORM=cpu, for GPUs neither"
        )
    long = " --long" if parsed.tools == "ops_files" else ""
    model = Path(str(config.actor_rollout_ref.model.path)).expanduser()
    if on_cpu and not (model / "config.json").is_file():
        raise BadInput(f"actor_rollout_ref.model.path={model} holds no config.json; run: verl-ext tiny build{long}")
    for key, files in data_files(config).items():
        for file in files:
            if not (path := Path(file).expanduser()).is_file():
                raise BadInput(
                    f"data.{key}: {file} does not exist; run: verl-ext tasks build{long} --out {Path(file).parent}"
                )
            if problem := _check_rows(path, parsed.tools, parsed.sandbox):
                raise BadInput(f"data.{key}: {file} {problem}")
    asyncio.run(_try_sandbox(parsed.sandbox, [file for files in data_files(config).values() for file in files]))


def check_settings(config: DictConfig) -> Config | None:
    """The part of :func:`validate` that needs neither model nor tasks nor a sandbox.

    Returns:
        Ours, when the agent loop is; else None.
    """
    from verl_ext import legacy
    from verl_ext.trainer.settings import (
        ESTIMATORS,
        GROUP_RELATIVE,
        check_correction,
        check_segments,
        credit_settings,
    )

    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout")
    estimator = OmegaConf.select(config, "algorithm.adv_estimator")
    if rollout is None:
        return None
    bugfix = "verl_ext" in config or rollout.agent.default_agent_loop == "bugfix"
    if not bugfix and estimator not in ESTIMATORS:
        return None
    parsed = parse(config)
    if legacy.entry_point(config):
        parts = {
            f"algorithm.adv_estimator={estimator}": estimator in ESTIMATORS,
            f"verl_ext.context.manager={parsed.context.manager}": parsed.context.manager != "none",
            f"verl_ext.entropy.where={parsed.entropy.where}": parsed.entropy.where != "none",
            f"verl_ext.session_dir={parsed.session_dir}": parsed.session_dir is not None,
            "verl_ext.truncated_in_baseline=false": not parsed.truncated_in_baseline,
        }
        legacy.check(config, parts)
    else:
        _check_v1(config, estimator)
    credit_settings(config.algorithm)
    check_entropy(parsed.entropy, config)
    check_context(parsed.context, config)
    check_correction(config, bonus=parsed.entropy.where != "none")
    check_segments(parsed.context, config)
    if estimator in GROUP_RELATIVE and rollout.n < 2:
        raise BadInput(
            f"actor_rollout_ref.rollout.n={rollout.n}: {estimator} compares the sessions of a group; use 2 or more"
        )
    if not bugfix:
        return None
    if config.reward.reward_manager.name != "verifier":
        raise BadInput(
            f"reward.reward_manager.name={config.reward.reward_manager.name!r} cannot grade the bugfix agent loop; "
            "set reward.reward_manager.name=verifier"
        )
    if not rollout.calculate_log_probs:
        raise BadInput(
            "actor_rollout_ref.rollout.calculate_log_probs=false: exactness is checked with it; set it to true"
        )
    if not rollout.multi_turn.max_assistant_turns:
        raise BadInput("actor_rollout_ref.rollout.multi_turn.max_assistant_turns is not set; give the turn limit")
    return parsed


async def _try_sandbox(settings: SandboxConfig, private: list[str]) -> None:
    """It runs a trivial program, and code finds neither this package nor the tasks where it runs."""
    from verl_ext.gym import leaks
    from verl_ext.sandbox import check, open_configured

    await check(settings)
    if settings.isolation == "none":
        return
    sandbox = await open_configured(settings)
    try:
        leak = await leaks.in_sandbox((), sandbox, private)
    except InfrastructureError as error:
        raise BadInput(str(error)) from None
    finally:
        await sandbox.aclose()
    if leak is not None:
        raise BadInput(f"verl_ext.sandbox: a policy's code could look up solutions: {leak}; see docs/sandbox.md, Leaks")


def _check_v1(config: DictConfig, estimator: str) -> None:
    """One of our V1 trainers, and what its mode needs."""
    from verl_ext.trainer.settings import ESTIMATORS, TRAINERS
    from verl_ext.trainer.staleness import check_staleness

    if not config.trainer.use_v1:
        raise BadInput("trainer.use_v1=false: verl_ext works with verl's V1 trainer only; set trainer.use_v1=true")
    if (mode := config.trainer.v1.trainer_mode) not in TRAINERS:
        lacks = f"turns for algorithm.adv_estimator={estimator}" if estimator in ESTIMATORS else "session metrics"
        raise BadInput(f"trainer.v1.trainer_mode={mode} has no {lacks}; set it to {' or '.join(TRAINERS)}")
    if TRAINERS[mode] == "separate_async":
        _check_separate(config, mode)
    if TRAINERS[mode] != "sync":
        check_staleness(config, TRAINERS[mode])


def _check_separate(config: DictConfig, mode: str) -> None:
    """What verl asserts in the trainer, after Ray has started."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    if rollout.checkpoint_engine.backend == "naive":
        raise BadInput(
            f"trainer.v1.trainer_mode={mode} sends weights to other processes, which checkpoint_engine.backend=naive "
            "cannot; set actor_rollout_ref.rollout.checkpoint_engine.backend=nccl, or gloo on CPU"
        )
    for name in ("nnodes", "n_gpus_per_node"):
        if not rollout[name] > 0:
            raise BadInput(f"actor_rollout_ref.rollout.{name}={rollout[name]}: {mode} has a rollout of its own; give 1")
    updates = config.trainer.v1.separate_async.parameter_sync_step
    if config.data.train_batch_size != updates * actor.ppo_mini_batch_size:
        raise BadInput(
            f"data.train_batch_size={config.data.train_batch_size} must be "
            f"trainer.v1.separate_async.parameter_sync_step={updates} times "
            f"actor_rollout_ref.actor.ppo_mini_batch_size={actor.ppo_mini_batch_size}"
        )


def validate_or_exit(config: DictConfig, check: Callable[[DictConfig], None] = validate) -> None:
    """Run ``check``, ending the process with one line on stderr and exit status 2 on bad input."""
    try:
        check(config)
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
