"""The record of one session while it runs: token stream, turn table, stop reason. Pure; no verl."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

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


@dataclass
class Session:
    """Tokens and turns of a running session.

    Attributes:
        prompt_ids: Ids of the first prompt.
        ids: Prompt and response so far: exactly the next request's prompt.
        mask: 1 for sampled, 0 for observed tokens; aligned with the response.
        log_probs: The sampler's log-probs (nats), 0.0 where observed.
        turns: The turn table so far; rewards are set by the verdict, which comes later.
        sampled: For each turn the digest of everything the sampler saw and produced up to that turn's end.
        sources, public_share: The workspace after the last finished turn, and the share of public tests it passes.
    """

    prompt_ids: list[int]
    ids: list[int]
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    stop: StopReason | None = None
    generate_s: float = 0.0
    sandbox_s: float = 0.0
    invalid_run: int = 0
    sources: dict[str, str] = field(default_factory=dict)
    public_share: float = 0.0

    def add_turn(
        self, start: int, action: Action, observation: Observation, potential: float, sources: dict[str, str]
    ) -> None:
        """Append a finished turn.

        Args:
            start: Response position of its first token.
            action, observation: What was asked and answered.
            potential: That of the state the turn started from.
            sources: The workspace after it. Kept, because time may run out in the middle of the next turn, whose edit
                must not be graded when its tokens are not in the row.
        """
        self.sources, self.public_share = dict(sources), observation.potential
        self.turns.append(
            Turn(
                index=len(self.turns),
                start=start,
                end=len(self.mask),
                tool=action.tool,
                action=action_digest(action),
                anchor=observation.anchor,
                potential=potential,
                reward=0.0,
                valid=observation.valid,
                redundant=observation.redundant,
                hard_coded=observation.hard_coded,
            )
        )
        self.sandbox_s += observation.seconds
        self.invalid_run = 0 if observation.valid else self.invalid_run + 1

    def record(self) -> dict[str, Any]:
        """What estimators, reward and dumps read: the same keys for every session."""
        return {
            "turns": [asdict(turn) for turn in self.turns],
            "sampled": self.sampled[: len(self.turns)],
            "stop": str(self.stop),
            "sandbox_s": self.sandbox_s,
            "generate_s": self.generate_s,
        }
