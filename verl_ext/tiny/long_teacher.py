"""The scripted teacher of long tasks: it finds the file, guesses edits there, and handles a small context.

It looks at the tests, views the file whose function fails (mostly), and there explores as the ordinary teacher does.
What left the context it views again. Under ``note`` it writes down file and lines tried, when asked and now and then
unasked; under ``fold`` it opens a branch for a file before it looks into it, and returns with the lines tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_ext.agent.context import Context, Message
from verl_ext.agent.folding import REQUEST, Fold, Note
from verl_ext.agent.settings import ContextConfig
from verl_ext.gym.env import BugFixEnv
from verl_ext.gym.tools_ops import tested_file
from verl_ext.tiny.long_play import Measure, Played, play
from verl_ext.tiny.teacher import Habits, WeakPolicy, each, repairs
from verl_ext.types import Action, Task

if TYPE_CHECKING:
    from verl_ext.sandbox import Sandbox

INSIGHT = 0.5
"""Chance that an edit of a training session is the true repair; more than for ordinary tasks, of which fewer edits are
made in the wrong file."""
TURNS = 14
"""Turn limit of a session; with that many, most outgrow the budgets below."""
BUDGETS = 320, 448
"""Tokens of a context: the smallest and the largest that a training session draws."""
WIDE = 1000
"""Tokens of the one context of ``none``, just below the model's positions."""
MANAGERS = {"none": 0.3, "drop_oldest": 0.15, "env_summary": 0.15, "note": 0.2, "fold": 0.2}
"""Shares of the sessions for training."""


@dataclass(frozen=True)
class LongHabits:
    """Probabilities of what the long teacher does beside editing.

    Attributes:
        look: Tests are run before the first view.
        follow: A view goes to the file whose function fails, once that was seen; else to any other.
        again: A file that left the context is viewed again before it is edited.
        leave: After two edits in a file that did not help, another one is viewed instead of a further edit, where the
            file is not the one whose function fails.
        note: A note is written unasked.
        branch: A branch is opened before a view, where there may be one.
        patience: Edits in a branch before it returns: the least and the most.
    """

    look: float = 0.9
    follow: float = 0.9
    again: float = 0.95
    leave: float = 0.4
    note: float = 0.04
    branch: float = 0.9
    patience: tuple[int, int] = (2, 4)


