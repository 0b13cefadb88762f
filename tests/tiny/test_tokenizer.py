"""TinyAgent's tokenizer and chat template against verl's tool parser and continuous-token builder."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoTokenizer

from verl_ext.gym.edits import OPS
from verl_ext.gym.generator import generate_many
from verl_ext.gym.prompts import numbered, tool_schemas
from verl_ext.tiny.check import read_call
from verl_ext.tiny.model import new_model, parameters
from verl_ext.tiny.tokenizer import PARSER, PLAIN_TOOLS, TOP_LINE, call_text, fixed_tokens, train_tokenizer

PROGRAMS = generate_many(3, 60)
CALLS = [("edit", {"line": line, "op": op}) for line in (1, 9, 10, TOP_LINE) for op in OPS] + [
    (tool, {}) for tool in PLAIN_TOOLS
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A whole Hugging Face folder, since what counts is the tokenizer that others load."""
    path = tmp_path_factory.mktemp("tiny")
    tokenizer = train_tokenizer(numbered(program.source) for program in PROGRAMS)
    tokenizer.save_pretrained(path)
    new_model(tokenizer, seed=0).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False).input_ids


def pieces(tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in ids_of(tokenizer, text)]


def test_what_others_load_is_what_was_trained(folder, tokenizer):
    from verl.utils.tokenizer import hf_tokenizer

    trained = train_tokenizer(numbered(program.source) for program in PROGRAMS)
    loaded = hf_tokenizer(str(folder))
    for program in PROGRAMS:
        text = numbered(program.source)
        assert ids_of(trained, text) == ids_of(tokenizer, text) == ids_of(loaded, text)


def test_the_vocabulary_is_exactly_the_models(folder, tokenizer):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer) == model.config.vocab_size
    assert parameters(model) < 1_000_000
    assert model.config.pad_token_id == tokenizer.pad_token_id == 0
    assert model.config.eos_token_id == tokenizer.eos_token_id == 1


def test_vllm_takes_the_head_size(folder):
    """vLLM's list is read from its source: importing the backend takes several seconds."""
    spec = importlib.util.find_spec("vllm")
    if spec is None:
        pytest.skip("vllm is not installed")
    source = (Path(spec.origin).parent / "v1/attention/backends/cpu_attn.py").read_text()
    sizes = re.search(r"def get_supported_head_sizes\(cls\) -> list\[int\]:\s+return \[([\d, ]+)\]", source)
    assert str(AutoConfig.from_pretrained(folder).head_dim) in sizes[1].split(", ")


