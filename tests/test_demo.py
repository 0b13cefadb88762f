"""The demo's report on small hand-made dumps, its stages, and the command it gives to verl."""

import dataclasses
import importlib.util
import io
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from verl_ext.demo import commands, dumps, plan, plot, results, stages, train, transcripts
from verl_ext.types import BadInput, Case, Task, Tests

SPLIT_OF = {"a": "val", "b": "val", "t": "heldout_types", "f": "heldout_functions", "g": "heldout_functions"}


def _row(uid: str, task_id: str, acc: float, output: str = "out", **more) -> dict:
    # The fields of verl's _write_generations and the reward manager's extra information.
    return {
        "input": f"prompt of {task_id}",
        "output": output,
        "gts": task_id,
        "score": acc,
        "step": 0,
        "reward": acc,
        "acc": acc,
        "task_id": task_id,
        "bug_type": "swap",
        "stop": "submitted",
        "uid": uid,
        **more,
    }


def _write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def run(tmp_path) -> Path:
    """A finished run of 4 steps, two sessions for each of five tasks before and after."""
    folder = tmp_path / "train"
    before = {"a": (0, 0), "b": (1, 0), "t": (1, 1), "f": (0, 0), "g": (0, 0)}
    after = {"a": (1, 1), "b": (1, 0), "t": (1, 0), "f": (0, 1), "g": (1, 0)}
    for step, passes in ((0, before), (4, after)):
        rows = [_row(f"u{task}_{i}_0", task, acc) for task, pair in passes.items() for i, acc in enumerate(pair)]
        _write(folder / "validation" / f"{step}.jsonl", rows)
    _write(
        folder / "metrics" / "0.jsonl",
        [
            {"step": 0, "data": {"val-core/x": 1}},
            {"step": 1, "data": {"critic/score/mean": 0.1, "timing_s/step": 3.0, "exactness/log_prob_gap_max": 1e-6}},
            {"step": 2, "data": {"critic/score/mean": 0.9, "timing_s/step": 9.0}},
        ],
    )
    _write(  # a second attempt, from the checkpoint of step 1
        folder / "metrics" / "1.jsonl",
        [
            {"step": step, "data": {"critic/score/mean": step / 10, "timing_s/step": 4.0, "timing_s/testing": 20.0}}
            for step in (2, 3, 4)
        ],
    )
    return folder


def test_validation_dump_is_read_and_the_last_segment_counts(tmp_path):
    path = tmp_path / "0.jsonl"
    rows = [_row("u_0_0", "a", 0.0, "first"), _row("u_0_1", "a", 1.0, "last")]
    rows.append(_row("u_1_0", "a", 0.0, stop="max_turns"))
    _write(path, rows)
    sessions = dumps.read_validation(path)
    assert [(s.passed, s.response, s.stop) for s in sessions] == [(1.0, "last", "submitted"), (0.0, "out", "max_turns")]


def test_dump_without_reward_information_falls_back_to_score_and_truth(tmp_path):
    path = tmp_path / "0.jsonl"
    _write(path, [{"input": "i", "output": "o", "gts": "a", "score": 1.0, "step": 0, "acc": None, "task_id": None}])
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
    assert metrics[2]["critic/score/mean"] == 0.2


def test_attempts_are_ordered_by_number_not_by_name(tmp_path):
    for attempt in range(11):
        _write(tmp_path / f"{attempt}.jsonl", [{"step": 1, "data": {"x": attempt}}])
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
    assert json.loads(json.dumps(found, allow_nan=False)) == found


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
    console = _console()
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


def _task(task_id: str = "a") -> Task:
    return Task(
        task_id=task_id,
        sources={"solution.py": "def f(x):\n    return x - 1\n"},
        editable=("solution.py",),
        issue="f adds one.",
        public=Tests(),
        hidden=Tests(),
        bug_type="swap",
        gold={"solution.py": "def f(x):\n    return x + 1\n"},
        split="val",
    )


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
    text = transcripts.render(_task(), _session("a", 0, "```\nrm"), _session("a", 1, "edit(2, swap)"), 60)
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


