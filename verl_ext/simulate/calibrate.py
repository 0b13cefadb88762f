"""Measured seconds of generation, taken back to those of a request at full speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_ext.simulate.model import Machine, simulate
from verl_ext.simulate.policies import Sync
from verl_ext.simulate.runs import Dump, StepSeconds
from verl_ext.simulate.workload import Session, StepCosts, distribution

# Steps that are replayed, and halvings of the interval.
_STEPS, _HALVINGS = 10, 12


@dataclass(frozen=True)
class _Replayed:
    sessions: Sequence[Session]
    speed: float
    after_s: float

    def group(self, number: int, size: int) -> list[Session]:
        session = self.sessions[number]
        return [Session(tuple(self.speed * turn for turn in session.turns), session.tools, self.after_s)]


def full_speed(dump: Dump, steps: Sequence[StepSeconds], saturation: float, after_s: float) -> float:
    """Factor on measured generation seconds with which a synchronous run's steps, replayed, wait as long as measured.

    A turn was measured beside others. With a saturation the model slows it down again, so that without this factor
    sharing would count twice.

    Args:
        dump: Sessions of a synchronous run.
        steps: Its seconds; the first ten that the dump has are replayed.
        saturation: Requests at full speed.
        after_s: Seconds after each session's last turn.

    Returns:
        Above 0, at most 1.
    """
    pairs = [(dump.steps[seconds.number], seconds.wait) for seconds in steps if seconds.number in dump.steps][:_STEPS]
    machine, free = Machine(saturation=saturation), StepCosts(0, distribution("0"), distribution("0"))

    def waits(speed: float) -> float:
        total = 0.0
        for groups, _ in pairs:
            sessions = [session for group in groups for session in group]
            replayed = _Replayed(sessions, speed, after_s)
            total += simulate(Sync(len(sessions)), machine, replayed, free, group=1, steps=1).seconds
        return total

    measured = sum(wait for _, wait in pairs)
    if waits(1.0) <= measured:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if waits(middle) < measured else (low, middle)
    return high
