"""The agent loop on the real environment, sandbox, tokenizer and parser; only the sampler is a script.

A scripted sampler makes every stop reason reachable and lets a test compare a row with what the sampler saw.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from omegaconf import OmegaConf

pytest.importorskip("verl")
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from verl_ext.agent import sandboxes
from verl_ext.agent.loop import BugFixAgentLoop, bounded
from verl_ext.agent.session import ids_digest
from verl_ext.gym.prompts import messages
from verl_ext.gym.tasks import task_to_json
from verl_ext.tiny.tokenizer import END, call_text, train_tokenizer
from verl_ext.types import Case, InfrastructureError, Task, Tests

BUGGY = """\
def top(values):
    best = values[0]
    for x in values:
        if x < best:
            best = x
    return best
"""
GOLD = BUGGY.replace("x < best", "x > best")
TASK = Task(
    task_id="top/direction/0",
    sources={"solution.py": BUGGY},
    editable=("solution.py",),
    issue="The largest value.",
    public=Tests(cases=(Case("top", ([1, 3, 2],), expected=3), Case("top", ([5],), expected=5))),
    hidden=Tests(cases=(Case("top", ([4, 9],), expected=9), Case("top", ([7, 7, 1],), expected=7))),
    bug_type="comparison_direction",
    gold={"solution.py": GOLD},
    split="train",
)
ENDLESS = """\
def top(values):
    import ctypes

    ctypes.CDLL(None).prctl(15, b"verl-endless", 0, 0, 0)
    while True:
        pass
"""
FIX = call_text("edit", {"line": 4, "op": "flip"})
WRONG = call_text("edit", {"line": 4, "op": "strict"})
TEST, UNDO, SUBMIT = call_text("run_tests"), call_text("undo"), call_text("submit")


class Script:
    """verl's ``LLMServerClient`` with a script for a model; remembers every prompt."""

    def __init__(self, tokenizer, lines: list[str], delay: float = 0.0):
        self.tokenizer, self.lines, self.delay = tokenizer, list(lines), delay
        self.seen: list[tuple[list[int], list[int]]] = []
        self.temperatures: list[float] = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        await asyncio.sleep(self.delay)
        line = self.lines.pop(0)
        if line == "ABORT":
            return TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted", extra_fields={})
        self.temperatures.append(sampling_params["temperature"])
        ids = self.tokenizer.encode(line + END)[: sampling_params["max_tokens"]]
        self.seen.append((list(prompt_ids), ids))
        versions = {"global_steps": 3, "min_global_steps": 3, "max_global_steps": 3}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=versions)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([message["content"] for message in messages(TASK, "ops")] + [BUGGY] * 20)


@pytest.fixture(autouse=True)
async def closed_sandboxes():
    yield
    for opening in sandboxes._open.values():
        if opening.done() and not opening.exception():
            await opening.result().aclose()
    sandboxes._open.clear()


def configuration(max_turns=6, response=256, **ours):
    return OmegaConf.create(
        {
            "verl_ext": ours,
            "data": {},
            "actor_rollout_ref": {
                "rollout": {
                    "prompt_length": 256,
                    "response_length": response,
                    "max_model_len": None,
                    "multi_turn": {
                        "max_assistant_turns": max_turns,
                        "max_tool_response_length": 256,
                        "format": "hermes",
                    },
                }
            },
        }
    )


async def play(tokenizer, lines, config=None, delay=0.0, task=TASK):
    rows, script = await play_rows(tokenizer, lines, config, delay, task)
    (row,) = rows
    return row, script


async def play_rows(tokenizer, lines, config=None, delay=0.0, task=TASK, step=1):
    config = config or configuration()
    script = Script(tokenizer, lines, delay)
    return await rows_of(script, tokenizer, config, task, step), script


async def rows_of(sampler, tokenizer, config, task=TASK, step=1):
    """What the agent loop makes of a session with ``sampler`` in the place of verl's LLM server manager."""
    loop = BugFixAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=sampler,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
        hf_model_type="qwen2",
    )
    return await loop.run(
        {"temperature": 1.0, "logprobs": True},
        raw_prompt=messages(task, "ops"),
        extra_info={"task": task_to_json(task)},
        global_steps=step,
    )