@pytest.fixture
def tasks_dir(tmp_path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "tasks"
    folder.mkdir()
    for split, count in (("train", 4), ("val", 30), ("heldout_types", 7), ("heldout_functions", 12)):
        pq.write_table(pa.table({"id": [f"{split}{i}" for i in range(count)]}), folder / f"{split}.parquet")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    return folder


def _plan(tasks_dir: Path, **more) -> plan.Plan:
    values = {"steps": 10, "seed": 3, "sessions": 20, "evaluations": 3, **more}
    out = tasks_dir.parent / "demo's" / "train"
    return plan.Plan(tasks=tasks_dir, model=tasks_dir.parent / "tiny", out=out, **values)


def test_every_split_is_evaluated_with_enough_sessions_and_as_many_tasks_as_that_allows(tasks_dir):
    import pyarrow.parquet as pq

    files, runs = plan.evaluation_files(_plan(tasks_dir))
    ids = [pq.read_table(file).column("id").to_pylist() for file in files]
    assert runs == 3  # the smallest split has 7 tasks: 3 sessions each make 21
    assert [len(split) for split in ids] == [7, 7, 7]
    assert ids[0][0] == "val0" and ids[0][-1] == "val25"  # evenly spaced over 30
    assert all(len(set(split)) == len(split) for split in ids)


def test_missing_split_says_what_to_run(tasks_dir):
    (tasks_dir / "val.parquet").unlink()
    with pytest.raises(BadInput, match="tasks build"):
        plan.evaluation_files(_plan(tasks_dir))


@pytest.mark.parametrize(
    ("steps", "expected"), [(60, [0, 20, 40, 60]), (10, [0, 4, 8, 10]), (1, [0, 1]), (2, [0, 1, 2]), (3, [0, 1, 2, 3])]
)
def test_evaluation_steps(tasks_dir, steps, expected):
    assert _plan(tasks_dir, steps=steps).evaluation_steps == expected


def _checkpoint(a_plan: plan.Plan, step: int | str) -> None:
    folder = a_plan.out / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))


def test_command_evaluates_before_training_only_once(tasks_dir):
    a_plan = _plan(tasks_dir)
    files = [tasks_dir / "val.parquet"]
    assert {"trainer.val_before_train=true", "trainer.val_only=false"} <= set(plan.command(a_plan, files, 2))
    _write(a_plan.out / "validation" / "0.jsonl", [_row("u_0_0", "a", 0.0)])
    assert "trainer.val_before_train=false" in plan.command(a_plan, files, 2)  # killed before the first checkpoint
    _checkpoint(a_plan, "")  # read in the moment in which verl writes it
    assert plan.checkpoint_step(a_plan) == 0
    _checkpoint(a_plan, 4)  # killed while it evaluated after step 4
    assert {"trainer.val_before_train=true", "trainer.val_only=false"} <= set(plan.command(a_plan, files, 2))
    _checkpoint(a_plan, 10)  # killed in the last evaluation: nothing is left to train
    assert {"trainer.val_before_train=true", "trainer.val_only=true"} <= set(plan.command(a_plan, files, 2))
    assert not plan.complete(a_plan)
    _write(a_plan.out / "validation" / "10.jsonl", [_row("u_0_0", "a", 0.0)])
    assert plan.complete(a_plan)


def test_command_composes_with_the_recipe(tasks_dir):
    """Every key that the demo sets exists in the recipe or in verl's configuration; paths with quotes survive."""
    from hydra import compose, initialize_config_dir

    a_plan = _plan(tasks_dir, overrides=("actor_rollout_ref.actor.optim.lr=3e-4",))
    files, runs = plan.evaluation_files(a_plan)
    argv = plan.command(a_plan, files, runs)
    words = [word for word in argv[argv.index(plan.RECIPE) + 1 :] if not word.startswith("hydra.")]
    verl = Path(importlib.util.find_spec("verl").origin).parent  # by path: `pkg://` would import all of verl
    words.append(f"hydra.searchpath=[file://{verl}/trainer/config]")
    with initialize_config_dir(str(plan.RECIPES), version_base=None):
        config = compose(plan.RECIPE, words)
    assert list(config.data.val_files) == [str(file) for file in files]
    assert config.trainer.default_local_dir == str(a_plan.out / "checkpoints")
    assert config.actor_rollout_ref.actor.optim.lr == 3e-4
    assert config.actor_rollout_ref.rollout.val_kwargs.n == 3
    assert (config.trainer.test_freq, config.trainer.total_training_steps, config.data.seed) == (4, 10, 3)
    assert config.trainer.device == "cpu"


