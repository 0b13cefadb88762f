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


def action_of(name: str | None, arguments: str | None) -> Action:
    """The parsed call; an :class:`Action` with ``error`` when there is none or its arguments are no JSON object."""
    if name is None:
        return Action("", error="no tool call")
    try:
        parsed = json.loads(arguments or "{}")
    except json.JSONDecodeError as error:
        return Action(name, error=f"arguments are not JSON: {error.msg}")
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

    def add_turn(self, start: int, action: Action, observation: Observation, potential: float) -> None:
        """Append a turn whose tokens began at response position ``start``; ``potential`` is that of its start."""
        self.turns.append(
            Turn(
                index=len(self.turns),
                start=start,
                end=len(self.mask),
                tool=action.tool,
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
            "sampled": list(self.sampled),
            "stop": str(self.stop),
            "sandbox_s": self.sandbox_s,
            "generate_s": self.generate_s,
        }