async def test_row_holds_exactly_what_the_sampler_saw(tokenizer):
    row, script = await play(tokenizer, [TEST, WRONG, UNDO, FIX, SUBMIT])
    ids = row.prompt_ids + row.response_ids
    turns = row.extra_fields["session"]["turns"]
    assert [turn["tool"] for turn in turns] == ["run_tests", "edit", "undo", "edit", "submit"]
    sampled_positions = set()
    for turn, (prompt, sampled), seen in zip(turns, script.seen, row.extra_fields["session"]["sampled"], strict=True):
        start, end = len(row.prompt_ids) + turn["start"], len(row.prompt_ids) + turn["end"]
        assert ids[:start] == prompt and ids[start:end] == sampled
        assert seen == ids_digest(ids[:end])
        sampled_positions.update(range(turn["start"], turn["end"]))
    assert {i for i, bit in enumerate(row.response_mask) if bit} == sampled_positions
    assert [value for bit, value in zip(row.response_mask, row.response_logprobs, strict=True) if not bit] == [0.0] * (
        len(row.response_mask) - len(sampled_positions)
    )
    assert row.response_mask[-1] == 1 and len(row.response_logprobs) == len(row.response_ids)
    assert row.extra_fields["session"]["stop"] == "submitted"
    assert row.extra_fields["final_sources"] == {"solution.py": GOLD}
    assert (row.extra_fields["min_global_steps"], row.extra_fields["max_global_steps"]) == (3, 3)


async def test_potential_and_anchor_are_those_a_turn_starts_from(tokenizer):
    row, _ = await play(tokenizer, [TEST, FIX, TEST, SUBMIT])
    turns = row.extra_fields["session"]["turns"]
    assert [turn["potential"] for turn in turns] == [0.5, 0.5, 1.0, 1.0]
    assert turns[0]["anchor"] == turns[1]["anchor"] != turns[2]["anchor"] == turns[3]["anchor"]
    assert row.extra_fields["public_share"] == 1.0


@pytest.mark.parametrize(
    ("lines", "settings", "stop", "turns"),
    [
        ([TEST, UNDO, TEST], {"max_turns": 3}, "max_turns", 3),
        (["hello", "<tool_call>{}</tool_call>", "?"], {"max_invalid_calls": 3}, "invalid_calls", 3),
        ([TEST, "x = 1 " * 200], {"response": 40}, "response_budget", 2),
        ([TEST, "x = 1 " * 200, TEST], {"max_turn_tokens": 12}, "response_budget", 2),
        ([SUBMIT], {}, "submitted", 1),
    ],
)
async def test_stop_reasons(tokenizer, lines, settings, stop, turns):
    row, _ = await play(tokenizer, lines, configuration(**settings))
    assert row.extra_fields["session"]["stop"] == stop
    assert len(row.extra_fields["session"]["turns"]) == turns
    assert len(row.response_ids) <= settings.get("response", 256)


async def test_wall_clock_keeps_the_finished_turns(tokenizer):
    row, _ = await play(tokenizer, [TEST] * 50, configuration(max_turns=50, wall_clock_s=5.0), delay=1.0)
    assert row.extra_fields["session"]["stop"] == "wall_clock"
    turns = row.extra_fields["session"]["turns"]
    assert 1 <= len(turns) < 6 and turns[-1]["end"] == len(row.response_ids)


async def test_the_sampler_s_temperature_can_be_off(tokenizer):
    _, script = await play(tokenizer, [TEST, SUBMIT], configuration(temperature_factor=1.2))
    assert script.temperatures == pytest.approx([1.2, 1.2])


async def test_a_tool_delay_is_waited_for_and_counted(tokenizer):
    row, _ = await play(tokenizer, [TEST, FIX, SUBMIT], configuration(tool_delay="constant:0.4"))
    session = row.extra_fields["session"]
    assert session["stop"] == "submitted" and session["sandbox_s"] >= 3 * 0.4
    row, _ = await play(tokenizer, [TEST, TEST], configuration(tool_delay="constant:6", wall_clock_s=10.0))
    assert row.extra_fields["session"]["stop"] == "wall_clock" and len(row.extra_fields["session"]["turns"]) == 1


