"""The clock of the model: timers, and work that shares a speed.

A library of event processes (SimPy) plans an event once and keeps it; here the end of every turn moves whenever another
one joins, the trainer starts, or the weights change. Work is therefore counted in units done rather than in seconds:
requests that share a speed keep their order, and one heap of finishing marks stays valid however the speed varies.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Then = Callable[[], None]


class Shared:
    """Work items that all progress at one ``speed`` (processor sharing).

    Attributes:
        speed: Units of work a second that each item gets; 0 stops all.
        items: Heap of the items; only its length is of use to others.
    """

    def __init__(self) -> None:
        self.speed = 0.0
        self.items: list[tuple[float, int, Then]] = []
        self._done = 0.0  # units that an item present from the start would have received
        self._count = 0

    def add(self, work: float, then: Then) -> None:
        """Begin an item of ``work`` units; ``then`` is called at its end."""
        heapq.heappush(self.items, (self._done + work, self._count, then))
        self._count += 1

    def remove_all(self) -> list[tuple[float, Then]]:
        """Take the items out, as remaining work and ``then``, in the order in which they would have ended."""
        left = [(max(mark - self._done, 0.0), then) for mark, _, then in sorted(self.items, key=lambda item: item[:2])]
        self.items = []
        return left

    def seconds_left(self) -> float:
        """Seconds to the next end at the present speed; infinite where nothing moves."""
        if not self.items or self.speed <= 0:
            return math.inf
        left = (self.items[0][0] - self._done) / self.speed
        return left if left > 0 else 0.0  # rounding

    def advance(self, seconds: float) -> None:
        """Let every item progress."""
        self._done += seconds * self.speed

    def finish(self) -> Then:
        """Take out the item that ends now."""
        return heapq.heappop(self.items)[2]


class Events:
    """Runs timers and shared work in order of time; ties in the order of their making, timers first."""

    def __init__(self, *shared: Shared):
        self.now = 0.0
        self.stopped = False
        self._shared = shared
        self._timers: list[tuple[float, int, Then]] = []
        self._count = 0

    def after(self, seconds: float, then: Then) -> None:
        """Call ``then`` in so many seconds."""
        heapq.heappush(self._timers, (self.now + seconds, self._count, then))
        self._count += 1

    def run(self, speeds: Then, passes: Callable[[float], None]) -> None:
        """Until ``stopped`` is set or nothing is left to happen.

        Args:
            speeds: Sets the speed of the shared work; called before each event.
            passes: Told how many seconds pass before each event, while all stays as it is.
        """
        while not self.stopped:
            speeds()
            step, next_work = self._timers[0][0] - self.now if self._timers else math.inf, None
            for work in self._shared:
                left = work.seconds_left()
                if left < step:
                    step, next_work = left, work
            if step == math.inf:
                return
            if step > 0:
                passes(step)
                self.now += step
                for work in self._shared:
                    work.advance(step)
            if next_work is None:
                self.now, _, then = heapq.heappop(self._timers)
            else:
                then = next_work.finish()
            then()
