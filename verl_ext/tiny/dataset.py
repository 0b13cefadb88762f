"""The data set that verl's SFT trainer reads: conversations.

The loss has weight 1 on exactly the tokens that TinyAgent will sample, from after each assistant mark through the end
of turn, and a smaller weight on all others. Reading code is what a wrong token in it is found by, and there are twenty
times as many such tokens: with them the same sight of bugs takes half the tokens.

verl's own multi-turn data set renders each message apart and again as a whole to compare; here the whole is rendered
once, which is several times faster, and the mask is read off the token ids.
"""

from __future__ import annotations

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
        self.messages = [row for file in files for row in pq.read_table(file)["messages"].to_pylist()]
        if max_samples > 0:
            self.messages = self.messages[:max_samples]
        self.assistant = tokenizer.convert_tokens_to_ids(ASSISTANT)
        self.end = tokenizer.eos_token_id

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.tokenizer.apply_chat_template(self.messages[index], tokenize=True, return_dict=False)
        mask = [1.0 if own else TEXT_WEIGHT for own in sampled(ids, self.assistant, self.end)]
        # verl shifts the masks of a whole batch by one: a first token with weight would train its predecessor's row.
        mask[0] = 0.0
        return {
            "input_ids": torch.tensor(ids),
            "position_ids": torch.arange(len(ids)),
            "loss_mask": torch.tensor(mask, dtype=torch.float32),
        }


def sampled(ids: list[int], assistant: int, end: int) -> list[bool]:
    """True for the tokens that a policy samples: after an assistant mark, through the end of turn."""
    mask, inside = [], False
    for token in ids:
        mask.append(inside)
        if token == assistant:
            inside = True
        elif token == end:
            inside = False
    return mask