async def test_time_that_runs_out_while_an_edit_is_tested_takes_the_edit_along(tokenizer, monkeypatch):
    from verl_ext.gym.env import public_verdicts

    inner = public_verdicts.grade

    async def slow_on_the_fix(task, sources, *rest):
        if sources["solution.py"] == GOLD:
            await asyncio.sleep(30)
        return await inner(task, sources, *rest)

    monkeypatch.setattr(public_verdicts, "grade", slow_on_the_fix)
    row, _ = await play(tokenizer, [TEST, FIX, SUBMIT], configuration(wall_clock_s=10.0))
    session = row.extra_fields["session"]
    assert session["stop"] == "wall_clock" and [turn["tool"] for turn in session["turns"]] == ["run_tests"]
    assert len(session["sampled"]) == 1
    assert row.extra_fields["final_sources"] == {"solution.py": BUGGY} and row.extra_fields["public_share"] == 0.5


@pytest.mark.parametrize("arguments", ['{"line": 4, "op": "\\ud800"}', '{"line": 4, "op": ' + "9" * 5000 + "}"])
async def test_hostile_arguments_are_answered_and_cost_the_policy(tokenizer, arguments):
    call = '<tool_call>\n{"name": "edit", "arguments": ' + arguments + "}\n</tool_call>"
    row, _ = await play(tokenizer, [call, SUBMIT], configuration(response=20_000))
    turns = row.extra_fields["session"]["turns"]
    assert [turn["valid"] for turn in turns] == [False, True]


async def test_aborted_session_leaves_no_row(tokenizer):
    with pytest.raises(InfrastructureError, match="left out of training: aborted"):
        await play(tokenizer, [TEST, "ABORT"])


async def test_sandbox_failure_leaves_no_row(tokenizer, monkeypatch, caplog):
    async def broken(*_, **__):
        raise InfrastructureError("the jail is gone")

    monkeypatch.setattr("verl_ext.sandbox.LocalSandbox.grade", broken)
    from verl_ext.gym.env import public_verdicts

    public_verdicts.clear()
    with pytest.raises(InfrastructureError, match="the jail is gone"):
        await play(tokenizer, [TEST, SUBMIT])
    assert "left out of training: sandbox_error" in caplog.text and TASK.task_id in caplog.text


async def test_a_leak_leaves_the_session_out(tokenizer):
    """The agent loop knows the tasks' files and says so to the environment, which finds one named in a workspace."""
    config = configuration()
    config.data.train_files = "/data/rows.parquet"
    leaky = replace(TASK, sources={**TASK.sources, "notes.txt": "solutions are in /data/rows.parquet"})
    with pytest.raises(InfrastructureError, match=r"left out of training: sandbox_error.*names the tasks' file"):
        await play(tokenizer, [FIX, SUBMIT], config, task=leaky)


async def test_masked_truncation_keeps_the_row_but_trains_nothing(tokenizer):
    settings = {"max_invalid_calls": 2, "truncated": "mask"}
    row, _ = await play(tokenizer, ["a", "b"], configuration(**settings))
    assert sum(row.response_mask) == 0 and len(row.response_ids) > 0
    gone, _ = await play_rows(tokenizer, ["a", "b"], configuration(**settings, truncated_in_baseline=False))
    assert gone == []


async def test_cancelled_session_leaves_no_run_behind(tokenizer):
    """Cancelled while an edit that loops for ever is being tested."""
    from verl_ext.gym.env import public_verdicts
    from verl_ext.sandbox.selfcheck import running as processes

    public_verdicts.clear()
    endless = replace(TASK, sources={"solution.py": ENDLESS})
    playing = asyncio.create_task(play(tokenizer, [TEST], task=endless))
    for _ in range(200):
        await asyncio.sleep(0.02)
        if processes("verl-endless"):
            break
    else:
        pytest.fail("the endless run never started")
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert processes("verl-endless") == []


@pytest.mark.parametrize("limit", [0, 3, 7, 10, 20])
def test_bounded_keeps_head_and_tail(limit):
    text = "0123456789abcdefghij"
    cut = bounded(text + "!", limit)
    assert len(cut) <= limit
    assert bounded(text, 20) == text
    if limit >= 10:
        assert cut.startswith("0") and cut.endswith("!")
