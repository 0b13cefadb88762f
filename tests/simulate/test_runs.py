"""Reading a run: session dumps and metrics."""

import json

import pytest

from tests.simulate.samples import dump_row, write_dump, write_metrics
from verl_ext.simulate import runs
from verl_ext.simulate.workload import Session
from verl_ext.types import BadInput


def _write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_dump_gives_sessions_by_prompt_and_step(tmp_path):
    write_dump(tmp_path / "run" / "sessions", steps=3, prompts=2, sessions=4)
    dump = runs.read_dump(tmp_path / "run")
    assert sorted(dump.steps) == [1, 2, 3]
    assert (dump.batch, dump.size, len(dump.groups)) == (2, 4, 6)


def test_seconds_of_generation_go_by_tokens_and_those_of_the_sandbox_by_turns(tmp_path):
    _write(tmp_path / "1.jsonl", [dump_row("p", 0, [3, 1], generate_s=8.0, sandbox_s=3.0)])
    [[session]] = runs.read_dump(tmp_path).groups
    assert session == Session((6.0, 2.0), (1.5, 1.5))


def test_a_session_of_several_rows_counts_once_with_the_turns_of_all(tmp_path):
    # Folding cuts a session into rows; each has its own turns, and the session's seconds.
    rows = [
        dump_row("p", 0, [2, 2], generate_s=8.0, sandbox_s=4.0),
        dump_row("p", 0, [4], generate_s=8.0, sandbox_s=4.0, segment=1, first_turn=2),
    ]
    _write(tmp_path / "1.jsonl", rows)
    [[session]] = runs.read_dump(tmp_path / "1.jsonl").groups
    assert session.turns == (2.0, 2.0, 4.0)
    assert sum(session.tools) == pytest.approx(4.0)


