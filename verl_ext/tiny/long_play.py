"""Sessions under a context manager without verl: the agent loop's moves on messages instead of token ids.

The managers are those of :mod:`verl_ext.agent`; what they ask is how many tokens a context has, which a tokenizer
answers here. Each segment becomes a conversation in which only what was sampled in it is marked as the policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from verl_ext.agent.context import Context, Exchange, GoOn, Message, Move, Restart, summary
from verl_ext.agent.folding import manager
from verl_ext.agent.session import with_hint
from verl_ext.agent.settings import ContextConfig
from verl_ext.gym.env import BugFixEnv
from verl_ext.tiny.tokenizer import call_text
from verl_ext.types import Action, Observation, Task

if TYPE_CHECKING:
    from verl_ext.sandbox import Sandbox

TOOLS = "ops_files"
RESERVE = 32
"""Tokens kept for the next message; ``verl_ext.max_turn_tokens`` of the recipe."""


class Measure:
    """Tokens of messages as the chat template renders them: a sum, since each begins and ends with a fixed token."""

    def __init__(self, tokenizer: Any):
        self._one = lru_cache(200_000)(
            lambda role, content: len(
                tokenizer.apply_chat_template([{"role": role, "content": content}], return_dict=False)
            )
        )

    def __call__(self, messages: Sequence[Message]) -> int:
        return sum(self._one(message["role"], message["content"]) for message in messages)


@dataclass
class Segment:
    """A context and what was sampled in it.

    Attributes:
        messages: All of it.
        shown: Messages that it began with.
        calls: For each turn the number of messages up to and with its own.
    """

    messages: list[Message]
    shown: int = 0
    calls: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shown = len(self.messages)

    @property
    def sampled(self) -> list[bool]:
        """For each message whether the policy wrote it in this segment."""
        return [i >= self.shown and message["role"] == "assistant" for i, message in enumerate(self.messages)]


@dataclass
class Played:
    """A finished session.

    Attributes:
        task_id, manager, budget: Which task, under which manager, in how many tokens.
        segments: At least one; each ends with a message of the policy.
        turns: Policy messages.
        tokens: The whole history as one conversation.
        passed: Verdict of the hidden tests; None when it was not asked for.
    """

    task_id: str
    manager: str
    budget: int
    segments: list[Segment]
    turns: int = 0
    tokens: int = 0
    passed: bool | None = None


@dataclass
class _Room:
    """:class:`~verl_ext.agent.context.Room` of a played session."""

    measure: Measure
    head: Sequence[Message]
    segment: Segment
    budget: int
    reserve: int

    def left(self, answer: str) -> int:
        return self.budget - self._filled([*self.segment.messages, {"role": "tool", "content": answer}])

    def size(self, messages: Sequence[Message]) -> int:
        return self._filled([*self.head, *messages])

    def grown(self, turn: int) -> int:
        return self.measure(self.segment.messages[self.segment.calls[turn] :])

    def _filled(self, messages: Sequence[Message]) -> int:
        return self.measure(messages) + 1  # the mark that asks for the next message


Policy = Callable[[BugFixEnv, Context, Sequence[Message]], Action]
"""Chooses an action, given the environment, the manager and the context as the policy sees it."""


async def play(
    task: Task,
    sandbox: Sandbox,
    policy: Policy,
    settings: ContextConfig,
    measure: Measure,
    turns: int,
    *,
    judge: bool = False,
) -> Played:
    """One session of at most ``turns`` turns in contexts of ``settings.budget`` tokens.

    Raises:
        InfrastructureError: The sandbox failed.
    """
    env = BugFixEnv(task, sandbox, TOOLS)
    await env.reset()
    context = manager(settings.manager)(settings, list(task.sources))
    head = with_hint(env.prompt(), context.hint[TOOLS])
    played = Played(task.task_id, settings.manager, settings.budget, [Segment(list(head))], tokens=measure(head))
    reserve = 1 if settings.manager == "none" else RESERVE
    for index in range(turns):
        segment = played.segments[-1]
        action = policy(env, context, segment.messages)
        call = call_text(action.tool, dict(action.arguments))
        segment.messages.append({"role": "assistant", "content": call})
        segment.calls[index] = len(segment.messages)
        before = env.sources
        reply = context.act(action)
        if reply is None:
            observation = await env.step(action)
        else:
            observation = Observation(reply.text, False, env.anchor, env.potential, reply.valid, reply.redundant)
        changed = tuple(path for path, text in env.sources.items() if before[path] != text)
        turn = Exchange(
            index,
            action.tool,
            observation.valid,
            call,
            observation.text,
            summary(action, observation, env.public),
            changed,
        )
        played.turns += 1
        played.tokens += measure([segment.messages[-1], {"role": "tool", "content": observation.text}])
        if observation.done or index + 1 == turns:
            break
        move = context.move(turn, _Room(measure, head, segment, settings.budget, reserve))
        if move is None or (not isinstance(move, GoOn) and len(played.segments) >= settings.max_segments):
            break
        _follow(played, head, move)
    played.segments = [segment for segment in played.segments if segment.calls]
    if judge:
        played.passed = (await env.grade()).passed
    return played


def _follow(played: Played, head: Sequence[Message], move: Move) -> None:
    segment = played.segments[-1]
    if isinstance(move, GoOn):
        segment.messages.append({"role": "tool", "content": move.answer})
    elif isinstance(move, Restart):
        played.segments.append(Segment([*head, *move.messages]))
    else:
        kept = segment.messages[: segment.calls[move.turn]]
        played.segments.append(Segment([*kept, {"role": "tool", "content": move.answer}]))
