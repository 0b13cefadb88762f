"""Self-check: which level is in force on this machine and what holds at it, and what the other one would give."""

from __future__ import annotations

import asyncio
import getpass
import os
from typing import NamedTuple

from verl_ext.sandbox import backend, landlock
from verl_ext.sandbox.attempts import Check, attempts, running
from verl_ext.sandbox.local import ENABLE, Isolation, Level, LocalSandbox, started
from verl_ext.types import BadInput, InfrastructureError

__all__ = ["Check", "probe", "running"]


class _Tried(NamedTuple):
    """What came of a level: its lines, or why it does not start."""

    level: Level
    checks: tuple[Check, ...]
    error: str = ""

    @property
    def held(self) -> bool:
        return not self.error and all(check.ok for check in self.checks)

    @property
    def summary(self) -> str:
        if self.error:
            return self.error
        if broken := [check.name for check in self.checks if not check.ok]:
            return f"it does not hold: {', '.join(broken)}"
        weak = [check.name for check in self.checks if check.found]
        lacks = f", without: {', '.join(weak)}" if weak else ""
        return f"{len(self.checks) - len(weak)} of {len(self.checks)} protections hold{lacks}; {_how(self.level)}"


def probe(isolation: Isolation = "auto") -> list[Check]:
    """Checks the sandbox on this machine, in a few seconds.

    Args:
        isolation: As for :func:`~verl_ext.sandbox.local.open_sandbox`.

    Returns:
        First ``isolation``, which says what is in force and why; then a line for each protection of that level; then
        one line for the other level.
    """
    return asyncio.run(_probe(isolation))


async def _probe(isolation: Isolation) -> list[Check]:
    if isolation == "none":
        return [Check("isolation", False, "none: asked for; untrusted code runs with your rights")]
    tried = [await _try(level) for level in ("bubblewrap", "landlock")]
    wanted = [one for one in tried if isolation in ("auto", one.level)]
    chosen = next((one for one in wanted if one.held), None)
    if chosen is None:
        broken = [check for one in wanted for check in one.checks if not check.ok]
        reasons = "; ".join(f"{one.level}: {one.summary}" for one in wanted)
        return [Check("isolation", False, f"refused: {reasons}; {ENABLE}"), *broken]
    caller = f"{getpass.getuser() if os.geteuid() else 'root'} (uid {os.geteuid()})"
    lines = [Check("isolation", True, f"{chosen.level} works for {caller}; {_how(chosen.level)}"), *chosen.checks]
    for one in tried:
        if one is not chosen:
            lines.append(Check(f"level {one.level}", True, one.summary, "possible" if one.held else "not here"))
    return lines


async def _try(level: Level) -> _Tried:
    sandbox = LocalSandbox(level, workers=1)
    try:
        return _Tried(level, tuple(await attempts(await started(sandbox))))
    except (BadInput, InfrastructureError) as error:
        return _Tried(level, (), str(error))
    finally:
        await sandbox.aclose()


def _how(level: Level) -> str:
    """What a level is made of here."""
    if level == "bubblewrap":
        user = f", runs as uid {backend.NOBODY}" if backend.drops_to_nobody() else ""
        return f"{backend.find_bwrap()}{user}"
    own = backend.own_users(backend.readable())
    user = "each slot has a uid of its own" if own else f"runs as uid {os.geteuid()}, without capabilities"
    return f"Landlock version {landlock.abi()}, {user}"
