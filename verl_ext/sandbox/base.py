"""What every sandbox offers, whatever isolates it: the protocol, the limits, and an outcome without a judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from verl_ext.types import BadInput, Tests, Verdict


@dataclass(frozen=True)
class Limits:
    """Bounds on one grade; a solution that meets one of them has failed, by its own fault.

    Attributes:
        address_space: Bytes of virtual memory a process (a warm interpreter itself takes about 30 MB).
        processes: Processes and threads at one time, the worker included.
        cpu_seconds: CPU time of one call, of the worker's process. An honest call of the gym takes a millisecond; an
            edit that loops for ever takes all of it, twice, and such edits were most of a training step's sandbox time.
        call_seconds: Wall-clock of one call, enforced from outside. Larger than ``cpu_seconds`` on purpose: on a busy
            machine an honest solution waits, and must not fail for it.
        total_seconds: Wall-clock of all calls of a grade together.
        file_bytes: Size of one file, and of the private ``/tmp`` as a whole.
        output_bytes: Size of one answer on the wire. What a solution prints goes to ``/dev/null`` and needs no limit.
        open_files: Open file descriptors a process.
        restarts: How often a grade goes on in a fresh jail after the worker died or ran out of time.
    """

    address_space: int = 512 << 20
    processes: int = 16
    cpu_seconds: float = 0.3
    call_seconds: float = 10.0
    total_seconds: float = 30.0
    file_bytes: int = 16 << 20
    output_bytes: int = 1 << 20
    open_files: int = 64
    restarts: int = 1

    def __post_init__(self) -> None:
        least = {"address_space": 64 << 20, "processes": 2, "open_files": 8, "restarts": 0}
        for spec in fields(self):
            value, bound = getattr(self, spec.name), least.get(spec.name)
            if value < bound if bound is not None else value <= 0:
                allowed = f"at least {bound}" if bound is not None else "positive"
                raise BadInput(f"sandbox limit {spec.name}={value}: must be {allowed}")


@dataclass(frozen=True)
class Outcome:
    """What one case's call did, before anybody compares it.

    Attributes:
        value: The returned value (for a class with ``then``: the tuple of the methods' results), None without one.
        raised: Name of the exception type that came out, else None.
        error: Exception text, or why there is no value; ``""`` for a value.
        failure: None when the call returned or raised in an orderly way; else one of ``import``, ``timeout``,
            ``memory``, ``died``, ``protocol``, ``forbidden``, ``wrong`` (a result that is not plain data).
    """

    value: Any = None
    raised: str | None = None
    error: str = ""
    failure: str | None = None


class Sandbox(Protocol):
    """Runs untrusted code and judges it from outside.

    Failures of the code are data (a :class:`~verl_ext.types.Verdict`); failures of the sandbox are
    :class:`~verl_ext.types.InfrastructureError`, and the next call works on a fresh sandbox.
    """

    isolation: str

    async def grade(self, sources: Mapping[str, str], tests: Tests, limits: Limits | None = None) -> Verdict:
        """Judges a workspace in a fresh jail; everything the code started is gone when this returns.

        Args:
            sources: Path to text of the whole workspace.
            tests: Cases (oracle), pytest files (import proxy), or both.
            limits: Bounds; the sandbox's own by default.

        Raises:
            InfrastructureError: The sandbox failed, not the code.
        """
        ...

    async def evaluate(
        self, sources: Mapping[str, str], tests: Tests, limits: Limits | None = None
    ) -> tuple[Outcome, ...]:
        """Runs the cases and returns what they did, without comparing: how a reference's expected values are made."""
        ...

    async def aclose(self) -> None:
        """Ends every process; the sandbox cannot be used afterwards."""
        ...
