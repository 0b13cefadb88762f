"""The data set that verl's SFT trainer reads: teacher sessions, and correct code as plain text.

A conversation with assistant messages is a session: loss on exactly the tokens that TinyAgent will sample, from after
each assistant mark through the end of turn. One without is text: loss on every token, at a smaller weight, in the very
place where a session has the buggy source. It teaches what correct code looks like, so that a wrong token stands out.

verl's own multi-turn data set renders each message apart and again as a whole to compare; here the whole is rendered
once, which is several times faster, and the mask is read off the token ids.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import torch
from torch.utils.data import Dataset

TEXT_WEIGHT = 0.3
"""Weight of a token of plain text in the loss; a token of a call has 1."""
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
        messages = self.messages[index]
        ids = self.tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        if any(message["role"] == "assistant" for message in messages):
            mask = sampled(ids, self.assistant, self.end)
        else:
            mask = [TEXT_WEIGHT] * len(ids)
        # verl shifts the masks of a whole batch by one: a first token with weight would train its predecessor's row.
        mask[0] = 0.0
        return {
            "input_ids": torch.tensor(ids),
            "position_ids": torch.arange(len(ids)),
            "loss_mask": torch.tensor(mask, dtype=torch.float32),
        }


def sampled(ids: list[int], assistant: int, end: int) -> list[float]:
    """1.0 for the tokens that a policy samples: after an assistant mark, through the end of turn."""
    mask, inside = [], False
    for token in ids:
        mask.append(1.0 if inside else 0.0)
        if token == assistant:
            inside = True
        elif token == end:
            inside = False
    return mask
