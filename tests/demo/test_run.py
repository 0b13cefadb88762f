"""The demo's run: what it asks of verl, progress, interruption, stages, the teacher."""

import dataclasses
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.demo.samples import a_console, a_task, dump_row, write_rows
from verl_ext.demo import commands, dumps, plan, stages, train
from verl_ext.types import BadInput, Case, Task, Tests


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
    write_rows(a_plan.out / "validation" / "0.jsonl", [dump_row("u_0_0", "a", 0.0)])
    assert "trainer.val_before_train=false" in plan.command(a_plan, files, 2)  # killed before the first checkpoint
    _checkpoint(a_plan, "")  # read in the moment in which verl writes it
    assert plan.checkpoint_step(a_plan) == 0
    _checkpoint(a_plan, 4)  # killed while it evaluated after step 4
    assert {"trainer.val_before_train=true", "trainer.val_only=false"} <= set(plan.command(a_plan, files, 2))
    _checkpoint(a_plan, 10)  # killed in the last evaluation: nothing is left to train
    assert {"trainer.val_before_train=true", "trainer.val_only=true"} <= set(plan.command(a_plan, files, 2))
    assert not plan.complete(a_plan)
    write_rows(a_plan.out / "validation" / "10.jsonl", [dump_row("u_0_0", "a", 0.0)])
    assert plan.complete(a_plan)


@pytest.mark.parametrize("recipe", sorted(path.stem for path in plan.RECIPES.glob("*.yaml")))
def test_command_composes_with_every_recipe(tasks_dir, recipe):
    """Every key that the demo sets exists in the recipe or in verl's configuration; paths with quotes survive."""
    a_plan = _plan(tasks_dir, recipe=recipe, overrides=("actor_rollout_ref.actor.optim.lr=3e-4",))
    files, runs = plan.evaluation_files(a_plan)
    argv = plan.command(a_plan, files, runs)
    config = plan.compose_recipe(*argv[argv.index(recipe) :])
    assert list(config.data.val_files) == [str(file) for file in files]
    assert config.trainer.default_local_dir == str(a_plan.out / "checkpoints")
    assert config.actor_rollout_ref.actor.optim.lr == 3e-4
    assert config.actor_rollout_ref.rollout.val_kwargs.n == 3
    assert (config.trainer.test_freq, config.trainer.total_training_steps, config.data.seed) == (4, 10, 3)
    assert config.trainer.device == "cpu"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("verl_ext.context.manger=note", r"recipe bugfix_grpo: Could not override 'verl_ext.context.manger'"),
        ("+verl_ext.context.manger=note", r"verl_ext\.context\.manger is not a setting; known are: manager"),
        ("verl_ext.context.manager=notes", r"verl_ext\.context\.manager='notes' is not one of none, drop_oldest"),
        ("correction=tis", r"recipe bugfix_grpo: .*correction"),
        ("verl_ext.tool_delay=[", r"recipe bugfix_grpo: "),
    ],
)
def test_wrong_overrides_are_refused_in_one_line_before_anything_is_built(tmp_path, monkeypatch, override, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=says) as refused:
        commands.demo.callback(0, 2, 1, plan.RECIPE, Path("out"), None, None, (override,))
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


def test_unknown_recipe_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match=r"--recipe bugfix_gipo is not one of .*bugfix_entropy, bugfix_fold"):
        plan.check_recipe("bugfix_gipo")


def test_ray_has_no_environment_variable_to_set_and_remove():
    """It did so around every task, while the tokenizer read the environment: a crash (ray-project/ray#62028)."""
    config = plan.compose_recipe(plan.RECIPE)
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS == "1"


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
    write_rows(a_plan.out / "validation" / "0.jsonl", [dump_row("u_0_0", "a", 0.0)])
    state.update(162.0, True)
    assert state.evaluation_s == 12.0 and state.phase() == "training"
    write_rows(
        a_plan.out / "metrics" / "0.jsonl",
        [{"step": i, "data": {"session/score": 0.5, "timing_s/step": 2.0}} for i in (1, 2, 3)],
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
        if sys.argv[2] == "lose" and step == 3:
            print("(raylet) A worker died or was killed while executing a task by an unexpected error", flush=True)
        if sys.argv[2] in ("hang", "lose") and step == 3:
            time.sleep(60)
        latest.write_text(str(step))
        log.write(json.dumps({"step": step, "data": {"session/score": 0.5}}) + "\\n")
(out / "validation" / "10.jsonl").write_text(row)
"""


def _stand_in(monkeypatch, tmp_path, behaviour: str) -> None:
    """A process that writes the files that verl writes, in the place of a minute's start-up."""
    script = tmp_path / "trainer.py"
    script.write_text(_TRAINER)
    monkeypatch.setattr(
        train, "command", lambda a_plan, files, runs: [sys.executable, str(script), str(a_plan.out), behaviour]
    )


def test_training_that_fails_shows_the_end_of_its_log_and_goes_on_later(monkeypatch, tasks_dir, tmp_path):
    a_plan, console = _plan(tasks_dir), a_console()
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


def test_a_dead_worker_ends_a_run_that_would_wait_for_ever(monkeypatch, tasks_dir, tmp_path):
    """An agent-loop worker once crashed in the C library, and verl waited for its sessions."""
    a_plan = _plan(tasks_dir)
    _stand_in(monkeypatch, tmp_path, "lose")
    monkeypatch.setattr(train, "_GRACE_S", 0.5)
    with pytest.raises(BadInput, match=r"workers died.*train\.log says why.*goes on"):
        train.train(a_plan, os.environ, a_console())
    assert plan.checkpoint_step(a_plan) == 2


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
        train.train(a_plan, os.environ, a_console())
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
        a_plan = plan.Plan(tasks_dir, tiny, out / "train", steps=10, seed=seed, sessions=20)
        return commands._Demo(a_console(), a_plan, out, build_tasks=False, build_tiny=False)

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

    known = {name: a_task(name) for name in ("a", "b", "c")}
    write_parquet(tmp_path / "val.parquet", [known["c"], known["a"]], "ops")
    assert [task.task_id for task in teacher.evaluation_tasks([tmp_path / "val.parquet"], known)] == ["c", "a"]
    with pytest.raises(BadInput, match="'c'"):
        teacher.evaluation_tasks([tmp_path / "val.parquet"], {"a": known["a"]})


def test_teacher_rate_is_a_mean_over_tasks_by_real_grades():
    from verl_ext.demo import teacher

    def task(task_id: str, hidden: str) -> Task:
        public, judged = (Tests(cases=(Case("f", (1,), expected=value),)) for value in (2, hidden))
        return dataclasses.replace(a_task(task_id), public=public, hidden=judged)

    count = []
    # Hidden tests that nothing can pass, since f(1) is a number: the teacher's rate is zero, over real sandbox runs.
    rates = teacher.measure(
        [task("a", "never"), task("b", "never")], 2, seed=0, model=Path(), done=lambda: count.append(1)
    )
    assert rates == {"val": 0.0}
    assert len(count) == 4


def test_a_recipe_for_long_tasks_is_known_by_its_base(tmp_path):
    one = plan.Plan(tmp_path, tmp_path, tmp_path, steps=1, seed=0)
    assert not one.long
    assert dataclasses.replace(one, recipe="bugfix_fold").long
    assert dataclasses.replace(one, overrides=("base=long",)).long
