"""From a recipe's ``verl_ext.sandbox`` to a sandbox."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verl_ext.sandbox.base import Sandbox
from verl_ext.sandbox.local import open_sandbox
from verl_ext.types import BadInput, InfrastructureError

if TYPE_CHECKING:
    from verl_ext.config import SandboxConfig
    from verl_ext.sandbox.fusion import FusionSandbox
    from verl_ext.sandbox.swerex import SwerexSandbox


async def open_configured(config: SandboxConfig) -> Sandbox:
    """Opens what the recipe names; :class:`BadInput` where it cannot work."""
    if config.backend == "local":
        return await open_sandbox(isolation=config.isolation, workers=config.workers)
    return _swerex(config) if config.backend == "swerex" else _fusion(config)


async def check(config: SandboxConfig) -> None:
    """Raises :class:`BadInput`, in one line, when the recipe's sandbox does not run a trivial program here and now."""
    if config.backend == "local":
        if config.isolation != "none":
            await (await open_sandbox(isolation=config.isolation, workers=1)).aclose()
        return
    if config.backend == "swerex":
        await _check_swerex(_swerex(config))
        return
    sandbox = _fusion(config)
    try:
        if sick := sorted(set(config.endpoints) - set(await sandbox.healthy())):
            raise BadInput(
                f"verl_ext.sandbox.endpoints: {', '.join(sick)} does not run a trivial program; start or mend it, or "
                "take it out"
            )
    finally:
        await sandbox.aclose()


def _fusion(config: SandboxConfig) -> FusionSandbox:
    from verl_ext.sandbox.fusion import FusionSandbox  # an HTTP client, which the other has no need of

    # A secret stands in no configuration, since verl prints and stores those.
    return FusionSandbox(config.endpoints, config.concurrency, token=os.environ.get("VERL_EXT_SANDBOX_TOKEN", ""))


async def _check_swerex(sandbox: SwerexSandbox) -> None:
    try:
        await sandbox.check()
    except InfrastructureError as error:
        raise BadInput(
            f"verl_ext.sandbox.backend=swerex: {error}; see docs/sandbox.md for what the image needs"
        ) from None
    finally:
        await sandbox.aclose()


def _swerex(config: SandboxConfig) -> SwerexSandbox:
    from verl_ext.sandbox.swerex import SwerexSandbox  # an optional dependency

    return SwerexSandbox(config.deployment, config.image, config.concurrency, isolation=config.isolation)
