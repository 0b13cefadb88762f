"""Log-probs of a dump once more, by plain transformers in float32, for a judge between sampler and trainer.

Nothing of verl or vLLM takes part: a row's prompt and response go through the model as they stand in the dump. Rows can
be rebuilt in two wrong ways on purpose, to show that a fault of that kind is seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from verl_ext.trainer.gaps import RowGaps, row_gaps
from verl_ext.trainer.turns import Row, rows_with_turns
from verl_ext.types import BadInput

SOURCES = {"sampler": "rollout_log_probs", "trainer": "old_log_probs"}
"""Who computed log-probs, and under which name a dump has them."""

Rebuild = Literal["as_sampled", "full_history", "retokenised"]


@dataclass(frozen=True)
class DumpedRow:
    """A row of a dump: ``verl_ext.session_dir/<step>.jsonl``, or what the check of exactness wrote.

    Attributes:
        row: Key and turns.
        prompt, response, mask: Ids of the context and of all that followed in it; 1 on policy tokens of the response.
        log_probs: Of ``sampler`` and ``trainer``, aligned with the response; either may be missing.
        temperature: With which they were computed; None when the dump does not say.
        checked: False when other weights sampled it than the rest of the dump.
    """

    row: Row
    prompt: Sequence[int]
    response: Sequence[int]
    mask: Sequence[int]
    log_probs: Mapping[str, Sequence[float]]
    temperature: float | None = None
    checked: bool = True


def read_dump(path: Path) -> list[DumpedRow]:
    """Rows of a dump, the segments of a session in order.

    Raises:
        BadInput: No such file, no row in it, or a line that is no row.
    """
    if not path.is_file():
        raise BadInput(f"no dump {path}; a run writes one a step with verl_ext.session_dir=FOLDER")
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                rows.append(_row(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:  # a BadInput is a ValueError
                what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                raise BadInput(f"{path}, line {number} is no row of a session dump: {what}") from None
    if not rows:
        raise BadInput(f"{path} holds no row")
    return sorted(rows, key=lambda dumped: (dumped.row.session, dumped.row.segment))


def _row(values: Mapping[str, Any]) -> DumpedRow:
    key = values["key"]
    if not re.fullmatch(r".+_[^_]+_\d+", key):
        raise BadInput(f"key {key!r} is not GROUP_SESSION_SEGMENT")
    dumped = DumpedRow(
        row=rows_with_turns([key], [False], [values])[0],
        prompt=values["prompts"],
        response=values["responses"],
        mask=values["response_mask"],
        log_probs={source: values[name] for source, name in SOURCES.items() if name in values},
        temperature=values.get("temperature"),
        checked=values.get("gaps", True) is not None,
    )
    lengths = {len(column) for column in (dumped.response, dumped.mask, *dumped.log_probs.values())}
    if len(lengths) != 1:
        raise BadInput(f"ids, mask and log-probs of {key} have {sorted(lengths)} entries")
    if not dumped.prompt or not dumped.response:
        raise BadInput(f"{key} has no prompt or no response")
    if not dumped.log_probs:
        raise BadInput(f"{key} has neither {' nor '.join(SOURCES.values())}")
    return dumped


@torch.no_grad()
def token_log_probs(model: Any, ids: Sequence[int], first: int, temperature: float = 1.0) -> np.ndarray:
    """Log-probs in nats of ``ids[first:]``, each given all ids before it.

    Args:
        model: A causal language model of transformers, in eval mode.
        ids: A context and what follows.
        first: At least 1.
        temperature: Divides the logits.
    """
    given = torch.tensor([list(ids)], device=model.device)
    logits = model(input_ids=given, use_cache=False, logits_to_keep=len(ids) - first + 1).logits[0, :-1]
    log_probs = torch.log_softmax(logits.float() / temperature, dim=-1)
    return log_probs.gather(-1, given[0, first:, None])[:, 0].double().cpu().numpy()


def rescore(
    model: Any,
    rows: Sequence[DumpedRow],
    *,
    temperature: float | None = None,
    rebuild: Rebuild = "as_sampled",
    tokenizer: Any = None,
    done: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """Log-probs of each row's response by the model, aligned with it.

    Args:
        model: A causal language model of transformers in eval mode, with the weights that sampled the rows.
        rows: The segments of a session in order, as :func:`read_dump` gives them.
        temperature: By default what the dump says, else 1.
        rebuild: ``as_sampled``. Wrong on purpose: ``full_history`` puts the session's first prompt and all earlier
            responses in the place of each prompt; ``retokenised`` spells one sampled token of each session by several
            others with the same text, whose log-probs it adds up.
        tokenizer: For ``retokenised``.
        done: Called with the number of rows finished.

    Raises:
        BadInput: An id is not in the model's vocabulary, or no token can be spelt otherwise.
    """
    known = model.get_input_embeddings().weight.shape[0]
    respelt = _respellings(rows, tokenizer) if rebuild == "retokenised" else {}
    history: dict[tuple[str, str], list[int]] = {}
    found = []
    for number, dumped in enumerate(rows, 1):
        if (highest := max((*dumped.prompt, *dumped.response))) >= known:
            raise BadInput(
                f"session {dumped.row.key} has token {highest}, the model knows {known}: another model's dump"
            )
        heat = temperature or dumped.temperature or 1.0
        prompt = list(dumped.prompt)
        if rebuild == "full_history":
            prompt = history.setdefault(dumped.row.session, prompt)
            history[dumped.row.session] = [*prompt, *dumped.response]
        at, pieces = respelt.get(number - 1, (0, dumped.response[:1]))
        ids = [*prompt, *dumped.response[:at], *pieces, *dumped.response[at + 1 :]]
        log_probs = token_log_probs(model, ids, len(prompt), heat)
        parts = log_probs[:at], [log_probs[at : at + len(pieces)].sum()], log_probs[at + len(pieces) :]
        found.append(np.concatenate(parts))
        if done:
            done(number)
    return found


def gaps_to(rows: Sequence[DumpedRow], log_probs_R: Sequence[np.ndarray], source: str = "sampler") -> list[RowGaps]:
    """Gaps between a source of :data:`SOURCES` and :func:`rescore`'s log-probs, of the rows that can be compared."""
    return [
        row_gaps(dumped.row, dumped.log_probs[source], log_probs, dumped.mask)
        for dumped, log_probs in zip(rows, log_probs_R, strict=True)
        if dumped.checked and source in dumped.log_probs
    ]


