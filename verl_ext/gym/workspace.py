"""The files a session works on, with their undo history, and what a tool hands back.

Tools are plain functions of a :class:`Workspace`: they change its text or refuse, and never run anything. Running
tests and ending the session belong to the environment, so that every tool set is graded by the same code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from verl_ext.types import digest

MAX_FILE_CHARS = 64_000
"""A file that an edit would make longer is refused, so that a policy cannot fill memory."""

MAX_PATH_CHARS = 200
_PART = re.compile(r"(?!.*[. ]\Z)[A-Za-z0-9_.+-][A-Za-z0-9_.+ -]*")


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


def refused_path(path: str) -> str | None:
    """Why no workspace may have a file of this name, None when it may.

    ASCII alone: two names that look alike, or that a file system folds into one (full-width letters, composed and
    decomposed accents, a Cyrillic a), would let an edit go to another file than the one that is read.
    """
    shown = ascii(path[:80])
    if not path or len(path) > MAX_PATH_CHARS:
        return f"a path of {len(path)} characters; allowed are 1 to {MAX_PATH_CHARS}"
    if not path.isascii():
        return f"path {shown} has characters that can look like others; use letters, digits and _ . + - /"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"path {shown} must be relative, without empty parts, . and .."
        if not _PART.fullmatch(part):
            return f"path {shown} has a part {part[:40]!a}; use letters, digits and _ . + -"
    return None


@dataclass
class Workspace:
    """Sources as they stand.

    Attributes:
        sources: Path to text, now.
        editable: Paths that tools may change.
        history: For each edit that still stands, oldest first: path, text before it, what ``undo`` says of it.
        viewed: Path and text shown last, for tools that work on the file that was viewed.
    """

    sources: dict[str, str]
    editable: tuple[str, ...]
    history: list[tuple[str, str, str]] = field(default_factory=list)
    viewed: tuple[str, str] | None = None

    @classmethod
    def of(cls, sources: Mapping[str, str], editable: tuple[str, ...]) -> Workspace:
        return cls(dict(sources), editable)

    @property
    def anchor(self) -> str:
        return digest(self.sources)

    def write(self, path: str, text: str, label: str) -> str | None:
        """Replaces the text of ``path``, which must be editable and there, and remembers the old one.

        Returns:
            None, or why the text is refused.
        """
        if path not in self.editable or path not in self.sources:
            return f"{path[:80]!a} may not be edited; editable: {', '.join(self.editable)}"
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
