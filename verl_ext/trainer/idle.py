"""How much of a step the trainer waited for sessions, and the rollout for requests."""

from __future__ import annotations

import threading
from collections.abc import Callable

LOOK_S = 0.2


class InFlight(threading.Thread):
    """Looks at the number of requests under way, a few times a second.

    Args:
        count: Tells the number; a look at which it raises is left out.
        look_s: Seconds between looks.
    """

    def __init__(self, count: Callable[[], int], look_s: float = LOOK_S):
        super().__init__(name="requests-in-flight", daemon=True)
        self.count, self.look_s = count, look_s
        self._seen: list[int] = []
        self._lock = threading.Lock()
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(self.look_s):
            try:
                seen = self.count()
            except Exception:  # whoever looks after the actors will say it; without looks there is no metric
                continue
            with self._lock:
                self._seen.append(seen)

    def take(self) -> list[int]:
        """Numbers seen since the last call."""
        with self._lock:
            seen, self._seen = self._seen, []
        return seen

    def end(self) -> None:
        """Look no more."""
        self._end.set()


def idle_metrics(step_s: float, waited_s: float, in_flight: list[int] | None) -> dict[str, float]:
    """``idle/trainer`` and ``idle/rollout``, each a share of the step.

    Args:
        step_s: Seconds of the step, without validation, saving and the sending of weights.
        waited_s: Those in which the trainer waited for sessions.
        in_flight: Requests under way at each look during the step, for a rollout of its own; None where trainer and
            rollout take turns on the same devices, so that the rollout has nothing to do unless the trainer waits.

    Returns:
        Also ``idle/in_flight``, the mean number of requests, for a rollout of its own.
    """
    if step_s <= 0:
        return {}
    waited = min(waited_s / step_s, 1.0)
    if in_flight is None:
        return {"idle/trainer": waited, "idle/rollout": 1.0 - waited}
    if not in_flight:
        return {"idle/trainer": waited}
    return {
        "idle/trainer": waited,
        "idle/rollout": sum(not seen for seen in in_flight) / len(in_flight),
        "idle/in_flight": sum(in_flight) / len(in_flight),
    }
