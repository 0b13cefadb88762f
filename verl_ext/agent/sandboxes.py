"""One sandbox per process: verl builds an agent loop object for every session, the sandbox outlives them all."""

from __future__ import annotations

import asyncio

from verl_ext.config import SandboxConfig
from verl_ext.sandbox import Sandbox, open_configured
from verl_ext.types import BadInput, InfrastructureError

_open: dict[SandboxConfig, asyncio.Task[Sandbox]] = {}


async def shared_sandbox(config: SandboxConfig) -> Sandbox:
    """The process's sandbox for ``config``, opened on first use (concurrent callers share the opening).

    Raises:
        InfrastructureError: It does not open. The recipe's validation opened one before the run, so this is no longer
            the user's mistake; the next caller tries again.
    """
    if config not in _open or (_open[config].done() and _open[config].exception()):
        _open[config] = asyncio.create_task(open_configured(config))
    try:
        return await asyncio.shield(_open[config])
    except BadInput as error:
        raise InfrastructureError(str(error)) from None
