"""The demo's report on small hand-made dumps."""

import json
from pathlib import Path

import pytest

from tests.demo.samples import a_console, a_task, dump_row, write_rows
from verl_ext.demo import dumps, plot, results, transcripts
from verl_ext.types import BadInput

SPLIT_OF = {"a": "val", "b": "val", "t": "heldout_types", "f": "heldout_functions", "g": "heldout_functions"}


@pytest.fixture
def run(tmp_path) -> Path:
    """A finished run of 4 steps, two sessions for each of five tasks before and after."""
    folder = tmp_path / "train"
    before = {"a": (0, 0), "b": (1, 0), "t": (1, 1), "f": (0, 0), "g": (0, 0)}
    after = {"a": (1, 1), "b": (1, 0), "t": (1, 0), "f": (0, 1), "g": (1, 0)}
    for step, passes in ((0, before), (4, after)):
        rows = [dump_row(f"u{task}_{i}_0", task, acc) for task, pair in passes.items() for i, acc in enumerate(pair)]
        write_rows(folder / "validation" / f"{step}.jsonl", rows)
    write_rows(
        folder / "metrics" / "0.jsonl",
        [
            {"step": 0, "data": {"val-core/x": 1}},
            {"step": 1, "data": {"session/score": 0.1, "timing_s/step": 3.0, "exactness/log_prob_gap_max": 1e-6}},
            {"step": 2, "data": {"session/score": 0.9, "timing_s/step": 9.0}},
        ],
    )
    write_rows(  # a second attempt, from the checkpoint of step 1
        folder / "metrics" / "1.jsonl",
        [
            {"step": step, "data": {"session/score": step / 10, "timing_s/step": 4.0, "timing_s/testing": 20.0}}
            for step in (2, 3, 4)
        ],
    )
    return folder


def test_validation_dump_is_read_and_the_last_segment_counts(tmp_path):
    path = tmp_path / "0.jsonl"
    rows = [dump_row("u_0_0", "a", 0.0, "first"), dump_row("u_0_1", "a", 1.0, "last")]
    rows.append(dump_row("u_1_0", "a", 0.0, stop="max_turns"))
    write_rows(path, rows)
    sessions = dumps.read_validation(path)
    assert [(s.passed, s.response, s.stop) for s in sessions] == [(1.0, "last", "submitted"), (0.0, "out", "max_turns")]


def test_dump_without_reward_information_falls_back_to_score_and_truth(tmp_path):
    path = tmp_path / "0.jsonl"
    write_rows(path, [{"input": "i", "output": "o", "gts": "a", "score": 1.0, "step": 0, "acc": None, "task_id": None}])
    (session,) = dumps.read_validation(path)
    assert (session.task_id, session.passed) == ("a", 1.0)


@pytest.mark.parametrize("text", ["", "{}\n", "not json\n"])
def test_broken_dumps_are_named_with_their_line(tmp_path, text):
    path = tmp_path / "7.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"7\.jsonl"):
        dumps.read_validation(path)
    with pytest.raises(BadInput, match=r"8\.jsonl"):
        dumps.read_validation(tmp_path / "8.jsonl")


def test_later_attempts_win_and_half_a_line_is_passed_over(run):
    with (run / "metrics" / "1.jsonl").open("a") as file:
        file.write('{"step": 5, "da')
    metrics = dumps.read_metrics(run / "metrics")
    assert list(metrics) == [0, 1, 2, 3, 4]
    assert metrics[2]["session/score"] == 0.2


def test_attempts_are_ordered_by_number_not_by_name(tmp_path):
    for attempt in range(11):
        write_rows(tmp_path / f"{attempt}.jsonl", [{"step": 1, "data": {"x": attempt}}])
    assert dumps.read_metrics(tmp_path)[1]["x"] == 10


def test_results_by_hand(run):
    found = results.collect(run, SPLIT_OF, {"val": 0.25})
    val = found["splits"]["val"]
    assert val["before"]["value"] == 0.25  # tasks 0 and 0.5
    assert val["after"]["value"] == 0.75  # tasks 1 and 0.5
    # Differences 1 and 0: mean 0.5, s² = 0.5, standard error 0.5, t(1) = 12.7062.
    assert val["difference"]["value"] == 0.5
    assert val["difference"]["high"] == pytest.approx(0.5 + 12.7062 * 0.5, abs=1e-3)
    assert (val["sessions"], val["teacher"]) == (4, 0.25)
    types = found["splits"]["heldout_types"]
    assert (types["difference"]["value"], types["difference"]["low"]) == (-0.5, None)  # one task: no interval
    # Held-out functions: both tasks rise from 0 to 0.5.
    functions = found["splits"]["heldout_functions"]["difference"]
    assert (functions["value"], functions["low"], functions["high"]) == (0.5, 0.5, 0.5)
    assert found["validation"]["4"] == {"val": 0.75, "heldout_types": 0.5, "heldout_functions": 0.5}
    assert found["training"] == {"1": 0.1, "2": 0.2, "3": 0.3, "4": 0.4}
    assert found["timings"] == {"step_s_median": 4.0, "log_prob_gap_max_nats": 1e-6}
    assert found["stops"]["after"] == {"submitted": 1.0}
    assert found["bug_types"]["val/swap"] == {"before": 0.25, "after": 0.75, "sessions": 4}
    assert found["behaviour"]["heldout_types"]["before"]["redundant_per_success"] == 0.0
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_behaviour_counts_redundant_actions_of_successful_sessions_only(tmp_path):
    rows = [
        dump_row("u_0_0", "a", 1.0, turns=4, redundant=2, hard_coded=0.0),
        dump_row("u_1_0", "a", 1.0, turns=2, redundant=1, hard_coded=1.0),
        dump_row("u_2_0", "a", 0.0, turns=6, redundant=5, hard_coded=0.0),
    ]
    write_rows(tmp_path / "0.jsonl", rows)
    write_rows(tmp_path / "1.jsonl", rows[2:])
    solved, failed = (results._behaviour(dumps.read_validation(tmp_path / f"{i}.jsonl")) for i in (0, 1))
    assert solved == {"turns": 4, "redundant_per_success": 1.5, "hard_coded": pytest.approx(1 / 3)}
    assert failed == {"turns": 6, "redundant_per_success": None, "hard_coded": 0.0}


