"""TinyAgent's tokenizer for long tasks: the ordinary one, trained on more text, with more fixed tokens behind it.

A view is one token. Notes, goals and messages are written: a head, words, and one tail. What context managers say is
one token where it is fixed, since a context that is nearly full has no room for more.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from verl_ext.agent.context import DROPPED
from verl_ext.agent.folding import OPENED, REQUEST
from verl_ext.tiny.tokenizer import MERGES, call_text, train_tokenizer

TOP_FILE = 6
"""Files up to this number can be viewed by one token."""
WRITTEN = {"note": "text", "branch": "goal", "return": "message"}
"""Tools whose one argument is written, not chosen, and its name."""
TAIL = '"}}\n</tool_call>'
_CLOSED = tuple(f"[branch closed: {why}] " for why in ("out of turns", "out of tokens", "context full"))
_ANSWERS = (
    ".py", DROPPED, REQUEST, OPENED, *_CLOSED, ": ok, ", ": no effect, ", ": refused, ", "reverted file ", "no file ",
    "view a file first", "call note", "a branch is open: call return first", "no branch is open", "no branch left of ",
)  # fmt: skip
_PHRASES = (
    "2/4 passed\nfile 3: \nfile 2 tried 3 5\nnot fixed tried 3 5\nfixed\n"
    "note\nnoted\nfold\nview\nedit\nundo\nrun_tests\nbranch\nreturn"
)
_MORE_MERGES = 60


def head(tool: str) -> str:
    """The text of a written call before what is written."""
    return call_text(tool, {WRITTEN[tool]: ""}).removesuffix(TAIL)


def long_tokens() -> list[str]:
    """Texts that are one token each beside those of :func:`verl_ext.tiny.tokenizer.fixed_tokens`."""
    views = [call_text("view", {"file": number}) for number in range(1, TOP_FILE + 1)]
    return [*views, *map(head, WRITTEN), TAIL, *_ANSWERS]


def train_long_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Trains the BPE on ``texts`` and what TinyAgent writes, then appends :func:`long_tokens`. Deterministic."""
    texts = list(texts)
    # As often as there are texts, so that each of its words becomes a token.
    tokenizer = train_tokenizer([*texts, *[_PHRASES] * len(texts)], MERGES + _MORE_MERGES)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in long_tokens()])
    return tokenizer
