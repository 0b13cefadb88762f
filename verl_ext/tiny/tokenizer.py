"""TinyAgent's tokenizer: byte-level BPE on the gym's text, with every fixed part of a call as one token.

Three choices make a model of less than a million parameters useful:

- An edit is four tokens: the call's head, the line number, the op with the call's tail, end of turn. Any other call is
  one token and end of turn. So almost any sample is well-formed, and credit falls on the two choices that matter.
- A word is the same token wherever it stands: spaces belong to operators and keywords, an underscore is its own token.
  ``values`` in a name, in ``for x in values:`` and in ``values[0]`` are one id, so a name can be compared with code.
- A line number in a call is the token that heads the line in the prompt, so naming a line is copying.

The calls decode to the JSON that verl's ``hermes`` tool parser reads. The chat template leaves tool schemas out:
TinyAgent knows its tools, and they would be ten times as long as the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from verl_ext.gym.edits import OPS

PARSER = "hermes"
"""verl's tool parser that reads TinyAgent's calls (``actor_rollout_ref.rollout.multi_turn.format``)."""
PAD, END = "<|endoftext|>", "<|im_end|>"
ROLES = ("system", "user", "assistant", "tool")
PLAIN_TOOLS = ("run_tests", "undo", "submit")
EDIT_HEAD = '<tool_call>\n{"name": "edit", "arguments": {"line": '
MERGES = 420
"""Merges learnt on top of bytes and fixed parts."""
TOP_LINE = 60
"""Numbers up to this one are single tokens, whether they name a line or stand in the code."""

_OBSERVED = (" passed", "reverted line ", "not applicable", "no change", "nothing to undo", "unknown op ", "no line ")
_KEYWORDS = (
    "def|if|elif|else|for|while|in|not in|not|is not|is|and|or|return|break|continue|class|raise|try|except|lambda"
)
# In order: newline; keywords with the spaces around them; words; numbers of two digits, else single digits; operators
# with the spaces around them; colons and commas with the spaces after them; underscore; brackets and quotes; spaces.
_PIECES = (
    rf"\n| ?\b(?:{_KEYWORDS})\b ?|[A-Za-z]+|(?<!\d)\d\d(?!\d)|\d| *[-+*/%<>=!&|^~@]+ *|[:,] *|_"
    r"|[^\sA-Za-z\d_+*/%<>=!&|^~@:,-]+|[^\S\n]+"
)

TEMPLATE = """{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') -}}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
{%- set arguments = function.arguments if function.arguments is string else function.arguments | tojson -%}
{{- ('\\n' if message.content or not loop.first else '') + '<tool_call>\\n{"name": "' + function.name -}}
{{- '", "arguments": ' + arguments + '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""


def call_text(tool: str, arguments: dict | None = None) -> str:
    """The canonical text of a call, as the template renders it and TinyAgent writes it."""
    body = json.dumps({"name": tool, "arguments": arguments or {}}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def op_tail(op: str) -> str:
    """The text of an edit call after its line number."""
    return f', "op": "{op}"}}}}\n</tool_call>'


def fixed_tokens() -> list[str]:
    """Texts that are one token each, by id from 0: chat marks, then the parts of calls, then those of observations."""
    marks = [PAD, END, *(f"<|im_start|>{role}\n" for role in ROLES)]
    calls = [EDIT_HEAD, *(op_tail(op) for op in OPS), *(call_text(tool) for tool in PLAIN_TOOLS)]
    return [*marks, *calls, *_OBSERVED]


def train_tokenizer(texts: Iterable[str], merges: int = MERGES) -> PreTrainedTokenizerFast:
    """Trains the BPE on ``texts`` (prompts and observations, without chat marks). Deterministic."""
    texts = list(texts)
    numbers = [str(number) for number in range(10, TOP_LINE + 1)]
    # Merges go by frequency; this makes sure of every number, however rare among the texts.
    frequent = [" ".join(numbers)] * (len(texts) + 2)
    fixed = [AddedToken(text, normalized=False) for text in fixed_tokens()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(fixed) + 256 + merges,
        special_tokens=fixed,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, *frequent], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=_plain(tokenizer),
        pad_token=PAD,
        eos_token=END,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    fast.chat_template = TEMPLATE
    return fast


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    """Only padding and end of turn stay special: a decoder that skips special tokens must not skip the calls."""
    parts = json.loads(tokenizer.to_str())
    for token in parts["added_tokens"]:
        token["special"] = token["content"] in (PAD, END)
    return Tokenizer.from_str(json.dumps(parts))
