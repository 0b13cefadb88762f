"""The record of one session while it runs: segments with their tokens, turn table, stop reason. Pure; no verl."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from verl_ext.agent.context import Context, Exchange
from verl_ext.agent.settings import ChargesConfig
from verl_ext.types import Action, Observation, StopReason, Turn


def ids_digest(ids: list[int]) -> str:
    """16 hex digits over token ids: what the sampler saw can be checked against a training row later."""
    return hashlib.blake2b(json.dumps(ids).encode(), digest_size=8).hexdigest()


def action_digest(action: Action) -> str:
    """16 hex digits over tool and arguments; every message without a readable call is the same action."""
    blob = json.dumps([action.tool, dict(action.arguments)], sort_keys=True)
    return hashlib.blake2b(blob.encode(), digest_size=8).hexdigest()


def action_of(name: str | None, arguments: str | None) -> Action:
    """The parsed call; an :class:`Action` with ``error`` when there is none or its arguments are no JSON object."""
    if name is None:
        return Action("", error="no tool call")
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        return Action(name, error=f"arguments are not JSON: {getattr(error, 'msg', type(error).__name__)}")
    if not isinstance(parsed, dict):
        return Action(name, error="arguments are not an object")
    return Action(name, parsed)


def clean(text: str) -> str:
    """``text`` as a tokenizer takes it: without lone surrogates, which a policy's call may hold."""
    return text.encode("utf-8", "replace").decode()


def with_hint(head: list[dict[str, Any]], hint: str) -> list[dict[str, Any]]:
    """The first messages with ``hint`` on a line of its own at the end of the last one."""
    return [*head[:-1], {**head[-1], "content": f"{head[-1]['content']}\n{hint}"}] if hint else head


@dataclass
class Segment:
    """A stretch sampled in one growing context: one training row.

    Attributes:
        prompt_ids: Ids of the context in which it began.
        ids: Prompt and response so far: exactly the next request's prompt.
        mask: 1 for sampled, 0 for observed tokens; aligned with the response.
        log_probs: The sampler's log-probs (nats), 0.0 where observed.
        messages: The context as chat messages; of the policy's own, only what its parser leaves as text.
        turns: Turns sampled in it; rewards are set by the verdict, which comes later.
        sampled: For each turn the digest of everything the sampler saw and produced up to that turn's end.
        calls: For each turn the number of messages and of ids up to and with its message.
    """

    prompt_ids: list[int]
    messages: list[dict[str, Any]]
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    calls: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ids = self.ids or list(self.prompt_ids)

    @property
    def seen(self) -> int:
        """Tokens of its context up to the last finished turn, or of its prompt."""
        return len(self.prompt_ids) + (self.turns[-1].end if self.turns else 0)


@dataclass
class Session:
    """Segments and turns of a running session.

    Attributes:
        segments: The last one grows.
        budget: Tokens of a context.
        sources, public_share: The workspace after the last finished turn, and the share of public tests it passes.
    """

    segments: list[Segment]
    budget: int
    stop: StopReason | None = None
    generate_s: float = 0.0
    sandbox_s: float = 0.0
    invalid_run: int = 0
    sources: dict[str, str] = field(default_factory=dict)
    public_share: float = 0.0

    @property
    def segment(self) -> Segment:
        """The one that grows."""
        return self.segments[-1]

    @property
    def turns(self) -> list[Turn]:
        """Of all segments, in order."""
        return [turn for segment in self.segments for turn in segment.turns]

    def add_turn(
        self,
        start: int,
        action: Action,
        observation: Observation,
        potential: float,
        sources: dict[str, str],
        charges: dict[str, float] | None = None,
        versions: tuple[int, ...] = (),
    ) -> None:
        """Append a finished turn.

        Args:
            start: Response position of its first token in the growing segment.
            action, observation: What was asked and answered.
            potential: That of the state the turn started from.
            sources: The workspace after it. Kept, because time may run out in the middle of the next turn, whose edit
                must not be graded when its tokens are not in the row.
            charges: Process terms, by name.
            versions: Of the weights that sampled it.
        """
        self.sources, self.public_share = dict(sources), observation.potential
        charges = charges or {}
        self.segment.turns.append(
            Turn(
                index=sum(len(segment.turns) for segment in self.segments),
                start=start,
                end=len(self.segment.mask),
                tool=action.tool,
                action=action_digest(action),
                anchor=observation.anchor,
                potential=potential,
                reward=-sum(charges.values()),
                valid=observation.valid,
                redundant=observation.redundant,
                hard_coded=observation.hard_coded,
                charges=charges,
                versions=versions,
            )
        )
        self.sandbox_s += observation.seconds
        self.invalid_run = 0 if observation.valid else self.invalid_run + 1

    def records(self) -> list[dict[str, Any]]:
        """For each segment with turns what estimators, reward and dumps read: the same keys for every session."""
        kept, turns = [segment for segment in self.segments if segment.turns], self.turns
        whole = {
            "stop": str(self.stop),
            "sandbox_s": self.sandbox_s,
            "generate_s": self.generate_s,
            "budget": self.budget,
            "segments": len(kept),
            "totals": {
                "turns": len(turns),
                "invalid": sum(not turn.valid for turn in turns),
                "redundant": sum(turn.redundant for turn in turns),
                "hard_coded": sum(turn.hard_coded for turn in turns),
            },
        }
        return [
            {
                "turns": [asdict(turn) for turn in segment.turns],
                "sampled": segment.sampled[: len(segment.turns)],
                **whole,
            }
            for segment in kept
        ]


def charged(
    charges: ChargesConfig, context: Context, turn: Exchange, segment: Segment, budget: int
) -> dict[str, float]:
    """Process terms of a turn that is about to be added to ``segment``: those that are on, by name.

    ``main_tokens`` counts what the turn adds beyond the free share of the budget, so over a segment the charges add up
    to one for each token beyond it.
    """
    found = {}
    if charges.main_tokens:
        free = max(int(charges.main_share * budget), segment.seen)
        beyond = 0 if context.branching else max(len(segment.ids) - free, 0)
        found["main_tokens"] = charges.main_tokens * beyond
    if charges.stray_branch:
        found["stray_branch"] = charges.stray_branch * context.strays(turn)
    if charges.failed_call:
        found["failed_call"] = charges.failed_call * (not turn.valid)
    return found