def test_a_task_without_sessions_in_one_evaluation_leaves_the_pairing(run):
    path = run / "validation" / "4.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"task_id": "b"' not in line))
    val = results.collect(run, SPLIT_OF, {})["splits"]["val"]
    assert (val["difference"]["tasks"], val["difference"]["value"]) == (1, 1.0)


def test_one_evaluation_is_not_enough(run):
    (run / "validation" / "4.jsonl").unlink()
    with pytest.raises(BadInput, match="before and after"):
        results.collect(run, SPLIT_OF, {})


def test_unknown_task_is_refused(run):
    with pytest.raises(BadInput, match="'a'"):
        results.collect(run, {"b": "val"}, {})


def test_table_shows_every_split_in_one_line(run):
    console = a_console()
    console.print(results.table(results.collect(run, SPLIT_OF, {"val": 0.25})))
    lines = console.export_text().splitlines()
    val = next(line for line in lines if " val " in line)
    assert all(text in val for text in ("25.0", "75.0", "+50.0")) and val.count("25.0") == 2  # before and teacher
    assert "-50.0  (one task: no interval)" in next(line for line in lines if "held-out types" in line)
    assert "+50.0  [+50.0, +50.0]" in next(line for line in lines if "held-out functions" in line)


def test_curve_is_a_picture_that_shows_the_curves(run, tmp_path):
    path = tmp_path / "curve.png"
    plot.curve(results.collect(run, SPLIT_OF, {"val": 0.25}), path)
    from matplotlib.image import imread

    image = imread(path)
    assert image.shape[:2] == (450, 800)
    for colour in ((0x1F, 0x77, 0xB4), (0xD6, 0x27, 0x28), (0x2C, 0xA0, 0x2C)):
        hits = (abs(image[..., :3] * 255 - colour).max(axis=-1) < 3).sum()
        assert hits > 200, colour


def test_moving_average_by_hand():
    assert plot.moving_average([1, 2, 3, 4, 5, 6], window=3) == [1, 1.5, 2, 3, 4, 5]


def _session(task_id: str, passed: float, response: str) -> dumps.EvalSession:
    return dumps.EvalSession(task_id, passed, "read this", response, stop="submitted")


def test_transcript_prefers_a_task_that_was_learned():
    before = [_session("a", 1, "1"), _session("b", 0, "2"), _session("c", 0, "3")]
    after = [_session("a", 1, "long answer"), _session("b", 1, "short"), _session("c", 1, "longer")]
    pair = transcripts.choose(before, after)
    assert (pair[0].response, pair[1].response) == ("3", "longer")
    nothing_learned = transcripts.choose([_session("a", 0, "1")], [_session("a", 0, "2")])
    assert nothing_learned[1].response == "2"
    with pytest.raises(BadInput):
        transcripts.choose([_session("a", 0, "1")], [_session("b", 0, "2")])


def test_transcript_shows_the_fix_and_survives_backticks():
    text = transcripts.render(a_task(), _session("a", 0, "```\nrm"), _session("a", 1, "edit(2, swap)"), 60)
    assert "-    return x - 1\n+    return x + 1" in text
    assert "````\n[assistant]\n```\nrm\n````" in text
    assert "## Before training: does not pass" in text and "## After 60 steps: passes" in text


def test_transcript_is_readable_and_hides_nothing_that_is_broken():
    text = (
        '<|im_start|>assistant\n<tool_call>\n{"name": "edit", "arguments": {"line": 2, "op": "plus_one"}}\n</tool_call>'
        "<|im_end|>\n<|im_start|>tool\n1 of 2 pass\n<|im_start|>assistant\n<tool_call>{broken}</tool_call> x"
    )
    assert transcripts.readable(text).splitlines() == [
        "[assistant]",
        "edit(line=2, op='plus_one')",
        "[tool]",
        "1 of 2 pass",
        "[assistant]",
        "<tool_call>{broken}</tool_call> x",
    ]
