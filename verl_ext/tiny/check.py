"""Measures a TinyAgent without verl: sessions sampled with plain transformers, many at a time.

It answers before any trainer runs whether calls are well-formed and how many tasks are solved. Every turn encodes the
conversation as the chat template renders it; the agent loop instead goes on from the sampled ids, which is the same
for calls in canonical form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from verl_ext.gym.env import BugFixEnv
from verl_ext.types import Action, Task

if TYPE_CHECKING:
    from verl_ext.sandbox import Sandbox

NEW_TOKENS = {"ops": 12, "ops_files": 32}
"""Longest message by tool set."""
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass
class Sampled:
    """One sampled session.

    Attributes:
        task: What was to be repaired.
        passed: Verdict of the hidden tests.
        turns: Policy messages.
        well_formed: Policy messages whose call was read and allowed.
        redundant: Policy messages that could achieve nothing.
        first_edit: All public tests passed after the first edit.
        tokens: Length of the conversation, prompt included.
        messages: The conversation.
    """

    task: Task
    messages: list[dict[str, str]]
    passed: bool = False
    turns: int = 0
    well_formed: int = 0
    redundant: int = 0
    edits: int = 0
    first_edit: bool = False
    tokens: int = 0


def read_call(text: str) -> Action:
    """The first call in ``text``, read as verl's ``hermes`` parser reads it."""
    found = _CALL.search(text)
    if found is None:
        return Action("", error="no tool call")
    try:
        call = json.loads(found[1])
        return Action(call["name"], dict(call["arguments"]))
    except (ValueError, KeyError, TypeError):
        return Action("", error="the call is no JSON object with name and arguments")


async def sample(
    model: Any,
    tokenizer: Any,
    tasks: Sequence[Task],
    sandbox: Sandbox,
    *,
    turns: int,
    seed: int,
    tools: str = "ops",
    temperature: float = 1.0,
    batch: int = 64,
    done: Callable[[int], None] = lambda count: None,
) -> list[Sampled]:
    """One session for each of ``tasks`` (a task may come several times)."""
    torch.manual_seed(seed)
    found: list[Sampled] = []
    for start in range(0, len(tasks), batch):
        chunk = [Sampled(task, []) for task in tasks[start : start + batch]]
        await _play(model, tokenizer, chunk, sandbox, turns, tools, temperature)
        found += chunk
        done(len(chunk))
    return found


async def _play(
    model: Any, tokenizer: Any, chunk: list[Sampled], sandbox: Sandbox, turns: int, tools: str, temperature: float
) -> None:
    live: list[tuple[Sampled, BugFixEnv]] = []
    finished: list[tuple[Sampled, BugFixEnv]] = []
    for session in chunk:
        env = BugFixEnv(session.task, sandbox, tools)
        await env.reset()
        session.messages = list(env.prompt())
        live.append((session, env))
    for _ in range(turns):
        if not live:
            break
        texts = generate(model, tokenizer, [s.messages for s, _ in live], temperature, NEW_TOKENS[tools])
        still = []
        for (session, env), text in zip(live, texts, strict=True):
            action = read_call(text)
            observation = await env.step(action)
            session.messages += [
                {"role": "assistant", "content": text},
                {"role": "tool", "content": observation.text},
            ]
            session.turns += 1
            session.well_formed += observation.valid
            session.redundant += observation.redundant
            if action.tool == "edit" and observation.valid:
                session.first_edit |= session.edits == 0 and env.public_passed
                session.edits += 1
            (finished if observation.done else still).append((session, env))
        live = still
    for session, env in finished + live:
        session.passed = (await env.grade()).passed
        session.tokens = len(tokenizer.apply_chat_template(session.messages, return_dict=False))


def generate(
    model: Any, tokenizer: Any, conversations: list[list[dict[str, str]]], temperature: float, new_tokens: int
) -> list[str]:
    """The next assistant message of each conversation, without its end of turn."""
    prompts = [
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        for messages in conversations
    ]
    longest = max(map(len, prompts))
    ids = torch.tensor([[tokenizer.pad_token_id] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=new_tokens,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    return [tokenizer.decode(_until(row, tokenizer.eos_token_id)) for row in out[:, longest:].tolist()]


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids
