"""A dump against plain transformers: right rows agree to rounding, rows rebuilt wrongly do not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from verl_ext import cli
from verl_ext.tiny.model import new_model
from verl_ext.tiny.tokenizer import END, call_text, train_tokenizer
from verl_ext.trainer.gaps import by_segment, by_turn, whole
from verl_ext.trainer.rescore import gaps_to, read_dump, rescore, spellings, token_log_probs
from verl_ext.types import BadInput

BOUND = 1e-4
OBSERVATION = "1/2 passed\n"


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads that wait for each other take seconds a forward pass where cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([f"top of {number} values: é 한글\n{OBSERVATION}" for number in range(60)], merges=120)


@pytest.fixture(scope="module")
def model(tokenizer):
    return new_model(tokenizer, seed=3).eval()


def sampled_row(model, tokenizer, key: str, prompt: list[int], turns: range, generator) -> dict:
    """A segment sampled token by token with no cache: the plainest sampler there is."""
    ids, mask, log_probs, records = list(prompt), [], [], []
    for index in turns:
        start = len(mask)
        for _ in range(5):
            with torch.no_grad():
                of_next = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            ids.append(torch.multinomial(of_next.exp(), 1, generator=generator).item())
            mask.append(1)
            log_probs.append(of_next[ids[-1]].item())
        record = {"index": index, "start": start, "end": len(mask), "anchor": "a", "action": "x", "valid": True}
        records.append(record | {"reward": 0.0, "potential": 0.0})
        observed = tokenizer.encode(OBSERVATION)
        ids, mask, log_probs = ids + observed, mask + [0] * len(observed), log_probs + [0.0] * len(observed)
    end = records[-1]["end"]
    return {
        "key": key,
        "prompts": list(prompt),
        "responses": ids[len(prompt) :][:end],
        "response_mask": mask[:end],
        "rollout_log_probs": log_probs[:end],
        "old_log_probs": [value + 1e-6 for value in log_probs[:end]],
        "session": {"turns": records},
    }


@pytest.fixture(scope="module")
def lines(model, tokenizer):
    """Two sessions: one of three segments, each begun with a note in the place of the turns before it; one of one."""
    generator = torch.Generator().manual_seed(0)
    task = tokenizer.encode("top of 12 values\n")
    rows = []
    for segment in range(3):
        prompt = task + tokenizer.encode(f"note {segment}\n") * bool(segment)
        turns = range(2 * segment, 2 * segment + 2)
        rows.append(sampled_row(model, tokenizer, f"g_0_{segment}", prompt, turns, generator))
    return [*rows, sampled_row(model, tokenizer, "g_1_0", task, range(3), generator)]


def written(tmp_path, lines):
    path = tmp_path / "1.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def dump(tmp_path, lines):
    return read_dump(written(tmp_path, reversed(lines)))  # a dump is in no order


def test_rows_as_sampled_agree_to_rounding(model, dump):
    log_probs = rescore(model, dump)
    sampler, trainer = gaps_to(dump, log_probs), gaps_to(dump, log_probs, "trainer")
    assert [found.row.key for found in sampler] == ["g_0_0", "g_0_1", "g_0_2", "g_1_0"]
    assert whole(sampler).largest < 1e-5 < BOUND and whole(sampler).tokens == 45
    assert whole(trainer).mean == pytest.approx(1e-6, rel=0.5)
    assert set(by_segment(sampler)) == {0, 1, 2} and set(by_turn(sampler)) == {0, 1, 2, 4}


def test_full_history_in_the_place_of_segments_is_caught(model, dump):
    found = gaps_to(dump, rescore(model, dump, rebuild="full_history"))
    by_key = {gaps.row.key: gaps.whole.largest for gaps in found}
    assert by_key["g_0_1"] > 100 * BOUND and by_key["g_0_2"] > 100 * BOUND
    assert by_key["g_0_0"] < BOUND and by_key["g_1_0"] < BOUND  # nothing came before them
    assert by_segment(found)[0].largest < BOUND < by_segment(found)[1].largest


def test_full_history_is_what_a_sampler_without_segments_would_have_seen(model, dump):
    first, second = dump[:2]
    whole_context = [*first.prompt, *first.response]
    expected = token_log_probs(model, [*whole_context, *second.response], len(whole_context))
    assert rescore(model, dump, rebuild="full_history")[1] == pytest.approx(expected, abs=1e-5)


def test_one_retokenised_token_is_caught(model, tokenizer, dump):
    right = rescore(model, dump)
    wrong = rescore(model, dump, rebuild="retokenised", tokenizer=tokenizer)
    for session in (dump[:3], dump[3:]):
        rows = [dump.index(dumped) for dumped in session]
        touched = [i for i in rows if not np.allclose(right[i], wrong[i], atol=1e-6)]
        assert len(touched) == 1, "one token of each session, which stands in one row"
        [i] = touched
        [gaps] = gaps_to([dump[i]], [wrong[i]])
        assert gaps.whole.largest > 100 * BOUND
        # Whatever stands before the token is as it was; the token and what follows is not.
        first = int(np.argmax(~np.isclose(right[i], wrong[i], atol=1e-6)))
        assert dump[i].mask[first] == 1 and len(wrong[i]) == len(dump[i].response)


@pytest.mark.parametrize("text", ["12", "values", call_text("submit")])
def test_a_spelling_has_the_same_text_and_other_tokens(tokenizer, text):
    [token] = tokenizer.encode(text)
    other = spellings(tokenizer, token)
    assert len(other) > 1 and token not in other and tokenizer.decode(list(other)) == text


def test_marks_and_single_characters_have_no_other_spelling(tokenizer):
    assert [spellings(tokenizer, tokenizer.encode(text)[0]) for text in (END, "x")] == [(), ()]


def test_without_a_token_to_respell_it_says_so(model, tokenizer, dump):
    masked = [replace(dumped, mask=[0] * len(dumped.mask)) for dumped in dump]
    with pytest.raises(BadInput, match="no sampled token of these rows can be spelt by others"):
        rescore(model, masked, rebuild="retokenised", tokenizer=tokenizer)


def test_the_dumps_temperature_is_used(model, dump):
    cold = [replace(dumped, temperature=0.5) for dumped in dump]
    assert whole(gaps_to(cold, rescore(model, cold))).largest > BOUND
    assert whole(gaps_to(cold, rescore(model, cold, temperature=1.0))).largest < BOUND


def test_rows_of_other_weights_are_history_but_not_compared(model, tmp_path, lines):
    rows = read_dump(written(tmp_path, [{**lines[0], "gaps": None}, {**lines[1], "gaps": {"max": 0.0}}]))
    found = gaps_to(rows, rescore(model, rows, rebuild="full_history"))
    assert [gaps.row.key for gaps in found] == ["g_0_1"] and whole(found).largest > BOUND


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def command(capsys, *words) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["exactness", *map(str, words)])
    return ended.value.code, *capsys.readouterr()


def test_command_reports_both_sources_and_passes(capsys, tmp_path, lines, folder):
    status, out, _ = command(capsys, written(tmp_path, lines), "--model", folder)
    assert status == 0 and "segment 1" in out and "turn 4-7" in out
    assert "sampler: at most" in out and "trainer: at most" in out and out.count("within 0.0001") == 2


def test_command_fails_beyond_the_bound_and_names_session_and_turn(capsys, tmp_path, lines, folder):
    turn = lines[1]["session"]["turns"][1]
    log_probs = list(lines[1]["old_log_probs"])
    log_probs[turn["start"]] += 0.25
    path = written(tmp_path, [*lines[:1], {**lines[1], "old_log_probs": log_probs}, *lines[2:]])
    status, out, _ = command(capsys, path, "--model", folder)
    assert status == 1 and "sampler: at most" in out
    assert "trainer: at most 0.25 nats, MORE THAN 0.0001 (session g_0_1, turn 3)" in out
    assert command(capsys, path, "--model", folder, "--bound", 0.3)[0] == 0


def changed(**values):
    return lambda line: {**line, **values}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed(prompts=[]), "line 1 is no row of a session dump: g_0_0 has no prompt or no response"),
        (changed(response_mask=[1]), "line 1 is no row of a session dump: ids, mask and log-probs of g_0_0 have [1, "),
        (changed(session={}), "line 1 is no row of a session dump: session g_0_0 has no turn data"),
        (changed(key="abc"), "line 1 is no row of a session dump: key 'abc' is not GROUP_SESSION_SEGMENT"),
        (changed(prompts=[100_000]), "session g_0_0 has token 100000, the model knows"),
        (lambda line: [1], "line 1 is no row of a session dump"),
        (lambda line: {name: value for name, value in line.items() if name != "prompts"}, "lacks 'prompts'"),
        (
            lambda line: {name: value for name, value in line.items() if not name.endswith("log_probs")},
            "g_0_0 has neither rollout_log_probs nor old_log_probs",
        ),
        (changed(key=7), "line 1 is no row of a session dump: expected string"),
        (changed(gaps=None), "all rows were sampled by other weights"),
    ],
)
def test_bad_dumps_end_in_one_line(capsys, tmp_path, lines, folder, change, says):
    status, _, err = command(capsys, written(tmp_path, [change(lines[0])]), "--model", folder)
    assert status == 2 and says in err.splitlines()[-1]


def test_missing_files_end_in_one_line(capsys, tmp_path, lines, folder):
    assert command(capsys, tmp_path / "2.jsonl", "--model", folder)[::2] == (
        2,
        f"verl-ext: no dump {tmp_path}/2.jsonl; a run writes one a step with verl_ext.session_dir=FOLDER\n",
    )
    status, _, err = command(capsys, written(tmp_path, lines), "--model", tmp_path)
    assert status == 2 and err.startswith(f"verl-ext: no model in {tmp_path}: it holds no config.json")
    (tmp_path / "empty.jsonl").write_text("")
    assert "empty.jsonl holds no row" in command(capsys, tmp_path / "empty.jsonl", "--model", folder)[2]
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    status, _, err = command(capsys, tmp_path / "1.jsonl", "--model", tmp_path)
    assert status == 2 and "holds no model that transformers can read" in err
