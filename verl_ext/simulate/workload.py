"""What a session and a training step cost: distributions by parameters, or sessions of a run drawn again.

Draws depend on the seed and on the number of the group or step alone, so that every mode meets the same sessions in the
same order and modes differ by nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from verl_ext.types import BadInput


class Session(NamedTuple):
    """Seconds of a session.

    Attributes:
        turns: Generation of each turn, at full speed.
        tools: Tool delay after each turn (as many as turns).
        after: From the last tool's answer until the session can be trained on (grading, storing).
    """

    turns: tuple[float, ...]
    tools: tuple[float, ...]
    after: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it, undisturbed."""
        return math.fsum(self.turns) + math.fsum(self.tools) + self.after


class Workload(Protocol):
    """Where sessions come from."""

    def group(self, number: int, size: int) -> list[Session]:
        """The sessions of the prompt with this number."""
        ...


@dataclass(frozen=True)
class Distribution:
    """A distribution of seconds or counts, never negative.

    Attributes:
        text: As it was written.
        mean: Its mean.
        draw: One value.
    """

    text: str
    mean: float
    draw: Callable[[random.Random], float]


FORMS = "a number, constant:SECONDS, uniform:LOW:HIGH, exponential:MEAN, lognormal:MEAN:SIGMA or pareto:MEAN:ALPHA"


def distribution(text: str) -> Distribution:
    """Read a distribution; see :data:`FORMS`.

    ``SIGMA`` is the standard deviation of the logarithm; ``ALPHA`` is the tail's exponent, above 1 so that there is a
    mean (at 2 or less the variance is infinite). Both keep the mean that is given.

    Raises:
        BadInput: Another form, or a value that it does not allow.
    """
    name, *rest = text.split(":") if ":" in text else ("constant", text)
    try:
        values = [float(value) for value in rest]
    except ValueError:
        values = []
    wanted = {"constant": 1, "exponential": 1, "uniform": 2, "lognormal": 2, "pareto": 2}
    if name not in wanted or len(values) != wanted[name]:
        raise BadInput(f"{text!r} is no distribution; write {FORMS}")
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise BadInput(f"{text!r} has a value that is negative or not finite")
    first = values[0]
    if name == "constant":
        return Distribution(text, first, lambda rng: first)
    if name == "exponential":
        return Distribution(text, first, lambda rng: first * rng.expovariate(1.0))
    second = values[1]
    if name == "uniform":
        if second < first:
            raise BadInput(f"{text!r} has its bounds the wrong way round; write uniform:LOW:HIGH")
        return Distribution(text, (first + second) / 2, lambda rng: rng.uniform(first, second))
    if name == "lognormal":
        scale = math.exp(-second * second / 2)
        return Distribution(text, first, lambda rng: first * scale * math.exp(second * rng.gauss(0.0, 1.0)))
    if second <= 1:
        raise BadInput(f"{text!r} has no mean; the exponent of a Pareto tail must be above 1")
    least = first * (second - 1) / second
    return Distribution(text, first, lambda rng: least * rng.paretovariate(second))


def measured(values: Sequence[float]) -> Distribution:
    """Measured values, each as likely as the others."""
    kept = tuple(values)
    return Distribution(f"{len(kept)} measured", math.fsum(kept) / len(kept), lambda rng: rng.choice(kept))


@dataclass(frozen=True)
class Parameters:
    """Independent sessions; turns are rounded to a whole number, at least one."""

    seed: int
    turns: Distribution
    turn_s: Distribution
    tool_s: Distribution
    after_s: Distribution

    def group(self, number: int, size: int) -> list[Session]:
        """See :class:`Workload`."""
        rng = random.Random(f"{self.seed}:group:{number}")
        return [self._session(rng) for _ in range(size)]

    def _session(self, rng: random.Random) -> Session:
        count = max(1, round(self.turns.draw(rng)))
        turns = tuple(self.turn_s.draw(rng) for _ in range(count))
        tools = tuple(self.tool_s.draw(rng) for _ in range(count))
        return Session(turns, tools, self.after_s.draw(rng))


@dataclass(frozen=True)
class Resampled:
    """Measured sessions, drawn again by whole groups: sessions of one prompt are alike.

    Attributes:
        seed: Of the draws.
        groups: Measured sessions by prompt, none empty. A prompt of another size than asked for is drawn from with
            replacement.
        speed: Full-speed seconds for each measured second of generation, at most 1.
        after_s: Seconds after each session's last turn.
    """

    seed: int
    groups: Sequence[Sequence[Session]]
    speed: float
    after_s: Distribution

    def group(self, number: int, size: int) -> list[Session]:
        """See :class:`Workload`."""
        rng = random.Random(f"{self.seed}:group:{number}")
        group = self.groups[rng.randrange(len(self.groups))]
        drawn = rng.sample(group, size) if len(group) == size else rng.choices(group, k=size)
        return [
            Session(tuple(self.speed * turn for turn in session.turns), session.tools, self.after_s.draw(rng))
            for session in drawn
        ]


@dataclass(frozen=True)
class StepCosts:
    """Seconds of training and of the weight sync, drawn for each step."""

    seed: int
    train_s: Distribution
    sync_s: Distribution

    def step(self, number: int) -> tuple[float, float]:
        """Seconds of training and of the sync of the step with this number."""
        rng = random.Random(f"{self.seed}:step:{number}")
        return self.train_s.draw(rng), self.sync_s.draw(rng)
