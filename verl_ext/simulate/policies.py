"""What starts when, and which finished groups a step trains on: one class a way of training.

A policy talks to the model through :class:`Board`. Versions count weight syncs from 0; step ``i`` trains version ``i``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from verl_ext.simulate.workload import Session
from verl_ext.types import BadInput


@dataclass(eq=False)
class Group:
    """The sessions of one prompt.

    Attributes:
        number: In order of dispatch.
        dispatched: Version at which the prompt was handed to the rollout.
        sessions: Their costs.
        running: Sessions that have not ended.
        first, last: Versions of each session's first and last token; -1 before there is one.
    """

    number: int
    dispatched: int
    sessions: Sequence[Session]
    running: int
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether every session has ended."""
        return self.running == 0


class Board(Protocol):
    """What a policy sees of the model, and the two things it can do."""

    version: int
    dispatched: int
    held: dict[int, Group]  # dispatched, and neither trained nor dropped; by number, hence in order

    def dispatch(self, groups: int) -> None:
        """Hand so many new prompts to the rollout."""
        ...

    def drop(self, group: Group) -> None:
        """Throw a finished group away."""
        ...

    def free_slots(self) -> float:
        """Sessions that could start at once; infinite without a limit."""
        ...


@dataclass
class Policy:
    """A way of training; this base class does nothing of its own.

    Attributes:
        batch: Prompts a step.
        updates: Optimiser updates a step, each on an equal part of the batch.
    """

    batch: int
    updates: int = 1
    # Whether a sync interrupts generation; otherwise it waits until none is under way.
    partial: bool = False

    def begin(self, board: Board) -> None:
        """Before the first step."""

    def begin_step(self, board: Board) -> None:
        """Before a step looks for its batch."""

    def room(self, board: Board) -> None:
        """A session has ended, or the version has changed."""

    def taken(self, board: Board) -> None:
        """Training on the whole batch of a step has begun."""

    def choose(self, board: Board) -> list[Group] | None:
        """The groups of the next update; None while there are not enough."""
        finished = [group for group in board.held.values() if group.finished]
        return finished[: self.batch] if len(finished) >= self.batch else None


@dataclass
class Sync(Policy):
    """Generate, train, change the weights; one after the other."""

    def begin_step(self, board: Board) -> None:
        """Dispatch the step's batch."""
        board.dispatch(self.batch)


@dataclass
class OneStepOff(Policy):
    """The next batch is generated while this one trains; the weights change between the two.

    As verl's older entry point, ``verl/experimental/one_step_off_policy/ray_trainer.py``: the sync waits for
    generation, so that a session has one version, and a trained one is a single version old.
    """

    def begin(self, board: Board) -> None:
        """The first batch has nothing to overlap with."""
        board.dispatch(self.batch)

    def taken(self, board: Board) -> None:
        """Dispatch the next step's batch."""
        board.dispatch(self.batch)


@dataclass
class AReaL(Policy):
    """A prompt starts as soon as ``floor((N_r - 1) / B) <= i + eta`` and there is room for a session.

    arXiv 2505.24298, section 5.1, with ``N_r`` the trajectories started (this one among them), ``B`` those of a step
    and ``i`` the version. Counted here by whole prompts, which admits the same.

    Attributes:
        eta: The staleness.
        order: ``finished``: a step takes the oldest of the finished groups, as published; then stragglers are passed
            over, and the mean age is at most ``eta``, not each age. ``submitted``: strictly in the order of dispatch;
            no session is trained at an age above ``eta``, and the trainer waits for stragglers.
    """

    partial: bool = True
    eta: int = 0
    order: str = "finished"

    def begin(self, board: Board) -> None:
        """Start what the rule admits."""
        self.room(board)

    def room(self, board: Board) -> None:
        """Start what the rule admits."""
        while board.free_slots() > 0 and board.dispatched // self.batch <= board.version + self.eta:
            board.dispatch(1)

    def choose(self, board: Board) -> list[Group] | None:
        """See ``order``."""
        if self.order == "finished":
            return super().choose(board)
        first = list(board.held.values())[: self.batch]
        return first if len(first) == self.batch and all(group.finished for group in first) else None


@dataclass
class Verl(Policy):
    """verl's V1 ``separate_async``, as in 0.9.1.

    ``warmup * batch`` prompts are dispatched before the first step and ``batch`` at the start of each
    (``trainer_base.py``: ``_add_async_warmup_batches``, ``prepare_step``): as many as AReaL's rule admits with
    ``eta = warmup``. A step makes ``updates`` updates (``parameter_sync_step``), each on the finished prompts that were
    dispatched first, and then syncs. A prompt's span is ``global_steps - (that of its dispatch) + 1``
    (``replay_buffer.py: ReplayBufferAsync``).

    Attributes:
        warmup: ``num_warmup_batches``; fractions count whole prompts.
        threshold: ``max_off_policy_threshold``; None for no control.
        strategy: ``wait``: no update begins while an unfinished prompt's span has reached the threshold. ``drop``:
            finished prompts whose span is above it are thrown away, each for a new one.
    """

    partial: bool = True
    warmup: float = 1.0
    threshold: int | None = None
    strategy: str = "drop"

    def __post_init__(self) -> None:
        if self.batch % self.updates:
            raise BadInput(f"--updates {self.updates} does not divide the batch of {self.batch} prompts")

    def begin(self, board: Board) -> None:
        """The warm-up batches."""
        board.dispatch(math.floor(self.warmup * self.batch))

    def begin_step(self, board: Board) -> None:
        """One batch a step, whatever was trained."""
        board.dispatch(self.batch)

    def choose(self, board: Board) -> list[Group] | None:
        """Drop, wait, take the oldest."""
        if self.threshold is not None and self.strategy == "drop":
            stale = [g for g in board.held.values() if g.finished and self._span(board, g) > self.threshold]
            for group in stale:
                board.drop(group)
            board.dispatch(len(stale))
        if self.threshold is not None and self.strategy == "wait":
            unfinished = (g for g in board.held.values() if not g.finished)
            if any(self._span(board, g) >= self.threshold for g in unfinished):
                return None
        size = self.batch // self.updates
        finished = [group for group in board.held.values() if group.finished]
        return finished[:size] if len(finished) >= size else None

    @staticmethod
    def _span(board: Board, group: Group) -> int:
        return board.version - group.dispatched + 1


def one_step(batch: int) -> Verl:
    """``recipes/bugfix_one_step.yaml``: the next batch is handed out when a step begins, hence while the last sessions
    of this one are still under way; none is trained at an age above 1."""
    return Verl(batch, warmup=1.0, threshold=2, strategy="wait")