def test_other_jsonl_files_of_a_run_are_passed_over(tmp_path):
    write_dump(tmp_path / "sessions", steps=1)
    write_metrics(tmp_path / "metrics" / "0.jsonl", steps=2)
    _write(tmp_path / "validation" / "0.jsonl", [{"input": "a", "output": "b", "acc": 1.0}])
    assert list(runs.read_dump(tmp_path).steps) == [1]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("half a li", "1.jsonl, line 1 is no session of a session dump"),
        ('{"key": "p_0_0"}', "KeyError: 'session'"),
        ('{"key": "p", "session": {}}', "line 1 is no session"),
        ('{"key": "p_0_0", "session": {"turns": [], "generate_s": 1}}', "KeyError: 'sandbox_s'"),
        ('{"key": "p_0_0", "session": {"turns": [], "generate_s": 1, "sandbox_s": 1}}', "without turns"),
        (json.dumps(dump_row("p", 0, [1], generate_s=-1.0, sandbox_s=0.0)), "cannot be"),
        (json.dumps(dump_row("p", 0, [1], generate_s=float("nan"), sandbox_s=0.0)), "cannot be"),
        (json.dumps(dump_row("p", 0, [-1], generate_s=1.0, sandbox_s=0.0)), "cannot be"),
        ("[1, 2]", "line 1 is no session"),
        ("", "holds no session"),
    ],
)
def test_a_dump_that_is_none_is_refused_in_one_line(tmp_path, row, says):
    (tmp_path / "1.jsonl").write_text(row)
    with pytest.raises(BadInput, match=says) as error:
        runs.read_dump(tmp_path / "1.jsonl")
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(BadInput, match="holds no session dump; train with"):
        runs.read_dump(tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        runs.read_dump(tmp_path / "nowhere")
    for name in ("a", "b"):
        write_dump(tmp_path / name, steps=1)
    with pytest.raises(BadInput, match="holds 2 runs; give one of"):
        runs.read_dump(tmp_path)


def test_a_turn_without_tokens_shares_evenly(tmp_path):
    _write(tmp_path / "1.jsonl", [dump_row("p", 0, [0, 0], generate_s=8.0, sandbox_s=3.0)])
    [[session]] = runs.read_dump(tmp_path).groups
    assert session.turns == (4.0, 4.0)


def test_metrics_give_the_seconds_of_a_step(tmp_path):
    write_metrics(tmp_path / "metrics.jsonl", steps=3, step=20.0, gen=12.0, sync=1.5)
    steps = runs.read_steps(tmp_path)
    assert [step.number for step in steps] == [2, 3]  # the first one starts what the others find
    assert (steps[0].step, steps[0].wait, steps[0].train, steps[0].sync) == (20.0, 12.0, 6.5, 1.5)
    assert runs.synchronous(steps)


def test_the_first_step_of_every_attempt_is_left_out(tmp_path):
    write_metrics(tmp_path / "metrics" / "0.jsonl", steps=2)
    write_metrics(tmp_path / "metrics" / "1.jsonl", steps=3, first=3)
    assert [step.number for step in runs.read_steps(tmp_path)] == [2, 4, 5]


def test_a_half_written_line_is_passed_over(tmp_path):
    write_metrics(tmp_path / "metrics.jsonl", steps=3)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "da')
    assert len(runs.read_steps(tmp_path)) == 2


def test_tensorboard_files_do_as_well(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step in (1, 2, 3):
            for name, value in (("step", 20.0), ("gen", 12.0), ("update_weights", 1.5)):
                writer.add_scalar(f"timing_s/{name}", value, step)
    assert [(step.number, step.train) for step in runs.read_steps(tmp_path)] == [(2, 6.5), (3, 6.5)]


def test_ages_are_read_where_they_are_logged(tmp_path):
    write_metrics(tmp_path / "metrics.jsonl", steps=2, age=2)
    [step] = runs.read_steps(tmp_path)
    assert (step.age_mean, step.age_max, step.span_mean) == (1.0, 2, 1.5)
    assert not runs.synchronous([step])


def test_seconds_that_cannot_be_are_refused(tmp_path):
    for bad in ("-1", "NaN", '"long"', "null"):
        write_metrics(tmp_path / "metrics.jsonl", steps=2)
        text = (tmp_path / "metrics.jsonl").read_text()
        (tmp_path / "metrics.jsonl").write_text(text.replace('"timing_s/gen": 6.5', f'"timing_s/gen": {bad}'))
        with pytest.raises(BadInput, match="step 2 has seconds that cannot be"):
            runs.read_steps(tmp_path)


def test_files_of_another_kind_are_refused_in_one_line(tmp_path):
    for name in ("1.jsonl", "weights.bin"):
        (tmp_path / name).write_bytes(b"\x80\xff\x00 no text\n" * 20)
        for read in (runs.read_dump, runs.read_steps):
            with pytest.raises(BadInput) as error:
                read(tmp_path / name)
            assert "\n" not in str(error.value)


def test_metrics_that_are_none_are_refused(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        runs.read_steps(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="holds no metrics"):
        runs.read_steps(tmp_path)
    write_metrics(tmp_path / "metrics.jsonl", steps=1)
    with pytest.raises(BadInput, match="no timing_s/step after a first step"):
        runs.read_steps(tmp_path)
    for name in ("a", "b"):
        write_metrics(tmp_path / name / "metrics.jsonl", steps=2)
    with pytest.raises(BadInput, match="the metrics of 3 runs"):
        runs.read_steps(tmp_path)


def test_what_a_batch_takes_beyond_its_longest_session(tmp_path):
    _write(tmp_path / "2.jsonl", [dump_row("p", i, [1], generate_s=4.0 + i, sandbox_s=3.0) for i in range(2)])
    write_metrics(tmp_path / "metrics.jsonl", steps=2, gen=12.0)
    dump, steps = runs.read_dump(tmp_path), runs.read_steps(tmp_path)
    assert runs.unseen_seconds(dump, steps) == pytest.approx(12 - (5 + 3))


def test_dump_and_metrics_must_have_a_step_in_common(tmp_path):
    write_dump(tmp_path, steps=3)
    with pytest.raises(BadInput, match="no step in common"):
        runs.read_dump(tmp_path).only({7})
    assert sorted(runs.read_dump(tmp_path).only({2, 3, 7}).steps) == [2, 3]