def spellings(tokenizer: Any, token: int) -> tuple[int, ...]:
    """Other tokens that decode to the same text, few of them; none for special tokens and single characters."""
    text = tokenizer.decode([token])
    found: list[tuple[int, ...]] = []
    for cut in range(1, len(text) if token not in tokenizer.all_special_ids else 1):
        pieces = [i for part in (text[:cut], text[cut:]) for i in tokenizer.encode(part, add_special_tokens=False)]
        if len(pieces) > 1 and tokenizer.decode(pieces) == text:
            found.append(tuple(pieces))
    return min(found, key=len, default=())


def _respellings(rows: Sequence[DumpedRow], tokenizer: Any) -> dict[int, tuple[int, tuple[int, ...]]]:
    """For one row of each session: a position and what stands there instead, as few pieces as there are."""
    known: dict[int, tuple[int, ...]] = {}
    best: dict[tuple[str, str], tuple[int, int, int]] = {}
    for number, dumped in enumerate(rows):
        for at, (token, policy) in enumerate(zip(dumped.response, dumped.mask, strict=True)):
            if policy and token not in known:
                known[token] = spellings(tokenizer, token)
            if policy and known[token]:
                candidate = (len(known[token]), number, at)
                best[dumped.row.session] = min(best.get(dumped.row.session, candidate), candidate)
    if not best:
        raise BadInput("no sampled token of these rows can be spelt by others")
    return {number: (at, known[rows[number].response[at]]) for _, number, at in best.values()}