def test_each_attempt_has_metrics_of_its_own(tasks_dir):
    a_plan = _plan(tasks_dir)
    first = plan.environment(a_plan, {})
    Path(first["VERL_FILE_LOGGER_PATH"]).write_text("")
    second = plan.environment(a_plan, {"HOME": "/"})
    assert Path(first["VERL_FILE_LOGGER_PATH"]).name == "0.jsonl"
    assert Path(second["VERL_FILE_LOGGER_PATH"]).name == "1.jsonl"
    assert second["VERL_PLATFORM"] == "cpu" and second["HOME"] == "/"


def test_time_left_counts_what_is_pending(tasks_dir):
    a_plan = _plan(tasks_dir)  # evaluations at 0, 4, 8, 10
    state = train.State(a_plan, started=100.0)
    state.update(100.0, False)
    assert state.phase() == "starting Ray, trainer and vLLM"
    assert state.left(100.0) == train.START_S + 4 * train.EVALUATION_S + 10 * train.STEP_S
    state.update(150.0, True)
    assert state.phase() == "evaluating the model to start from"
    _write(a_plan.out / "validation" / "0.jsonl", [_row("u_0_0", "a", 0.0)])
    state.update(162.0, True)
    assert state.evaluation_s == 12.0 and state.phase() == "training"
    _write(
        a_plan.out / "metrics" / "0.jsonl",
        [{"step": i, "data": {"critic/score/mean": 0.5, "timing_s/step": 2.0}} for i in (1, 2, 3)],
    )
    state.update(170.0, True)
    assert (state.step, state.reward) == (3, 0.5)
    assert state.left(170.0) == 3 * 12 + 7 * 2
    assert state.left(175.0) == 3 * 12 + 7 * 2 - 5
    _checkpoint(a_plan, 4)
    assert state.phase() == "evaluating after step 4"
    assert "step 3/10, reward 0.50" in state.line(170.0)
    assert state.clock == {"start_up_s": 50.0, "first_evaluation_s": 12.0, "to_first_step_s": 70.0}


def test_minutes():
    assert [train.minutes(s) for s in (0, 59.6, 187, -3)] == ["0:00", "1:00", "3:07", "0:00"]


_TRAINER = """
import json, os, sys, time
from pathlib import Path
out = Path(sys.argv[1])
print("Creating file logger at", os.environ["VERL_FILE_LOGGER_PATH"], flush=True)
row = json.dumps({"input": "i", "output": "o", "gts": "a", "score": 0.0}) + "\\n"
(out / "validation").mkdir(parents=True, exist_ok=True)
(out / "checkpoints").mkdir(exist_ok=True)
latest = out / "checkpoints" / "latest_checkpointed_iteration.txt"
done = int(latest.read_text()) if latest.exists() else 0
(out / "validation" / f"{done}.jsonl").write_text(row)
with open(os.environ["VERL_FILE_LOGGER_PATH"], "w") as log:
    for step in range(done + 1, 11):
        if sys.argv[2] == "fail" and step == 2:
            sys.exit("no luck at step 2")
        if sys.argv[2] == "hang" and step == 3:
            time.sleep(60)
        latest.write_text(str(step))
        log.write(json.dumps({"step": step, "data": {"critic/score/mean": 0.5}}) + "\\n")
(out / "validation" / "10.jsonl").write_text(row)
"""


def _console() -> Console:
    return Console(width=160, record=True, file=io.StringIO())


def _stand_in(monkeypatch, tmp_path, behaviour: str) -> None:
    """A process that writes the files that verl writes, in the place of a minute's start-up."""
    script = tmp_path / "trainer.py"
    script.write_text(_TRAINER)
    monkeypatch.setattr(
        train, "command", lambda a_plan, files, runs: [sys.executable, str(script), str(a_plan.out), behaviour]
    )


def test_training_that_fails_shows_the_end_of_its_log_and_goes_on_later(monkeypatch, tasks_dir, tmp_path):
    a_plan, console = _plan(tasks_dir), _console()
    _stand_in(monkeypatch, tmp_path, "fail")
    with pytest.raises(BadInput, match=r"status 1.*train\.log"):
        train.train(a_plan, os.environ, console)
    text = console.export_text(clear=False)
    assert "no luck at step 2" in text
    assert plan.checkpoint_step(a_plan) == 1
    _stand_in(monkeypatch, tmp_path, "ok")
    train.train(a_plan, os.environ, console)
    assert "going on from the checkpoint of step 1" in console.export_text()
    assert list(dumps.read_metrics(a_plan.out / "metrics")) == list(range(1, 11))


