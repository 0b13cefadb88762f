"""Context managers by which the policy itself shortens its history: notes, and branches (Context-Folding).

What it writes for that - notes, goals, messages on return - are actions, sampled and trained like any other.
``branch`` and ``return`` are those of Context-Folding (arXiv 2510.11967, section 3): a branch sees the main context,
and when it returns its turns leave the context while its message stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from verl_ext.agent.context import (
    DROPPED,
    Context,
    DropOldest,
    EnvSummary,
    Exchange,
    GoOn,
    Move,
    Reply,
    Restart,
    Return,
    Room,
    shown,
)
from verl_ext.agent.settings import ContextConfig
from verl_ext.gym.prompts import tool
from verl_ext.types import Action

REQUEST = "[context full: call note]"
"""Asks for a note when the budget is nearly spent."""
NOTED, OPENED = "noted", "branch open"


class Note(Context):
    """``note``: the policy's note replaces the history; when ``note_at`` of the budget is filled, it is asked for one.

    Asked, it may write a note or submit; any other call ends the session for lack of room.
    """

    schemas = (
        tool(
            "note",
            "Replaces the conversation so far, except the task, by your note.",
            text={
                "type": "string",
                "description": "All you need to go on: what you found, changed and still have to do.",
            },
        ),
    )
    hint = MappingProxyType(
        {
            "ops": "note",
            "ops_files": "note",
            "code": "Your context is small. note replaces the conversation so far, except this message, by your text: "
            "write down in time what you found, what you changed and what is still to do.",
        }
    )

    def __init__(self, settings: ContextConfig, paths: Sequence[str] = ()):
        super().__init__(settings, paths)
        self.asked = False

    def act(self, action: Action) -> Reply | None:
        if action.tool == "note":
            return _said(action, "text", NOTED)
        if self.asked and action.tool != "submit":
            return Reply("call note", valid=False)
        return None

    def move(self, turn: Exchange, room: Room) -> Move | None:
        self.turns.append(turn)
        if turn.tool == "note" and turn.valid:
            self.asked = False
            messages = shown(turn, turn.answer)
            return Restart(messages) if room.size(messages) <= room.budget - room.reserve else None
        if self.asked:
            return None
        if room.left(turn.answer) >= max((1 - self.settings.note_at) * room.budget, room.reserve):
            return GoOn(turn.answer)
        self.asked = True
        for answer in (f"{turn.answer}\n{REQUEST}", f"{DROPPED}\n{REQUEST}"):
            if room.left(answer) >= room.reserve:
                return GoOn(answer)
        return None


class Fold(Context):
    """``fold``: ``branch(goal)`` opens a sub-task in the same workspace, ``return(message)`` closes it; depth 1.

    The environment closes a branch that has used up its turns, its tokens or the budget.
    """

    schemas = (
        tool(
            "branch",
            "Opens a sub-task; its turns leave your context when you call return.",
            goal={"type": "string", "description": "What the sub-task is to achieve; names the files it may change."},
        ),
        tool(
            "return",
            "Ends the sub-task. Only your message stays in your context.",
            message={"type": "string", "description": "What was found and done, for the rest of the session."},
        ),
    )
    hint = MappingProxyType(
        {
            "ops": "fold",
            "ops_files": "fold",
            "code": "Your context is small. branch opens a sub-task, return ends it: its turns then leave your context "
            "and only the message you return with stays. Open a branch for each part of the work.",
        }
    )

    def __init__(self, settings: ContextConfig, paths: Sequence[str] = ()):
        super().__init__(settings, paths)
        self.open: int | None = None
        self.goal = ""
        self.opened = 0

    @property
    def branching(self) -> bool:
        return self.open is not None

    def act(self, action: Action) -> Reply | None:
        if action.tool == "branch":
            if self.branching:
                return Reply("a branch is open: call return first", valid=False)
            if self.opened >= self.settings.branches:
                return Reply(f"no branch left of {self.settings.branches}", valid=False)
            reply = _said(action, "goal", OPENED)
            if reply.valid:
                self.goal = action.arguments["goal"]
            return reply
        if action.tool == "return":
            if not self.branching:
                return Reply("no branch is open", valid=False)
            return _said(action, "message", "")
        return None

    def strays(self, turn: Exchange) -> bool:
        allowed = named_files(self.goal, self.paths)
        return self.branching and bool(allowed) and not set(turn.changed) <= allowed

    def move(self, turn: Exchange, room: Room) -> Move | None:
        self.turns.append(turn)
        left, settings = room.left(turn.answer), self.settings
        if turn.tool == "branch" and turn.valid:
            if left < room.reserve:
                return None
            self.open, self.opened = turn.index, self.opened + 1
            return GoOn(turn.answer)
        if not self.branching:
            return GoOn(turn.answer) if left >= room.reserve else None
        if turn.tool == "return" and turn.valid:
            return self._close(turn.answer)
        if turn.index - self.open >= settings.branch_turns:
            return self._close(f"[branch closed: out of turns] {turn.summary}")
        if settings.branch_tokens and room.grown(self.open) >= settings.branch_tokens:
            return self._close(f"[branch closed: out of tokens] {turn.summary}")
        if left < room.reserve:
            return self._close(f"[branch closed: context full] {turn.summary}")
        return GoOn(turn.answer)

    def _close(self, answer: str) -> Return:
        opened, self.open = self.open, None
        return Return(opened, answer)


def _said(action: Action, name: str, answer: str) -> Reply:
    """The answer to a call with one text; the text itself where ``answer`` is empty."""
    said = action.arguments.get(name)
    if action.error is not None or set(action.arguments) != {name} or not isinstance(said, str) or not said.strip():
        return Reply(f"{action.tool} needs {name}, a text", valid=False)
    return Reply(answer or said)


def named_files(goal: str, paths: Sequence[str]) -> set[str]:
    """Files that a goal names: by path, by name without suffix, or as ``file N`` by their place in sorted order."""
    ordered = sorted(paths)
    numbers = {int(found) for found in re.findall(r"\bfile (\d{1,4})\b", goal)}
    words = {word.rstrip(".") for word in re.findall(r"[\w./-]+", goal)}
    stems = {path: path.rsplit("/", 1)[-1].removesuffix(".py") for path in ordered}
    return {path for i, path in enumerate(ordered, 1) if i in numbers or path in words or stems[path] in words}


_MANAGERS: dict[str, type[Context]] = {
    "none": Context,
    "drop_oldest": DropOldest,
    "env_summary": EnvSummary,
    "note": Note,
    "fold": Fold,
}


def manager(name: str) -> type[Context]:
    """The class of ``verl_ext.context.manager``; one object a session."""
    return _MANAGERS[name]