class LongPolicy(WeakPolicy):
    """Chooses actions for one long session; see :class:`~verl_ext.tiny.teacher.WeakPolicy` for the arguments."""

    def __init__(
        self,
        rng: random.Random,
        solutions: Sequence[tuple[int, str]] = (),
        insight: float = 0.0,
        long_habits: LongHabits = LongHabits(),
    ):
        super().__init__(rng, Habits(look_first=0.0, give_up=0.05), solutions, insight)
        self.long = long_habits
        self.number = self.viewed = 0
        self.lines: dict[int, list[int]] = {}
        self.shown: dict[int, str] = {}
        self.viewing = False
        self.patience = self.misses = 0

    def path(self, env: BugFixEnv) -> str:
        return sorted(env.task.editable)[self.number - 1]

    def __call__(self, env: BugFixEnv, context: Context, messages: Sequence[Message]) -> Action:
        if self.viewing and messages[-1]["content"].startswith("1: "):
            self.shown[self.number] = messages[-1]["content"].removesuffix(f"\n{REQUEST}")
        self.viewing = False
        if messages[-1]["content"].endswith(REQUEST):
            return self._note()
        if env.public_passed:
            return Action("return", {"message": "fixed"}) if context.branching else Action("submit")
        rng, habits = self.rng, self.long
        if self.pending:
            self.pending = False
            self.misses += 1
            if rng.random() >= self.habits.keep_failed_edit:
                return Action("undo")
        if context.branching and self.misses >= self.patience:
            self.misses = 0
            return Action("return", {"message": self._tried("not fixed")})
        if isinstance(context, Note) and self.lines and rng.random() < habits.note:
            return self._note()
        astray = self.number and self.path(env) not in env.task.gold
        if not self.number or (astray and not context.branching and self.misses > 1 and rng.random() < habits.leave):
            return self._look(env, context, messages)
        if self.viewed != self.number or not self._visible(messages):
            if not context.branching and rng.random() < 1 - habits.follow:
                return self._look(env, context, messages)
            if self.viewed != self.number or rng.random() < habits.again:
                return self._view(context, self.number)
        return self._edit(env, context)

    def _edit(self, env: BugFixEnv, context: Context) -> Action:
        action = super().__call__(env)
        if action.tool == "edit":
            self.lines.setdefault(self.number, []).append(action.arguments["line"])
        if action.tool == "submit" and context.branching:
            return Action("return", {"message": self._tried("not fixed")})
        return action

    def _look(self, env: BugFixEnv, context: Context, messages: Sequence[Message]) -> Action:
        """Tests, or a file: the one whose function fails where the context tells it, else any."""
        rng, files = self.rng, sorted(env.task.editable)
        numbers, target = range(1, len(files) + 1), files.index(tested_file(env.task)) + 1
        told = any(message["role"] == "tool" and f"\nfile {target}: " in message["content"] for message in messages)
        if not told and rng.random() < self.long.look:
            return Action("run_tests")
        follows = told and rng.random() < self.long.follow
        return self._view(context, target if follows else rng.choice([n for n in numbers if not told or n != target]))

    def _view(self, context: Context, number: int) -> Action:
        self.number, self.misses = number, 0
        free = isinstance(context, Fold) and not context.branching and context.opened < context.settings.branches
        if free and self.rng.random() < self.long.branch:
            self.patience = self.rng.randint(*self.long.patience)
            return Action("branch", {"goal": f"file {number}"})
        self.viewing, self.viewed = True, number
        return Action("view", {"file": number})

    def _visible(self, messages: Sequence[Message]) -> bool:
        source = self.shown.get(self.number)
        return source is not None and any(message["content"].startswith(source) for message in messages)

    def _note(self) -> Action:
        return Action("note", {"text": self._tried(f"file {self.number}") if self.number else "run_tests"})

    def _tried(self, text: str) -> str:
        lines = list(dict.fromkeys(self.lines.get(self.number, ())))[-4:]
        return f"{text} tried {' '.join(map(str, lines))}" if lines else text


async def sessions(
    tasks: Sequence[Task],
    sandbox: Sandbox,
    measure: Measure,
    *,
    seed: int,
    managers: Sequence[str] = tuple(MANAGERS),
    insight: float = INSIGHT,
    turns: int = TURNS,
    budgets: tuple[int, int] = BUDGETS,
    judge: bool = False,
    parallel: int = 16,
    done: Callable[[], None] = lambda: None,
) -> list[Played]:
    """One session for each of ``tasks``, in their order; deterministic by ``seed`` whatever finishes first.

    Args:
        tasks: A task may come several times.
        sandbox: Grades.
        measure: Counts tokens.
        seed: With a session's place in ``tasks`` it fixes every choice in it, manager and budget among them.
        managers: Those to draw from, by the shares of :data:`MANAGERS`.
        insight: Chance that an edit is the repair, where one menu edit is.
        turns: Turn limit.
        budgets: The smallest and the largest that are drawn.
        judge: Run the hidden tests at the end.
        parallel: Sessions at one time.
        done: Called after each session.

    Raises:
        InfrastructureError: The sandbox failed twice on one session.
    """

    async def one(index: int, task: Task) -> Played:
        rng = random.Random(f"{seed}/long/{index}/{task.task_id}")
        (chosen,) = rng.choices(managers, [MANAGERS[name] for name in managers])
        budget = WIDE if chosen == "none" else rng.randint(*budgets)
        settings = ContextConfig(manager=chosen, budget=budget)
        policy = LongPolicy(rng, repairs(task) if insight else (), insight)
        return await play(task, sandbox, policy, settings, measure, turns, judge=judge)

    return await each(tasks, one, parallel, done)
