"""``verl_ext.exactness``: how far sampler and trainer may differ, and where a session that passes it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path

from verl_ext.types import BadInput


@dataclass(frozen=True)
class ExactnessConfig:
    """The check that training sees what the sampler saw. The gaps themselves are in the metrics of every run.

    Attributes:
        bound: Largest difference of a policy token's log-probs, in nats, that is still rounding; None: no bound.
        dump_dir: Folder for the sessions that pass it; None: ``exactness`` in ``trainer.default_local_dir``.
        dumps: Sessions written a step, the worst ones; 0: none, only the warning.
    """

    bound: float | None = None
    dump_dir: str | None = None
    dumps: int = 4

    def folder(self, default_local_dir: str) -> Path:
        """Where dumps go in a run whose checkpoints go to ``default_local_dir``."""
        return Path(self.dump_dir) if self.dump_dir else Path(default_local_dir) / "exactness"


def check(settings: ExactnessConfig) -> None:
    """Refuse in one line what is out of range or would have no effect.

    Raises:
        BadInput: Names the key, its value, and what to do.
    """
    where, bound = "verl_ext.exactness", settings.bound
    if bound is not None:
        number = isinstance(bound, int | float) and not isinstance(bound, bool)
        if not (number and math.isfinite(bound) and bound > 0):
            raise BadInput(f"{where}.bound={bound!r} must be a number of nats greater than 0, or null for no bound")
    if settings.dump_dir is not None and not (isinstance(settings.dump_dir, str) and settings.dump_dir):
        raise BadInput(f"{where}.dump_dir={settings.dump_dir!r} must be a folder, or null for one beside checkpoints")
    if settings.dumps < 0:
        raise BadInput(f"{where}.dumps={settings.dumps} must not be negative; 0 writes none")
    if bound is None:
        idle = [f for f in fields(settings) if f.name != "bound" and getattr(settings, f.name) != f.default]
        if idle:
            found = ", ".join(f"{f.name}={getattr(settings, f.name)}" for f in idle)
            raise BadInput(f"{where}.bound=null ignores {found}; set a bound in nats, e.g. bound=1e-4")
