"""`verl-ext simulate` as it is called."""

import json
import subprocess
import sys

import pytest

from tests.simulate.samples import write_dump, write_metrics
from verl_ext import cli

QUICK = ["--steps", "10", "--batch", "2", "--group", "2"]


def _call(capsys, *words, status=0):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["simulate", *map(str, words)])
    captured = capsys.readouterr()
    assert exit_.value.code == status, captured.err
    return captured.err.strip() if status else captured.out


def _json(capsys, path, *words):
    _call(capsys, *QUICK, *words, "--json", path)
    return json.loads(path.read_text())


def test_three_ways_side_by_side(capsys, tmp_path):
    out = _call(capsys, *QUICK, "--plot", tmp_path / "sim.png")
    assert all(text in out for text in ("sync", "one step", "async, eta 2", "speed-up", "trainer waits, %"))
    assert (tmp_path / "sim.png").read_bytes().startswith(b"\x89PNG")


def test_folders_of_what_is_written_are_made(capsys, tmp_path):
    _call(capsys, *QUICK, "--json", tmp_path / "a" / "s.json", "--plot", tmp_path / "b" / "s.png")
    assert (tmp_path / "a" / "s.json").exists() and (tmp_path / "b" / "s.png").exists()


def test_every_figure_in_json(capsys, tmp_path):
    fixed = ["--turns", "2", "--turn-s", "2", "--tool-s", "1", "--train-s", "6", "--sync-s", "0"]
    found = _json(capsys, tmp_path / "sim.json", *fixed, "--eta", "0", "--eta", "1")
    assert [mode["label"] for mode in found["modes"]] == [
        "sync",
        "one step",
        "async, eta 0",
        "async, eta 1",
    ]
    assert [mode["speed_up"] for mode in found["modes"]] == pytest.approx([1, 2, 1, 2])
    assert found["modes"][1]["age"] == {"1": 9 * 4}
    assert found["modes"][0]["wait"] == pytest.approx(0.5)
    assert found["inputs"]["batch"] == 2 and found["inputs"]["train_s"] == "6" and found["inputs"]["skip"] == 1


def test_a_seed_gives_the_same_again_and_another_something_else(capsys):
    outs = [_call(capsys, *QUICK, "--seed", seed) for seed in (1, 1, 2)]
    assert outs[0] == outs[1] != outs[2]


def test_without_synchronous_training_there_is_no_speed_up(capsys, tmp_path):
    found = _json(capsys, tmp_path / "sim.json", "--mode", "one_step", "--mode", "one_step_off")
    assert [(mode["label"], mode["speed_up"]) for mode in found["modes"]] == [
        ("one step", None),
        ("one step off", None),
    ]


def test_verls_settings(capsys, tmp_path):
    verl = ["--policy", "verl", "--eta", "1.5", "--threshold", "2", "--strategy", "wait", "--updates", "2"]
    found = _json(capsys, tmp_path / "sim.json", "--mode", "fully_async", *verl)
    assert found["modes"][0]["label"] == "verl, 1.5 warm-up, wait at 2, 2 updates"
    out = _call(capsys, "--mode", "fully_async", "--policy", "verl", "--threshold", "1", "--eta", "2", *QUICK)
    assert "prompts dropped; a trained session is" in out


def _run(folder, age=0):
    write_dump(folder / "sessions", steps=4, prompts=3, sessions=2, generate_s=4.0, sandbox_s=2.0)
    write_metrics(folder / "metrics.jsonl", steps=4, step=10.0, gen=6.5, sync=0.5, age=age)
    return folder


def test_a_run_gives_everything(capsys, tmp_path):
    run = _run(tmp_path / "run")
    modes = [word for name in ("sync", "one_step_off") for word in ("--mode", name)]
    _call(capsys, "--run", run, *modes, "--json", tmp_path / "s.json")
    found = json.loads((tmp_path / "s.json").read_text())
    inputs = found["inputs"]
    assert (inputs["batch"], inputs["group"], inputs["sessions"]) == (3, 2, 18)  # without the first step's
    # 6 s a session and 0.5 s that no session knows of, then 3 s of training and 0.5 s of sync.
    assert [mode["step_s"] for mode in found["modes"]] == pytest.approx([10.0, 7.0])


def test_settings_go_before_what_a_run_measured(capsys, tmp_path):
    given = ["--train-s", "1", "--sync-s", "0", "--after-s", "2"]
    found = _json(capsys, tmp_path / "s.json", "--run", _run(tmp_path / "run"), *given, "--mode", "sync")
    assert found["modes"][0]["step_s"] == pytest.approx(4 + 2 + 2 + 1)
    assert found["inputs"]["batch"] == 2
    dump = tmp_path / "run" / "sessions" / "2.jsonl"
    assert _json(capsys, tmp_path / "s.json", "--run", dump, *given)["inputs"]["sessions"] == 6


