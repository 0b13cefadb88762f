"""The data set that verl's SFT trainer reads: conversations.

The loss has weight 1 on exactly the tokens that TinyAgent will sample, from after each assistant mark through the end
of turn, and a smaller weight on all others. Reading code is what a wrong token in it is found by, and there are twenty
times as many such tokens: with them the same sight of bugs takes half the tokens.

verl's own multi-turn data set renders each message apart and again as a whole to compare; here the whole is rendered
once, which is several times faster, and the mask is read off the token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import torch
from torch.utils.data import Dataset

TEXT_WEIGHT = 0.1
"""Weight in the loss of a token that is read; one that is sampled has 1."""
ASSISTANT = "<|im_start|>assistant\n"


class SessionDataset(Dataset):
    """Rows for ``pad_mode=no_padding``: ``input_ids``, ``position_ids`` and a float ``loss_mask``, each of shape [_L].

    Takes the arguments that verl gives to ``data.custom_cls``.
    """

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any = None, processor: Any = None, max_samples: int = -1
    ):
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        self.tokenizer = tokenizer
        tables = [pq.read_table(file) for file in files]
        self.messages = [row for table in tables for row in table["messages"].to_pylist()]
        # Of messages that a context begins with, the policy learns none: they are those of an earlier row.
        self.learnt = [
            [own for own, message in zip(marks, messages, strict=True) if message["role"] == "assistant"]
            for table in tables
            if "sampled" in table.column_names
            for messages, marks in zip(table["messages"].to_pylist(), table["sampled"].to_pylist(), strict=True)
        ]
        if max_samples > 0:
            self.messages = self.messages[:max_samples]
        self.assistant = tokenizer.convert_tokens_to_ids(ASSISTANT)
        self.end = tokenizer.eos_token_id

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.tokenizer.apply_chat_template(self.messages[index], tokenize=True, return_dict=False)
        learnt = self.learnt[index] if self.learnt else None
        mask = [1.0 if own else TEXT_WEIGHT for own in sampled(ids, self.assistant, self.end, learnt)]
        # verl shifts the masks of a whole batch by one: a first token with weight would train its predecessor's row.
        mask[0] = 0.0
        return {
            "input_ids": torch.tensor(ids),
            "position_ids": torch.arange(len(ids)),
            "loss_mask": torch.tensor(mask, dtype=torch.float32),
        }


def sampled(ids: list[int], assistant: int, end: int, learnt: Sequence[bool] | None = None) -> list[bool]:
    """True for the tokens that a policy samples: after an assistant mark, through the end of turn.

    Args:
        ids: Of a conversation.
        assistant, end: The marks.
        learnt: For each assistant message whether it counts; None for all.
    """
    mask, inside, turn = [], False, 0
    for token in ids:
        mask.append(inside)
        if token == assistant:
            inside = learnt is None or learnt[turn]
            turn += 1
        elif token == end:
            inside = False
    return mask
