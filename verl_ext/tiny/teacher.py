"""The scripted teacher: sessions made by really stepping the environment with a weak policy.

It explores: edits drawn from the menu without looking at what the code means, tests, undoing what did not help (not
always), giving up too early at times. It submits when all public tests pass. Copying it gives a policy that knows the
tools and keeps trying different things, which is what reinforcement learning then sharpens.

In sessions made for training it has *insight*: an edit is the true repair with a chance of 30 %. Without that a tiny
model starts from guessing, and the rare rewards of a guess teach too little; with too much there is nothing left to
learn. The teacher's own pass rate is measured without insight.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from verl_ext.gym.edits import applicable
from verl_ext.gym.env import BugFixEnv
from verl_ext.gym.operators import repair_edits
from verl_ext.tiny.tokenizer import call_text
from verl_ext.types import Action, InfrastructureError, Task, digest

if TYPE_CHECKING:
    from verl_ext.sandbox import Sandbox

S = TypeVar("S")

TURNS = 6
"""Turn limit of a session: two or three guesses with their undos, so that searching alone seldom wins."""
INSIGHT = 0.3
"""Chance that an edit of a training session is the true repair."""


@dataclass(frozen=True)
class Habits:
    """Probabilities of the weak policy's habits."""

    look_first: float = 0.1
    look_again: float = 0.04
    give_up: float = 0.06
    keep_failed_edit: float = 0.2
    repeat: float = 0.15


@dataclass(frozen=True)
class Session:
    """A finished session.

    Attributes:
        messages: The whole conversation, as a chat template takes it.
        task_id: Which task.
        turns: Policy messages.
        passed: Verdict of the hidden tests; None when it was not asked for.
    """

    messages: tuple[dict[str, str], ...]
    task_id: str
    turns: int
    passed: bool | None


def repairs(task: Task) -> list[tuple[int, str]]:
    """Menu edits that turn the task's source into its gold source, one being enough."""
    (path,) = task.gold
    return repair_edits(task.sources[path], task.gold[path])


class WeakPolicy:
    """Chooses actions for one session.

    Args:
        rng: Draws every choice.
        habits: Probabilities.
        solutions: Edits that repair the task's source. Only with ``insight`` are they looked at.
        insight: Chance that an edit is one of them.
    """

    def __init__(
        self,
        rng: random.Random,
        habits: Habits = Habits(),
        solutions: Sequence[tuple[int, str]] = (),
        insight: float = 0.0,
    ):
        self.rng = rng
        self.habits = habits
        self.solutions = solutions
        self.insight = insight
        self.tried: set[tuple[str, str, int, str]] = set()
        self.pending = False

    def __call__(self, env: BugFixEnv) -> Action:
        rng, habits = self.rng, self.habits
        if env.public_passed:
            return Action("submit")
        if self.pending:
            self.pending = False
            if rng.random() >= habits.keep_failed_edit:
                return Action("undo")
        if rng.random() < (habits.look_again if self.tried else habits.look_first):
            return Action("run_tests")
        if self.tried and rng.random() < habits.give_up:
            return Action("submit")
        return self.edit(env)

    def path(self, env: BugFixEnv) -> str:
        """The file that edits go to."""
        (path,) = env.task.editable
        return path

    def edit(self, env: BugFixEnv) -> Action:
        """A menu edit drawn at random, seldom one that was tried on this source before."""
        rng, anchor, path = self.rng, env.anchor, self.path(env)
        untouched = anchor == digest(env.task.sources)
        edits = applicable(env.sources[path])
        fresh = [edit for edit in edits if (anchor, path, *edit) not in self.tried]
        repairs = [edit for edit in fresh if untouched and path in env.task.gold and edit in self.solutions]
        if repairs and rng.random() < self.insight:
            edits = repairs
        elif fresh and rng.random() >= self.habits.repeat:
            edits = fresh
        if not edits:
            return Action("submit" if untouched else "undo")
        line, op = rng.choice(edits)
        self.tried.add((anchor, path, line, op))
        self.pending = True
        return Action("edit", {"line": line, "op": op})


async def play(
    task: Task, sandbox: Sandbox, policy: Callable[[BugFixEnv], Action], turns: int = TURNS, *, judge: bool = False
) -> Session:
    """One session of at most ``turns`` turns; ``judge`` also runs the hidden tests.

    Raises:
        InfrastructureError: The sandbox failed.
    """
    env = BugFixEnv(task, sandbox, "ops")
    await env.reset()
    messages = env.prompt()
    for _ in range(turns):
        action = policy(env)
        messages.append({"role": "assistant", "content": call_text(action.tool, dict(action.arguments))})
        observation = await env.step(action)
        if observation.done:
            break
        messages.append({"role": "tool", "content": observation.text})
    if messages[-1]["role"] == "tool":
        messages.pop()
    passed = (await env.grade()).passed if judge else None
    count = sum(message["role"] == "assistant" for message in messages)
    return Session(tuple(messages), task.task_id, count, passed)


async def sessions(
    tasks: Iterable[Task],
    sandbox: Sandbox,
    *,
    seed: int,
    turns: int = TURNS,
    insight: float = 0.0,
    judge: bool = False,
    parallel: int = 16,
    done: Callable[[], None] = lambda: None,
) -> list[Session]:
    """One session for each of ``tasks``, in their order; deterministic by ``seed`` whatever finishes first.

    Args:
        tasks: A task may come several times.
        sandbox: Grades.
        seed: With a session's place in ``tasks`` it fixes every choice in it.
        turns: Turn limit.
        insight: Chance that an edit is the repair, where one menu edit is.
        judge: Run the hidden tests at the end.
        parallel: Sessions at one time.
        done: Called after each session.

    Raises:
        InfrastructureError: The sandbox failed twice on one session.
    """

    async def one(index: int, task: Task) -> Session:
        rng = random.Random(f"{seed}/{index}/{task.task_id}")
        policy = WeakPolicy(rng, solutions=repairs(task) if insight else (), insight=insight)
        return await play(task, sandbox, policy, turns, judge=judge)

    return await each(tasks, one, parallel, done)


async def each(
    tasks: Iterable[Task],
    play_one: Callable[[int, Task], Awaitable[S]],
    parallel: int,
    done: Callable[[], None],
) -> list[S]:
    """``play_one(index, task)`` for each task, ``parallel`` at a time; once more where the sandbox fails.

    Raises:
        InfrastructureError: The sandbox failed twice on one session.
    """
    gate = asyncio.Semaphore(parallel)

    async def gated(index: int, task: Task) -> S:
        async with gate:
            try:
                session = await play_one(index, task)
            except InfrastructureError:
                session = await play_one(index, task)
            done()
            return session

    return list(await asyncio.gather(*(gated(index, task) for index, task in enumerate(tasks))))
