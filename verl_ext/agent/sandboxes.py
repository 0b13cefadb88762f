"""One sandbox per process: verl builds an agent loop object for every session, the sandbox outlives them all."""

from __future__ import annotations

import asyncio

from verl_ext.config import SandboxConfig
from verl_ext.sandbox import Sandbox, open_sandbox

_open: dict[SandboxConfig, asyncio.Task[Sandbox]] = {}


async def shared_sandbox(config: SandboxConfig) -> Sandbox:
    """The process's sandbox for ``config``, opened on first use (concurrent callers share the opening)."""
    if config not in _open or (_open[config].done() and _open[config].exception()):
        _open[config] = asyncio.create_task(open_sandbox(isolation=config.isolation, workers=config.workers))
    return await asyncio.shield(_open[config])