def test_with_a_saturation_a_synchronous_step_still_waits_as_long_as_measured(capsys, tmp_path):
    run = _run(tmp_path / "run")
    for saturation in (1, 2, 100):
        words = ["--run", run, "--mode", "sync", "--saturation", saturation, "--json", tmp_path / "s.json"]
        _call(capsys, *words)
        found = json.loads((tmp_path / "s.json").read_text())
        assert found["modes"][0]["step_s"] == pytest.approx(10, rel=0.01)
        assert (found["inputs"]["full_speed"] == 1) == (saturation == 100)


def test_prediction_beside_measurement(capsys, tmp_path):
    run, other = _run(tmp_path / "run"), tmp_path / "other"
    write_metrics(other / "metrics.jsonl", steps=3, step=8.0, gen=4.0, age=2)
    words = ["--run", run, "--compare", f"sync={run}", "--compare", f"fully_async={other}"]
    out = _call(capsys, *words, "--json", tmp_path / "s.json")
    assert "error, %" in out and "seconds a step: predicted" in out
    modes = {mode["mode"]: mode for mode in json.loads((tmp_path / "s.json").read_text())["modes"]}
    assert modes["sync"]["measured"]["step"] == pytest.approx(10) == pytest.approx(modes["sync"]["step_s"])
    assert modes["fully_async"]["measured"] == pytest.approx(
        {"step": 8.0, "wait": 4.0, "train": 3.5, "sync": 0.5, "age_mean": 1.0, "span_mean": 1.5}
    )
    assert "measured" not in modes["one_step"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--turn-s", "fast"], "'fast' is no distribution; write a number, constant:SECONDS"),
        (["--eta", "inf"], "--eta must be finite"),
        (["--saturation", "nan"], "--saturation must be finite"),
        (["--resume-s", "inf"], "--resume-s must be finite"),
        (["--json", "RUN"], "is a directory"),
        (["--skip", "50"], "--skip 50 leaves none of the 50 steps"),
        (["--eta", "0.5"], "--eta 0.5 must be a whole number"),
        (["--threshold", "2"], "--threshold is a setting of fully_async with --policy verl"),
        (["--policy", "verl", "--order", "finished"], "--order is a setting of fully_async with --policy areal"),
        (["--policy", "verl", "--strategy", "wait"], "--strategy says what happens at --threshold"),
        (["--mode", "sync", "--order", "finished"], "which is not simulated"),
        (["--policy", "verl", "--updates", "3"], "--updates 3 does not divide the batch of 16 prompts"),
        (["--metrics", "x.jsonl"], "--metrics goes with --run"),
        (["--compare", "sync"], "write MODE=RUN, with a mode of sync, one_step, one_step_off, fully_async"),
        (["--compare", "sync=nowhere"], "nowhere does not exist"),
        (["--run", "nowhere"], "nowhere does not exist"),
        (["--run", "RUN", "--turns", "3"], "--turns comes from --run"),
        (["--run", "RUN/sessions/1.jsonl"], "has no trainer seconds; add --metrics FILE"),
        (["--run", "RUN/sessions"], "holds no metrics"),
        (["--run", "RUN/metrics.jsonl"], "is no session of a session dump"),
        (["--run", "ASYNC"], "is asynchronous: its waits are no generation times"),
        (
            ["--run", "RUN", "--compare", "one_step=RUN", "--mode", "sync"],
            "one_step is not simulated; add --mode one_step",
        ),
        (["--compare", "sync=RUN", "--compare", "sync=RUN"], "--compare has sync twice"),
        (
            ["--steps", "2", "--turns", "1", "--turn-s", "0", "--tool-s", "0", "--train-s", "0", "--sync-s", "0"],
            "no time at all",
        ),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, words, says):
    places = {"RUN": _run(tmp_path / "run"), "ASYNC": _run(tmp_path / "async", age=1)}
    for name, folder in places.items():
        words = [word.replace(name, str(folder)) for word in words]
    line = _call(capsys, *words, status=2)
    assert says in line and "\n" not in line and line.startswith("verl-ext: ")


def test_neither_verl_nor_ray_nor_torch_is_imported(tmp_path):
    code = (
        "import sys\nfrom verl_ext import cli\n"
        f"try: cli.main(['simulate', '--steps', '2', '--plot', {str(tmp_path / 'a.png')!r}])\nexcept SystemExit: pass\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'verl', 'ray', 'transformers'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip().endswith("[]")
