"""Partial rollout: a message that is cut by a weight update and goes on under new weights.

The agent loop, its environment and verl's ``FullyAsyncLLMServerClient`` are real. Servers are a script: each entry is
what one request to vLLM answers, as ``vLLMHttpServer.generate`` does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import ray

pytest.importorskip("verl")
from verl.workers.rollout import llm_server
from verl.workers.rollout.replica import TokenOutput

from tests.agent.test_loop import (
    FIX,
    GOLD,
    SUBMIT,
    TEST,
    closed_sandboxes,
    configuration,
    rows_of,
    tokenizer,
)
from verl_ext.agent.session import ids_digest
from verl_ext.gym.env import BugFixEnv
from verl_ext.tiny.tokenizer import END
from verl_ext.types import InfrastructureError

__all__ = ["closed_sandboxes", "tokenizer"]
OLD, NEW, NEWER = 3, 4, 5


@dataclass
class Part:
    """What one request answers: the next ``tokens`` of ``line`` (None: the rest), sampled by weights ``version``."""

    line: str
    version: int
    tokens: int | None = None
    aborted: bool = False


class Remote:
    """An actor's method, without an actor."""

    def __init__(self, method):
        self.method = method

    def remote(self, *args, **kwargs):
        result = self.method(*args, **kwargs)
        return result if asyncio.iscoroutine(result) else _value(result)


async def _done(value):
    return value


def _value(value):
    return asyncio.ensure_future(_done(value))


class Servers:
    """Load balancer and server handle of verl's client."""

    def __init__(self, tokenizer, parts: list[Part]):
        self.tokenizer, self.parts, self.requests, self.held = tokenizer, list(parts), [], 0
        self.require_acquire_fields = Remote(lambda: [])
        self.require_release_fields = Remote(lambda: [])
        self.acquire_server = Remote(self._acquire)
        self.release_server = Remote(self._release)
        self.generate = Remote(self._generate)
        self._sampled: list[int] = []

    def _acquire(self, request_id):
        self.held += 1
        return "server", self

    def _release(self, server_id):
        self.held -= 1

    async def _generate(self, request_id, prompt_ids, sampling_params, **_):
        part = self.parts.pop(0)
        self.requests.append((list(prompt_ids), sampling_params["max_tokens"], part.version))
        rest = self.tokenizer.encode(part.line + END)[len(self._sampled) :]
        ids = rest[: sampling_params["max_tokens"]]
        ids = ids if part.tokens is None else ids[: part.tokens]
        self._sampled = [*self._sampled, *ids] if part.aborted else []
        return TokenOutput(
            token_ids=ids,
            log_probs=[-part.version - i / 100 for i in range(len(ids))] if ids else None,
            stop_reason="aborted" if part.aborted else "completed",
            extra_fields={"global_steps": part.version},
        )


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """The client waits for a second before it sends a message on."""
    pause = SimpleNamespace(sleep=lambda _: asyncio.sleep(0), gather=asyncio.gather)
    monkeypatch.setattr(llm_server, "asyncio", pause)


def client_of(servers, config):
    return llm_server.FullyAsyncLLMServerClient(config=config, load_balancer_handle=servers)


async def play(tokenizer, parts, config=None, kind=Servers):
    config = config or configuration()
    config.actor_rollout_ref.rollout.name = "vllm"
    servers = kind(tokenizer, parts)
    rows = await rows_of(client_of(servers, config), tokenizer, config)
    assert servers.held == 0
    return rows[0], servers


async def test_a_message_cut_by_a_weight_update_goes_on_under_new_weights(tokenizer):
    parts = [
        Part(TEST, OLD),
        Part(FIX, OLD, 2, aborted=True),
        Part(FIX, NEW, 1, aborted=True),
        Part(FIX, NEWER),
        Part(SUBMIT, NEWER),
    ]
    row, servers = await play(tokenizer, parts)
    turns = row.extra_fields["session"]["turns"]
    assert [turn["tool"] for turn in turns] == ["run_tests", "edit", "submit"]
    assert [tuple(turn["versions"]) for turn in turns] == [(OLD, OLD), (OLD, NEWER), (NEWER, NEWER)]
    assert (row.extra_fields["min_global_steps"], row.extra_fields["max_global_steps"]) == (OLD, NEWER)
    assert row.extra_fields["final_sources"] == {"solution.py": GOLD}

    # Each part's log-probs are those of the weights that sampled it.
    edit = slice(turns[1]["start"], turns[1]["end"])
    sampled = tokenizer.encode(FIX + END)
    assert row.response_ids[edit] == sampled and row.response_mask[edit] == [1] * len(sampled)
    assert len(sampled) > 3
    rest = [-NEWER - i / 100 for i in range(len(sampled) - 3)]
    assert row.response_logprobs[edit] == [-3.0, -3.01, -4.0, *rest]

    # A resumed request holds what was sampled before, and asks for the rest of the budget.
    first, second, third = servers.requests[1:4]
    assert second[0] == first[0] + sampled[:2] and third[0] == first[0] + sampled[:3]
    assert (second[1], third[1]) == (first[1] - 2, first[1] - 3)
    ids = row.prompt_ids + row.response_ids
    digests = [ids_digest(ids[: len(row.prompt_ids) + turn["end"]]) for turn in turns]
    assert row.extra_fields["session"]["sampled"] == digests


