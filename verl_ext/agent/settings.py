"""``verl_ext.context``: how a session's history is shortened, and the runs in which that cannot work."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, fields

from omegaconf import DictConfig

from verl_ext.types import BadInput

MANAGERS = ("none", "drop_oldest", "env_summary", "note", "fold")
WEIGHTINGS = ("session", "row")


@dataclass(frozen=True)
class ChargesConfig:
    """Process terms: rewards taken off on the turn that earned it, each a metric ``process/<name>``; off by default.

    Attributes:
        main_tokens: For each token that a turn adds to the main context (not to a branch) beyond ``main_share``.
        main_share: Share of the budget that is free.
        stray_branch: For each turn of a branch that changes a file its goal does not name; a goal that names no file
            binds to none.
        failed_call: For each message whose call could not be read or was refused.
    """

    main_tokens: float = 0.0
    main_share: float = 0.5
    stray_branch: float = 0.0
    failed_call: float = 0.0

    @property
    def any(self) -> bool:
        """Whether some term is on."""
        return bool(self.main_tokens or self.stray_branch or self.failed_call)


@dataclass(frozen=True)
class ContextConfig:
    """See ``docs/folding.md``.

    Attributes:
        manager: ``none``: the whole history. ``drop_oldest``: the oldest tool answers go first. ``env_summary``: old
            tool answers become one line each. ``note``: the policy's note replaces the history. ``fold``: the turns of
            a branch leave the context when it returns.
        budget: Tokens of a context, prompt included; 0: as many as the model takes.
        budget_min: When set, each group draws its budget between this and ``budget``: all its sessions get the same.
        drop_to: For ``drop_oldest``: share of the budget that the shortened history may fill, so that it is not
            shortened again at once.
        keep_turns: For ``env_summary``: the latest turns whose answers stay whole.
        note_at: For ``note``: share of the budget at which a note is asked for.
        max_segments: Contexts of one session; one more ends it (``fold_limit``).
        branches: For ``fold``: branches of one session.
        branch_turns: For ``fold``: turns of a branch, after which the environment closes it.
        branch_tokens: For ``fold``: the same for its tokens; 0: no limit but the budget.
        segment_weighting: ``session``: a session weighs as one row in the loss, however many segments it has. ``row``:
            verl's behaviour, for comparison: each segment weighs as a row.
        charges: See :class:`ChargesConfig`.
    """

    manager: str = "none"
    budget: int = 0
    budget_min: int = 0
    drop_to: float = 0.5
    keep_turns: int = 2
    note_at: float = 0.7
    max_segments: int = 8
    branches: int = 4
    branch_turns: int = 8
    branch_tokens: int = 0
    segment_weighting: str = "session"
    charges: ChargesConfig = field(default_factory=ChargesConfig)

    def of_group(self, group: str, limit: int) -> int:
        """The budget of a group's sessions: drawn from its name alone, so that it is the same in every process.

        Args:
            group: Names the group; equal for its sessions.
            limit: Tokens that the model takes; the budget without one of our own.
        """
        high = self.budget or limit
        if not self.budget_min:
            return high
        drawn = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big")
        return self.budget_min + drawn % (high - self.budget_min + 1)


def check(settings: ContextConfig, config: DictConfig) -> None:
    """Refuse in one line what is out of range, or cannot work with verl's part of ``config``.

    Raises:
        BadInput: Names the key, its value, and what to do.
    """
    where = "verl_ext.context"
    for name, allowed in (("manager", MANAGERS), ("segment_weighting", WEIGHTINGS)):
        if (value := getattr(settings, name)) not in allowed:
            raise BadInput(f"{where}.{name}={value!r} is not one of {', '.join(allowed)}")
    for name in ("drop_to", "note_at"):
        if not 0 < (value := getattr(settings, name)) <= 1:
            raise BadInput(f"{where}.{name}={value} must be a share of the budget, above 0 and at most 1")
    for name in ("max_segments", "branches", "branch_turns"):
        if (value := getattr(settings, name)) < 1:
            raise BadInput(f"{where}.{name}={value} must be 1 or more")
    for name in ("budget", "budget_min", "keep_turns", "branch_tokens"):
        if (value := getattr(settings, name)) < 0:
            raise BadInput(f"{where}.{name}={value} must not be negative")
    for charge in fields(settings.charges):
        if not (math.isfinite(value := getattr(settings.charges, charge.name)) and value >= 0):
            raise BadInput(f"{where}.charges.{charge.name}={value} must be a finite number, 0 or more; it is taken off")
    _check_budget(settings, config)
    if settings.charges.stray_branch and settings.manager != "fold":
        raise BadInput(
            f"{where}.charges.stray_branch={settings.charges.stray_branch} needs {where}.manager=fold, not "
            f"{settings.manager}: the others have no branches"
        )


def _check_budget(settings: ContextConfig, config: DictConfig) -> None:
    where, rollout = "verl_ext.context", config.actor_rollout_ref.rollout
    prompt = config.data.max_prompt_length
    limit = rollout.max_model_len or prompt + config.data.max_response_length
    if settings.budget > limit:
        raise BadInput(
            f"{where}.budget={settings.budget} is more than the model's context of {limit} tokens; lower it, or raise "
            "data.max_response_length"
        )
    lowest = settings.budget_min or settings.budget
    if settings.budget_min and settings.budget_min > (settings.budget or limit):
        raise BadInput(f"{where}.budget_min={settings.budget_min} is more than budget={settings.budget or limit}")
    if lowest and lowest <= prompt:
        raise BadInput(
            f"{where}.budget{'_min' if settings.budget_min else ''}={lowest} leaves nothing beside a prompt of up to "
            f"data.max_prompt_length={prompt} tokens; raise it, or lower max_prompt_length to what the tasks need"
        )
