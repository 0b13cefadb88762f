"""The files a session works on, with their undo history, and what a tool hands back.

Tools are plain functions of a :class:`Workspace`: they change its text or refuse, and never run anything. Running
tests and ending the session belong to the environment, so that every tool set is graded by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verl_ext.types import digest

MAX_FILE_CHARS = 64_000
"""A file that an edit would make longer is refused, so that a policy cannot fill memory."""


@dataclass(frozen=True)
class Outcome:
    """What a tool answers: text for the policy, and whether the call was allowed and could achieve anything."""

    text: str
    valid: bool = True
    redundant: bool = False


def refuse(text: str) -> Outcome:
    """The call's tool or arguments are not allowed; nothing changed."""
    return Outcome(text, valid=False)


def useless(text: str) -> Outcome:
    """The call was allowed but changed nothing and told nothing new."""
    return Outcome(text, redundant=True)


@dataclass
class Workspace:
    """Sources as they stand.

    Attributes:
        sources: Path to text, now.
        editable: Paths that tools may change.
        history: For each edit that still stands, oldest first: path, text before it, what ``undo`` says of it.
    """

    sources: dict[str, str]
    editable: tuple[str, ...]
    history: list[tuple[str, str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, sources: Mapping[str, str], editable: tuple[str, ...]) -> Workspace:
        return cls(dict(sources), editable)

    @property
    def anchor(self) -> str:
        return digest(self.sources)

    def write(self, path: str, text: str, label: str) -> str | None:
        """Replaces the text of ``path`` and remembers the old one.

        Returns:
            None, or why the text is refused.
        """
        if len(text) > MAX_FILE_CHARS:
            return f"{path} would have {len(text)} characters, allowed are {MAX_FILE_CHARS}"
        try:
            text.encode()
        except UnicodeEncodeError:
            return "the text holds characters that UTF-8 cannot encode"
        self.history.append((path, self.sources[path], label))
        self.sources[path] = text
        return None

    def undo(self) -> Outcome:
        """Takes back the last edit that still stands."""
        if not self.history:
            return useless("nothing to undo")
        path, text, label = self.history.pop()
        self.sources[path] = text
        return Outcome(f"reverted {label}")
