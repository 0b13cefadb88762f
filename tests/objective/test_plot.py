"""``verl-ext tiny entropy``: reading a run's metrics and drawing them."""

import json

import pytest
from click.testing import CliRunner

from verl_ext.tiny.commands import tiny
from verl_ext.tiny.entropy import curves, label, read_run
from verl_ext.types import BadInput

PNG = b"\x89PNG\r\n\x1a\n"


def step(number, scale=1.0):
    return {
        "entropy/after_observation/0": 2.0 * scale,
        "entropy/after_observation/1": 1.0 * scale,
        "entropy/after_observation/8": 0.5 * scale,
        "entropy/after_observation_share/0": 0.5,
        "entropy/after_observation_share/1": 0.25,
        "entropy/after_observation_share/8": 0.01,
        "entropy/first_turn/0": 0.3 * scale,
        "entropy/first_turn_share/0": 0.24,
        "entropy/all": 0.8 * scale,
        "critic/score/mean": 0.1 * number,
    }


def write(path, steps):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": number, "data": data}) + "\n" for number, data in steps.items()))


def test_a_run_of_the_file_logger(tmp_path):
    write(tmp_path / "train/metrics/0.jsonl", {n: step(n) for n in range(1, 7)})
    write(tmp_path / "train/metrics/1.jsonl", {n: step(n, 0.5) for n in range(5, 9)})
    with (tmp_path / "train/metrics/1.jsonl").open("a") as file:
        file.write('{"step": 9, "da')  # cut
    write(tmp_path / "train/validation/0.jsonl", {})
    done = CliRunner().invoke(tiny, ["entropy", str(tmp_path), "--steps", "3"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "entropy.png").read_bytes().startswith(PNG)
    assert done.output.splitlines()[:2] == [
        "steps 1 to 3: nats (share of tokens) by position after an observation "
        "0: 2.000 (50 %), 1: 1.000 (25 %), 8-15: 0.500 (1 %); in first turns 0: 0.300 (24 %); all 0.800",
        "steps 6 to 8: nats (share of tokens) by position after an observation "
        "0: 1.000 (50 %), 1: 0.500 (25 %), 8-15: 0.250 (1 %); in first turns 0: 0.150 (24 %); all 0.400",
    ]


def test_a_run_of_the_tensorboard_logger(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    for attempt in range(2):  # interrupted and resumed: two event files
        writer = SummaryWriter(tmp_path / "log", filename_suffix=f".attempt{attempt}")
        for number in range(1 + 2 * attempt, 3 + 2 * attempt):
            for name, value in step(number, number).items():
                writer.add_scalar(name, value, number)
        writer.close()
    found = read_run(tmp_path)
    assert sorted(found) == [1, 2, 3, 4]
    assert found[3] == pytest.approx(step(3, 3), rel=1e-6)
    (event,) = (path for path in (tmp_path / "log").iterdir() if path.name.endswith(".attempt0"))
    assert sorted(read_run(event)) == [1, 2]


def test_ends_of_short_runs_do_not_overlap():
    assert [c.steps for c in curves({n: step(n) for n in range(1, 6)}, 10)] == [(1, 2), (4, 5)]
    assert [c.steps for c in curves({3: step(3)}, 10)] == [(3, 3)]


def test_a_position_that_few_steps_reach_is_the_mean_of_those():
    longer = {**step(2), "entropy/after_observation/16": 3.0, "entropy/after_observation_share/16": 0.2}
    first, _ = curves({1: step(1), 2: longer, 3: step(3), 4: step(4)}, 2)
    assert first.after == {0: (2.0, 0.5), 1: (1.0, 0.25), 8: (0.5, 0.01), 16: (3.0, 0.1)}


def test_steps_without_entropies_are_passed_over():
    metrics = {0: {"val/pass_at_1/bugfix/val": 0.2}, 1: step(1), 2: step(2), 3: {"critic/score/mean": 0.1}}
    assert [c.steps for c in curves(metrics, 5)] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(("first", "shown"), [(0, "0"), (1, "1"), (3, "3"), (4, "4-7"), (64, "64+")])
def test_labels(first, shown):
    assert label(first) == shown


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="holds no metrics"):
        read_run(tmp_path)
    write(tmp_path / "a/metrics/0.jsonl", {1: step(1)})
    write(tmp_path / "b/metrics/0.jsonl", {1: step(1)})
    with pytest.raises(BadInput, match="holds 2 runs; give one of"):
        read_run(tmp_path)
    with pytest.raises(BadInput, match="the run has no entropy/after_observation") as error:
        curves({1: {"critic/score/mean": 0.1}}, 5)
    assert "\n" not in str(error.value)
