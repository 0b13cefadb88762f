"""The model: a rollout that generates turns, sessions that wait for tools, and one trainer.

A session occupies a slot from its first turn until it can be trained on. Turns under generation share the rollout's
speed; tool delays run by themselves. A sync stops generation for its duration and moves the version up by one; a turn
that it interrupts goes on afterwards with the new weights (partial rollout).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from verl_ext.simulate.events import Events, Shared
from verl_ext.simulate.policies import Group, Policy
from verl_ext.simulate.workload import StepCosts, Workload
from verl_ext.types import BadInput


@dataclass(frozen=True)
class Machine:
    """What does not depend on how one trains.

    Attributes:
        slots: Sessions at a time.
        saturation: Requests that generate at full speed; beyond, they share what so many get. Tokens a second at
            saturation over those of one request.
        overlap_speed: Speed of the trainer, and of generation, while both are at work: 1 on separate devices, 0.5 on
            one that they share.
        poll_s: Seconds between the trainer's looks at finished groups; 0: it sees them at once.
        resume_s: Least seconds from the abort of a request by a sync until it is sent again.
    """

    slots: float = math.inf
    saturation: float = math.inf
    overlap_speed: float = 1.0
    poll_s: float = 0.0
    resume_s: float = 0.0


@dataclass
class Counts:
    """Groups by what became of them; the last three are what is left at the end."""

    dispatched: int = 0
    trained: int = 0
    dropped: int = 0
    finished: int = 0
    running: int = 0
    waiting: int = 0


@dataclass
class Result:
    """What a simulation gives; figures are over the steps after the skipped ones.

    Attributes:
        steps, seconds: Steps that are counted, and how long they took.
        sessions_per_s: Trained sessions a second.
        train, wait, sync: Shares of the time that the trainer trains, waits for a batch (its idle share), and that
            weights change.
        generate, idle: Shares in which the rollout generates, and in which it could but has no request; with ``sync``
            they sum to 1.
        requests: Mean number of requests under generation.
        age: Trained sessions by age: versions between a session's oldest token and the policy that training begins
            with (verl's ``training/off_policy/trajectory_staleness_worst``).
        span: Trained sessions by number of versions that sampled them (``trajectory_spans``).
        dispatch_span: Trained sessions by verl's span, from dispatch.
        trained_s, started_s: Mean undisturbed seconds of the sessions trained, and of those started.
        counts: Of all groups, from the first step on.
    """

    steps: int
    seconds: float
    sessions_per_s: float
    train: float
    wait: float
    sync: float
    generate: float
    idle: float
    requests: float
    age: Counter[int]
    span: Counter[int]
    dispatch_span: Counter[int]
    trained_s: float
    started_s: float
    counts: Counts

    @property
    def step_s(self) -> float:
        """Seconds a step."""
        return self.seconds / self.steps

    @property
    def several(self) -> float:
        """Share of trained sessions with tokens of several versions."""
        return 1 - self.span[1] / self.span.total()


@dataclass
class _Totals:
    """Sums since the last reset."""

    start: float = 0.0
    train: float = 0.0
    sync: float = 0.0
    generate: float = 0.0
    request_s: float = 0.0
    sessions: int = 0
    trained_s: float = 0.0
    age: Counter[int] = field(default_factory=Counter)
    span: Counter[int] = field(default_factory=Counter)
    dispatch_span: Counter[int] = field(default_factory=Counter)


def simulate(
    policy: Policy,
    machine: Machine,
    workload: Workload,
    costs: StepCosts,
    *,
    group: int,
    steps: int,
    skip: int = 0,
    step_done: Callable[[int], None] | None = None,
) -> Result:
    """Train for ``steps`` steps.

    Args:
        policy, machine, workload, costs: How, and with what.
        group: Sessions a prompt.
        steps: Steps to train.
        skip: Steps at the start that are left out of every figure but the counts; fewer than ``steps``.
        step_done: Told the number of steps done.

    Raises:
        BadInput: The steps that are counted take no time at all.
    """
    model = _Model(policy, machine, workload, costs, group, steps, skip, step_done or (lambda step: None))
    return model.run()


class _Model:
    def __init__(
        self,
        policy: Policy,
        machine: Machine,
        workload: Workload,
        costs: StepCosts,
        group: int,
        steps: int,
        skip: int,
        step_done: Callable[[int], None],
    ):
        self.policy, self.machine, self.workload, self.costs = policy, machine, workload, costs
        self.group, self.steps, self.skip, self.step_done = group, steps, skip, step_done
        self.rollout, self.trainer = Shared(), Shared()
        self.events = Events(self.rollout, self.trainer)
        self.version = 0
        self.dispatched = self.dropped = self.trained = 0
        self.held: dict[int, Group] = {}
        self.queue: deque[tuple[Group, int]] = deque()
        self.slots = machine.slots
        self.waiting = self.syncing = self.sync_due = False
        self.update = 0
        self.started_s, self.started = 0.0, 0
        self.totals = _Totals()

    def run(self) -> Result:
        self.policy.begin(self)
        self._begin_step()
        self.events.run(self._speeds, self._pass)
        assert self.version == self.steps, "nothing is left to happen, and training is not done"
        totals = self.totals
        seconds = self.events.now - totals.start
        if seconds <= 0:
            raise BadInput("training would take no time at all; give turns, tools or the trainer some seconds")
        held = self.held.values()
        counts = Counts(
            self.dispatched,
            self.trained,
            self.dropped,
            finished=sum(group.finished for group in held),
            running=sum(not group.finished and max(group.first) >= 0 for group in held),
            waiting=sum(max(group.first) < 0 for group in held),
        )
        train, sync, generate = (part / seconds for part in (totals.train, totals.sync, totals.generate))
        return Result(
            steps=self.steps - self.skip,
            seconds=seconds,
            sessions_per_s=totals.sessions / seconds,
            train=train,
            wait=max(0.0, 1 - train - sync),
            sync=sync,
            generate=generate,
            idle=max(0.0, 1 - generate - sync),
            requests=totals.request_s / seconds,
            age=totals.age,
            span=totals.span,
            dispatch_span=totals.dispatch_span,
            trained_s=totals.trained_s / totals.sessions,
            started_s=self.started_s / self.started,
            counts=counts,
        )

    # What a policy can do.

    def dispatch(self, groups: int) -> None:
        for _ in range(groups):
            sessions = self.workload.group(self.dispatched, self.group)
            unknown = [-1] * self.group
            group = Group(self.dispatched, self.version, sessions, self.group, unknown, list(unknown))
            self.held[group.number] = group
            self.dispatched += 1
            self.queue.extend((group, i) for i in range(self.group))
        self._start()

    def drop(self, group: Group) -> None:
        del self.held[group.number]
        self.dropped += 1

    def free_slots(self) -> float:
        return self.slots

    # Sessions.

    def _start(self) -> None:
        while self.queue and self.slots > 0:
            group, i = self.queue.popleft()
            self.slots -= 1
            self.started += 1
            self.started_s += group.sessions[i].seconds
            self._turn(group, i, 0)

    def _turn(self, group: Group, i: int, turn: int) -> None:
        if turn == 0:
            group.first[i] = self.version + self.syncing  # sent during a sync, it waits for the new weights
        self.rollout.add(group.sessions[i].turns[turn], lambda: self._tool(group, i, turn))

    def _tool(self, group: Group, i: int, turn: int) -> None:
        group.last[i] = self.version
        session = group.sessions[i]
        if turn + 1 < len(session.turns):
            self.events.after(session.tools[turn], lambda: self._turn(group, i, turn + 1))
        else:
            self.events.after(session.tools[turn] + session.after, lambda: self._ended(group))

    def _ended(self, group: Group) -> None:
        group.running -= 1
        self.slots += 1
        self._start()
        self.policy.room(self)
        if not group.finished:
            return
        if self.sync_due:
            self._sync()
        elif self.waiting and not self.machine.poll_s:
            self._look()

    # The trainer.

    def _begin_step(self) -> None:
        self.update = 0
        self.policy.begin_step(self)
        self._look()

    def _look(self) -> None:
        chosen = self.policy.choose(self)
        self.waiting = chosen is None
        if chosen is None:
            if self.machine.poll_s:
                self.events.after(self.machine.poll_s, self._look)
            return
        self._account(chosen)
        self.update += 1
        train_s, _ = self.costs.step(self.version)
        self.trainer.add(train_s / self.policy.updates, self._updated)
        if self.update == self.policy.updates:
            self.policy.taken(self)

    def _updated(self) -> None:
        if self.update < self.policy.updates:
            self._look()
        else:
            self._sync()

    def _sync(self) -> None:
        self.sync_due = not self.policy.partial and any(not group.finished for group in self.held.values())
        if self.sync_due:
            return
        self.syncing = True
        _, sync_s = self.costs.step(self.version)
        left = self.rollout.remove_all()
        self.events.after(sync_s, self._synced)
        # After the timer above, so that what goes on at once does so with the new weights.
        for work, then in left:
            self.events.after(max(sync_s, self.machine.resume_s), lambda w=work, t=then: self.rollout.add(w, t))

    def _synced(self) -> None:
        self.syncing = False
        self.version += 1
        self.step_done(self.version)
        if self.version == self.skip:
            self.totals = _Totals(start=self.events.now)
        if self.version == self.steps:
            self.events.stopped = True
            return
        self.policy.room(self)
        self._begin_step()

    # Figures.

    def _account(self, chosen: list[Group]) -> None:
        totals = self.totals
        for group in chosen:
            del self.held[group.number]
            totals.dispatch_span[self.version - group.dispatched + 1] += self.group
            for first, last, session in zip(group.first, group.last, group.sessions, strict=True):
                totals.age[self.version - first] += 1
                totals.span[last - first + 1] += 1
                totals.trained_s += session.seconds
        self.trained += len(chosen)
        totals.sessions += len(chosen) * self.group

    def _speeds(self) -> None:
        requests = len(self.rollout.items)
        speed = self.machine.overlap_speed if requests and self.trainer.items else 1.0
        self.trainer.speed = speed
        if self.syncing:
            speed = 0.0
        elif requests > self.machine.saturation:
            speed *= self.machine.saturation / requests
        self.rollout.speed = speed

    def _pass(self, seconds: float) -> None:
        totals, requests = self.totals, len(self.rollout.items)
        if self.trainer.items:
            totals.train += seconds
        if self.syncing:
            totals.sync += seconds
        elif requests:
            totals.generate += seconds
            totals.request_s += seconds * requests
