"""Who of a run is dead, and whether anything still finishes: verl waits for sessions for ever, whatever became of them.

Nothing here waits for an actor that is busy: a ping that is not answered yet is left out and looked at the next time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

SHOWN = 5
"""Prompts that a line about a stall names."""


class RunEnded(RuntimeError):
    """The run cannot go on. The text is one line: what happened, what was kept, and how to go on."""


@dataclass(frozen=True)
class Death:
    """One actor that died.

    Attributes:
        kind: What it was for the run, e.g. ``rollout server``.
        where: Process and node, as far as Ray knows.
        why: Ray's first words on the cause.
    """

    kind: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind} died ({self.where}: {self.why})"


def death(kind: str, error: ray.exceptions.ActorDiedError) -> Death:
    """Read what Ray tells about a death from the text of its error; it has no fields for it."""
    text = str(error)
    known = dict(re.findall(r"^\t(\w+): (.*)$", text, re.MULTILINE))
    where = f"{known.get('class_name', 'actor')}, pid {known.get('pid', '?')} on node {known.get('ip', '?')}"
    found = re.search(r"^The actor (?:is dead because|died because of) (.*?)(?:\. |\.?$)", text, re.MULTILINE)
    detail = re.search(r"Worker exit type: (\w+)", text)
    why = found.group(1) if found else text.splitlines()[0]
    return Death(kind, where, f"{why}, {detail.group(1)}" if detail else why)


class Watch:
    """Looks after actors by pings that nobody waits for: one is under way for each, and a new one follows its answer.

    Args:
        actors: Kind and Ray handle of each; one that is named twice is watched once, under its first kind.
    """

    def __init__(self, actors: Iterable[tuple[str, Any]]):
        self.actors: dict[Any, tuple[str, Any]] = {}
        for kind, handle in actors:
            self.actors.setdefault(handle._actor_id, (kind, handle))
        self._pings: dict[Any, Any] = {}
        self.dead: list[Death] = []

    def look(self, timeout_s: float = 0.0) -> list[Death]:
        """Everyone found dead so far; waits at most ``timeout_s`` for answers."""
        for name, (_, handle) in self.actors.items():
            if name not in self._pings:
                self._pings[name] = handle.__ray_ready__.remote()
        if not self._pings:
            return self.dead
        of = {ping: name for name, ping in self._pings.items()}
        answered, _ = ray.wait(list(of), num_returns=len(of), timeout=timeout_s, fetch_local=False)
        for ping in answered:
            name = of[ping]
            del self._pings[name]
            try:
                ray.get(ping)
            except ray.exceptions.ActorDiedError as error:
                self.dead.append(death(self.actors.pop(name)[0], error))
            except ray.exceptions.RayError:  # out of reach for now: the next ping will tell
                continue
        return self.dead

    def ask(self, timeout_s: float) -> list[Death]:
        """As :meth:`look`, by pings sent now: an old one may have been answered before its actor died."""
        self.look()
        return self.look(timeout_s)

    def busy(self, kind: str, timeout_s: float) -> bool:
        """Whether one of that kind does not answer in time; waits no longer than that."""
        pings = [handle.__ray_ready__.remote() for of, handle in self.actors.values() if of == kind]
        return bool(pings) and bool(ray.wait(pings, num_returns=len(pings), timeout=timeout_s)[1])


class Stall:
    """Seconds that the trainer has waited without a session's end.

    Args:
        limit_s: How many are too many; 0: never.
        pause_s: Looks that lie further apart than this were not waiting: the trainer did something else.
    """

    def __init__(self, limit_s: float, pause_s: float, clock: Callable[[], float] = time.monotonic):
        self.limit_s, self.pause_s, self.clock = limit_s, pause_s, clock
        self.waited = 0.0
        self._seen: frozenset[str] = frozenset()
        self._last: float | None = None

    def look(self, ended: Collection[str]) -> bool:
        """Whether it has stalled, given the keys of all sessions and groups that have ended and were not trained on."""
        now, ended = self.clock(), frozenset(ended)
        apart = 0.0 if self._last is None else now - self._last
        self.waited = 0.0 if ended - self._seen else self.waited + min(apart, self.pause_s)
        self._last, self._seen = now, ended
        return 0 < self.limit_s <= self.waited


def stalled(waited_s: float, waiting: Sequence[tuple[str, str, int]], failed: int) -> str:
    """One line on a stall.

    Args:
        waited_s: Seconds without a session's end.
        waiting: Uid, status and the step it was handed out at, for each prompt under way.
        failed: Groups that have failed.
    """
    named = ", ".join(f"{uid} ({status} since step {step})" for uid, status, step in waiting[:SHOWN])
    more = f" and {len(waiting) - SHOWN} more" if len(waiting) > SHOWN else ""
    under_way = f"{len(waiting)} prompts wait: {named}{more}" if waiting else "no prompt is under way"
    failures = f"; {failed} groups failed" if failed else ""
    return f"no session finished for {waited_s:.0f} s; {under_way}{failures}"