def test_interruption_ends_the_whole_run(monkeypatch, tasks_dir, tmp_path):
    a_plan = _plan(tasks_dir)
    _stand_in(monkeypatch, tmp_path, "hang")
    started = []
    popen = train.subprocess.Popen
    monkeypatch.setattr(train.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])

    def interrupt():
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and plan.checkpoint_step(a_plan) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        train.train(a_plan, os.environ, _console())
    thread.join()
    assert started[0].poll() is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(started[0].pid, 0)


def test_stage_is_done_only_with_the_same_inputs(tmp_path):
    marker = tmp_path / "made" / "done.json"
    assert stages.seconds_if_done(marker, {"seed": 0}) is None
    stages.mark_done(marker, {"seed": 0}, 12.34)
    assert stages.seconds_if_done(marker, {"seed": 0}) == 12.3
    assert stages.seconds_if_done(marker, {"seed": 1}) is None
    marker.write_text('{"inputs"')
    assert stages.seconds_if_done(marker, {"seed": 0}) is None


def test_two_demos_do_not_share_a_folder(tmp_path):
    with stages.only_one(tmp_path), pytest.raises(BadInput, match="another demo"), stages.only_one(tmp_path):
        pass
    with stages.only_one(tmp_path):
        pass


def test_visible_command_reports_failure_and_interruption():
    assert stages.run_visible([sys.executable, "-c", ""], os.environ) > 0
    with pytest.raises(BadInput, match="status 3"):
        stages.run_visible([sys.executable, "-c", "raise SystemExit(3)"], os.environ)
    with pytest.raises(KeyboardInterrupt):
        stages.run_visible([sys.executable, "-c", "raise SystemExit(130)"], os.environ)


def test_other_settings_start_afresh_and_keep_the_earlier_run(monkeypatch, tasks_dir, tmp_path):
    _stand_in(monkeypatch, tmp_path, "ok")
    out, tiny = tmp_path / "out", tasks_dir.parent / "tiny"

    def demo(seed: int) -> commands._Demo:
        return commands._Demo(_console(), seed, 10, 20, out, tasks_dir, tiny, ())

    (out / "train" / "evaluation").mkdir(parents=True)  # the stage before writes there: no reason to start afresh
    first = demo(0)
    first.train()
    assert "starting afresh" not in first.console.export_text()
    again = demo(0)
    again.train()
    assert "done before" in again.console.export_text()
    other = demo(1)
    other.train()
    assert "starting afresh" in other.console.export_text()
    assert stages.read_json(out / "train.1" / "inputs.json")["seed"] == 0
    assert stages.read_json(out / "train" / "inputs.json")["seed"] == 1


def test_an_override_without_equals_sign_is_refused(tmp_path):
    from click.testing import CliRunner

    done = CliRunner().invoke(commands.demo, ["--out", str(tmp_path), "lr"])
    assert isinstance(done.exception, BadInput) and "'lr' is no override" in str(done.exception)


def test_teacher_plays_the_evaluation_tasks_and_their_order_is_kept(tmp_path):
    from verl_ext.demo import teacher
    from verl_ext.gym.export import write_parquet

    known = {name: _task(name) for name in ("a", "b", "c")}
    write_parquet(tmp_path / "val.parquet", [known["c"], known["a"]], "ops")
    assert [task.task_id for task in teacher.evaluation_tasks([tmp_path / "val.parquet"], known)] == ["c", "a"]
    with pytest.raises(BadInput, match="'c'"):
        teacher.evaluation_tasks([tmp_path / "val.parquet"], {"a": known["a"]})


def test_teacher_rate_is_a_mean_over_tasks_by_real_grades():
    from verl_ext.demo import teacher

    def task(task_id: str, hidden: str) -> Task:
        public, judged = (Tests(cases=(Case("f", (1,), expected=value),)) for value in (2, hidden))
        return dataclasses.replace(_task(task_id), public=public, hidden=judged)

    count = []
    # Hidden tests that nothing can pass, since f(1) is a number: the teacher's rate is zero, over real sandbox runs.
    rates = teacher.measure([task("a", "never"), task("b", "never")], 2, seed=0, done=lambda: count.append(1))
    assert rates == {"val": 0.0}
    assert len(count) == 4