@given(st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_every_text_comes_back(tokenizer, text):
    assert tokenizer.decode(ids_of(tokenizer, text)) == text


def test_every_source_comes_back_and_is_short(tokenizer):
    texts = [numbered(program.source) for program in PROGRAMS]
    assert [tokenizer.decode(ids_of(tokenizer, text)) for text in texts] == texts
    assert sum(len(ids_of(tokenizer, text)) for text in texts) / len(texts) < 110


def test_fixed_parts_are_one_token_each(tokenizer):
    assert [ids_of(tokenizer, text) for text in fixed_tokens()] == [[i] for i in range(len(fixed_tokens()))]
    assert ids_of(tokenizer, "\n") == ids_of(tokenizer, "\n\n")[:1], "verl's Qwen builder needs a newline of one token"


def test_an_edit_is_three_tokens_and_another_call_one(tokenizer):
    for tool, arguments in CALLS:
        ids = ids_of(tokenizer, call_text(tool, arguments))
        assert len(ids) == (3 if tool == "edit" else 1), (tool, arguments)


def test_a_line_number_in_a_call_is_the_token_at_the_head_of_the_line(tokenizer):
    text = "\n".join(f"{n}: x" for n in range(1, TOP_LINE + 1))
    ids = ids_of(tokenizer, text)
    newline = ids_of(tokenizer, "\n")[0]
    heads = [ids[0]] + [ids[i + 1] for i, token in enumerate(ids) if token == newline]
    called = [ids_of(tokenizer, call_text("edit", {"line": n, "op": "flip"}))[1] for n in range(1, TOP_LINE + 1)]
    assert heads == called
    assert len(set(called)) == TOP_LINE


def test_a_word_is_one_token_wherever_it_stands(tokenizer):
    text = (
        "def sum_of_values(values):\n    for x in values:\n        if values[x] > 12:\n            return values - 12"
    )
    found = pieces(tokenizer, text)
    assert found.count("values") == 5 and found.count("12") == 2
    assert found[0] == "def "


async def test_verls_parser_reads_every_call(tokenizer):
    import json

    from verl.experimental.agent_loop.tool_parser import ToolParser

    parser = ToolParser.get_tool_parser(PARSER, tokenizer)
    for tool, arguments in CALLS:
        text = call_text(tool, arguments)
        content, (call,) = await parser.extract_tool_calls([*ids_of(tokenizer, text), tokenizer.eos_token_id])
        assert (call.name, json.loads(call.arguments)) == (tool, arguments)
        assert content == tokenizer.eos_token
        ours = read_call(text)
        assert (ours.tool, dict(ours.arguments)) == (tool, arguments)
    _, calls = await parser.extract_tool_calls(ids_of(tokenizer, "1: def f(x):"))
    assert calls == [] and read_call("1: def f(x):").error


def conversation(calls: int) -> list[dict]:
    """A session as the agent loop keeps it: assistant messages with parsed calls, answers as tool messages."""
    messages: list[dict] = [{"role": "user", "content": numbered(PROGRAMS[0].source)}]
    for tool, arguments in CALLS[5 : 5 + calls]:
        function = {"name": tool, "arguments": arguments}
        messages.append(
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
        )
        messages.append({"role": "tool", "content": "3:     if x <= y:\n2/4 passed"})
    return messages


@pytest.mark.parametrize("tools", [None, tool_schemas("ops")], ids=["no tools", "tools"])
def test_verls_builder_gives_what_the_template_gives(tokenizer, tools):
    """Turn by turn with the ids that a policy samples, against the template on the whole conversation."""
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    builder = create_continuous_token_builder(tokenizer, hf_model_type="qwen3")
    messages = conversation(4)
    ids = builder.build_initial_tokens(messages[:1], tools=tools)
    for turn in range(4):
        before = list(ids)
        call = messages[1 + 2 * turn]["tool_calls"][0]["function"]
        answer = [*ids_of(tokenizer, call_text(call["name"], call["arguments"])), tokenizer.eos_token_id]
        ids = builder.merge_assistant_tokens(ids, answer).token_ids
        seen, grown = messages[: 2 + 2 * turn], messages[: 3 + 2 * turn]
        ids = builder.merge_context_tokens(seen, grown, ids, tools=tools).token_ids
        assert ids[: len(before)] == before, "append-only"
        whole = tokenizer.apply_chat_template(grown, tools=tools, add_generation_prompt=True, return_dict=False)
        assert ids == whole
    assert tokenizer.decode(ids).endswith("2/4 passed<|im_end|>\n<|im_start|>assistant\n")


def test_a_call_renders_the_same_parsed_and_as_text(tokenizer):
    parsed = conversation(3)
    texts = [{"role": "assistant", "content": call_text(**_call(m))} if m["role"] == "assistant" else m for m in parsed]
    render = lambda messages: tokenizer.apply_chat_template(messages, return_dict=False)  # noqa: E731
    assert render(parsed) == render(texts)


def _call(message: dict) -> dict:
    function = message["tool_calls"][0]["function"]
    return {"tool": function["name"], "arguments": function["arguments"]}


def test_tool_schemas_cost_nothing(tokenizer):
    messages = [{"role": "user", "content": "1: x"}]
    with_tools = tokenizer.apply_chat_template(messages, tools=tool_schemas("ops"), return_dict=False)
    assert with_tools == tokenizer.apply_chat_template(messages, return_dict=False)