async def test_an_abort_before_the_first_token_leaves_no_trace(tokenizer):
    """vLLM answers it with no log-probs at all, under weights that sampled nothing of it."""
    row, _ = await play(tokenizer, [Part(TEST, OLD), Part(SUBMIT, OLD, 0, aborted=True), Part(SUBMIT, NEW)])
    turns = row.extra_fields["session"]["turns"]
    assert [turn["tool"] for turn in turns] == ["run_tests", "submit"]
    assert row.response_logprobs[turns[1]["start"]] == -NEW
    # verl counts the weights that were asked first, though nothing came of it: the age is never told too small.
    assert tuple(turns[1]["versions"]) == (OLD, NEW)


@pytest.mark.parametrize(
    ("settings", "limit"),
    [({"max_turn_tokens": 12}, 12), ({"response": 40}, None), ({"context": {"budget": 190}}, None)],
)
async def test_limits_count_over_aborts(tokenizer, settings, limit):
    """A message that would go on for ever, cut again and again, gets what an uncut one gets and not a token more."""
    babble = "x = 1 " * 400
    cut = [Part(babble, version, 3, aborted=True) for version in (OLD, NEW, NEWER)]
    cut_row, servers = await play(tokenizer, [Part(TEST, OLD), *cut, Part(babble, 6)], configuration(**settings))
    whole_row, _ = await play(tokenizer, [Part(TEST, OLD), Part(babble, OLD)], configuration(**settings))
    assert cut_row.response_ids == whole_row.response_ids
    assert cut_row.extra_fields["session"]["stop"] == whole_row.extra_fields["session"]["stop"]
    turn = cut_row.extra_fields["session"]["turns"][1]
    assert turn["end"] - turn["start"] == servers.requests[1][1]
    if limit:
        assert turn["end"] - turn["start"] == limit
    assert len(cut_row.response_logprobs) == len(cut_row.response_ids)


async def test_an_abort_at_the_last_token_of_the_budget_ends_the_message(tokenizer):
    config = configuration(max_turn_tokens=6)
    row, servers = await play(tokenizer, [Part(TEST * 9, OLD, 6, aborted=True)], config)
    assert row.extra_fields["session"]["stop"] == "response_budget" and len(servers.requests) == 1


async def test_a_tool_call_in_flight_during_an_update_runs_once(tokenizer, monkeypatch):
    """Weights change while the tests run: the call is neither lost nor run again, and the next message is sampled by
    the new weights. The call of a message that was cut runs once too."""
    calls, inner = [], BugFixEnv.step
    running, updated = asyncio.Event(), asyncio.Event()

    async def step(self, action):
        calls.append(action.tool)
        if action.tool == "run_tests":
            running.set()
            await updated.wait()
        return await inner(self, action)

    monkeypatch.setattr(BugFixEnv, "step", step)
    parts = [
        Part(TEST, OLD, 4, aborted=True),
        Part(TEST, OLD),
        Part(FIX, NEW, 0, aborted=True),
        Part(FIX, NEW),
        Part(SUBMIT, NEW),
    ]
    playing = asyncio.create_task(play(tokenizer, parts))
    await asyncio.wait_for(running.wait(), 30)
    await asyncio.sleep(0.1)  # no request is under way now, so an abort finds none
    updated.set()
    row, _ = await asyncio.wait_for(playing, 30)
    assert calls == ["run_tests", "edit", "submit"]
    turns = row.extra_fields["session"]["turns"]
    assert [tuple(turn["versions"]) for turn in turns] == [(OLD, OLD), (NEW, NEW), (NEW, NEW)]


class Silent(Servers):
    """A server that takes a request and never answers."""

    async def _generate(self, *args, **kwargs):
        if not self.parts:
            await asyncio.Event().wait()
        return await super()._generate(*args, **kwargs)


async def test_a_server_that_never_answers_costs_the_session_its_time_and_no_more(tokenizer):
    row, _ = await asyncio.wait_for(play(tokenizer, [Part(TEST, OLD)], configuration(wall_clock_s=4.0), Silent), 30)
    assert row.extra_fields["session"]["stop"] == "wall_clock"
    assert [turn["tool"] for turn in row.extra_fields["session"]["turns"]] == ["run_tests"]
    with pytest.raises(InfrastructureError, match="left out of training: wall_clock"):
        await asyncio.wait_for(play(tokenizer, [], configuration(wall_clock_s=0.5), Silent), 30)


async def test_an_environment_that_never_answers_is_no_different(tokenizer, monkeypatch):
    async def never(*_):
        await asyncio.Event().wait()

    for method in ("step", "reset"):
        with monkeypatch.context() as patched:
            patched.setattr(BugFixEnv, method, never)
            with pytest.raises(InfrastructureError, match="left out of training: wall_clock"):
                await asyncio.wait_for(play(tokenizer, [Part(TEST, OLD)], configuration(wall_clock_s=0.5)), 30)
    monkeypatch.setattr("verl_ext.agent.loop.shared_sandbox", never)
    with pytest.raises(InfrastructureError, match="left out of training: wall_clock"):
        await asyncio.wait_for(play(tokenizer, [Part(TEST, OLD)], configuration(wall_clock_s=0.5)), 30)


class Dead(Servers):
    """A server that dies in the middle of the session."""

    async def _generate(self, *args, **kwargs):
        if not self.parts:
            raise ray.exceptions.ActorDiedError()
        return await super()._generate(*args, **kwargs)


async def test_a_server_that_dies_is_not_the_policys_failure(tokenizer):
    with pytest.raises(InfrastructureError, match="left out of training: server_error"):
        await play(tokenizer, [Part(TEST, OLD), Part(FIX, OLD, 2, aborted=True)], kind=Dead)
