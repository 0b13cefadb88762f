"""The check of exactness on a step's rows, which lie in a dictionary instead of TransferQueue."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf

pytest.importorskip("verl")
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from tests.trainer.samples import Rows, row
from verl_ext.config import parse
from verl_ext.trainer.exactness_settings import ExactnessConfig
from verl_ext.trainer.rescore import read_dump
from verl_ext.trainer.sync import BugFixTrainerSync
from verl_ext.types import BadInput

VERSION = 6  # of the weights at the start of step 7


def a_row(group: str, turns: list[tuple[int, int, int]], gap: float = 0.0, versions=(VERSION, VERSION), padding=False):
    """A row whose last policy token has a gap; a turn is its index, start and end."""
    made = row(group, 0.0, [(start, end) for _, start, end in turns], "a" * len(turns), padding=padding)
    for record, (index, _, _) in zip(made["extra_fields"]["session"]["turns"], turns, strict=True):
        record["index"] = index
    made["old_log_probs"][-1] += gap
    made["prompts"], made["responses"] = torch.tensor([7, 8]), torch.arange(len(made["response_mask"]))
    made["reward_model"] = {"ground_truth": f"task of {group}"}
    made["tag"] |= {"min_global_steps": versions[0], "max_global_steps": versions[1]}
    return made


def step(store: Rows, monkeypatch, folder, settings: ExactnessConfig | None = None, **rollout) -> dict[str, float]:
    """The metrics that the trainer's step 7 adds, after verl's log-prob pass (which the rows hold already)."""
    monkeypatch.setattr("transfer_queue.kv_batch_get", store.kv_batch_get)
    monkeypatch.setattr(PPOTrainer, "_compute_old_log_prob", lambda self, batch, metrics: batch)
    trainer = BugFixTrainerSync.__new__(BugFixTrainerSync)
    trainer.ours, trainer.global_steps = SimpleNamespace(exactness=settings or ExactnessConfig()), VERSION + 1
    trainer.config = OmegaConf.create(
        {
            "algorithm": {},
            "trainer": {"default_local_dir": str(folder)},
            "actor_rollout_ref": {"rollout": {"calculate_log_probs": True, "temperature": 0.5} | rollout},
        }
    )
    metrics: dict[str, float] = {}
    trainer._compute_old_log_prob(store.batch(list(store)), metrics)
    return {name: value for name, value in metrics.items() if name.startswith("exactness/")}


def sessions() -> Rows:
    """Two sessions with a fault of different size in their second segment; one sampled by other weights; padding."""
    return Rows(
        {
            "g_0_1": a_row("g", [(2, 0, 2)], gap=0.25),
            "g_0_0": a_row("g", [(0, 0, 2), (1, 3, 5)]),
            "g_1_0": a_row("g", [(0, 0, 1)], versions=(VERSION - 1, VERSION - 1), gap=9.0),
            "h_0_0": a_row("h", [(0, 0, 2)], gap=-1e-5),
            "h_0_1": a_row("h", [(1, 0, 2)], gap=-2.0),
            "h_0_2": a_row("h", [(2, 0, 2)], gap=3.0, versions=(VERSION - 1, VERSION)),
            "pad_0_0": a_row("pad", [(0, 0, 1)], padding=True),
        }
    )


def test_rows_of_other_weights_and_padding_are_not_checked(monkeypatch, tmp_path):
    found = step(sessions(), monkeypatch, tmp_path)
    assert found["exactness/checked"] == pytest.approx(4 / 6)
    assert found["exactness/log_prob_gap_max"] == pytest.approx(2.0)
    assert found["exactness/log_prob_gap_mean"] == pytest.approx((0.25 + 1e-5 + 2) / 10, rel=1e-3)
    assert found["exactness/segment/0/max"] == pytest.approx(1e-5, rel=1e-2)
    assert found["exactness/segment/1/max"] == found["exactness/turn/1/max"] == pytest.approx(2.0)
    assert found["exactness/turn/2/max"] == pytest.approx(0.25)
    assert not {"exactness/segment/2/max", "exactness/over_bound"} & set(found)
    assert list(tmp_path.iterdir()) == []


def test_a_session_beyond_the_bound_is_written_whole_worst_first(monkeypatch, tmp_path, capsys):
    found = step(sessions(), monkeypatch, tmp_path, ExactnessConfig(bound=1e-4))
    assert found["exactness/over_bound"] == 0.5
    file = tmp_path / "exactness" / "7.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["key"] for line in lines] == ["h_0_0", "h_0_1", "h_0_2", "g_0_0", "g_0_1"]
    worst = lines[1]
    assert worst["gaps"]["max"] == worst["gaps"]["turns"][0]["max"] == pytest.approx(2.0)
    assert worst["gaps"]["turns"][0]["index"] == 1 and worst["session"]["turns"][0]["end"] == 2
    assert worst["rollout_log_probs"] == [-1.0, -1.0] and worst["old_log_probs"] == [-1.0, -3.0]
    assert (worst["step"], worst["version"], worst["temperature"]) == (7, VERSION, 0.5)
    assert (worst["prompts"], worst["responses"], worst["response_mask"]) == ([7, 8], [0, 1], [1, 1])
    assert worst["task_id"] == "task of h"
    assert lines[2]["gaps"] is None and lines[2]["min_global_steps"] == VERSION - 1
    warning = capsys.readouterr().err
    assert warning == (
        "verl_ext: step 7: sampler and trainer are up to 2 nats apart in 2 sessions; verl_ext.exactness.bound is "
        f"0.0001; the worst are in {file}\n"
    )


def test_what_is_written_can_be_checked_against_transformers(monkeypatch, tmp_path):
    step(sessions(), monkeypatch, tmp_path, ExactnessConfig(bound=1e-4))
    rows = {dumped.row.key: dumped for dumped in read_dump(tmp_path / "exactness" / "7.jsonl")}
    assert len(rows) == 5 and [key for key, dumped in rows.items() if not dumped.checked] == ["h_0_2"]
    assert rows["h_0_1"].temperature == 0.5 and rows["h_0_1"].log_probs["trainer"] == [-1.0, -3.0]


def test_at_most_so_many_sessions_are_written(monkeypatch, tmp_path, capsys):
    settings = ExactnessConfig(bound=1e-4, dump_dir=str(tmp_path / "there"), dumps=1)
    step(sessions(), monkeypatch, tmp_path, settings)
    lines = (tmp_path / "there" / "7.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["h_0_0", "h_0_1", "h_0_2"]
    capsys.readouterr()
    step(sessions(), monkeypatch, tmp_path / "none", ExactnessConfig(bound=1e-4, dumps=0))
    assert capsys.readouterr().err.endswith("in 2 sessions; verl_ext.exactness.bound is 0.0001\n")
    assert not (tmp_path / "none").exists()


def test_a_dump_that_cannot_be_written_does_not_end_the_run(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    settings = ExactnessConfig(bound=1e-4, dump_dir=str(tmp_path / "file"))
    assert step(sessions(), monkeypatch, tmp_path, settings)["exactness/over_bound"] == 0.5
    assert "; they could not be written: " in capsys.readouterr().err


def test_a_log_prob_that_is_no_number_is_written_and_read_back(monkeypatch, tmp_path):
    store = Rows({"g_0_0": a_row("g", [(0, 0, 2)], gap=math.nan)})
    found = step(store, monkeypatch, tmp_path, ExactnessConfig(bound=100.0))
    assert found["exactness/log_prob_gap_max"] == math.inf and found["exactness/over_bound"] == 1.0
    assert math.isnan(json.loads((tmp_path / "exactness" / "7.jsonl").read_text())["old_log_probs"][1])


def test_within_the_bound_nothing_is_written_or_said(monkeypatch, tmp_path, capsys):
    assert step(sessions(), monkeypatch, tmp_path, ExactnessConfig(bound=2.5))["exactness/over_bound"] == 0.0
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr().err == ""


def test_a_step_of_older_rows_only_says_that_none_was_checked(monkeypatch, tmp_path):
    store = Rows({"g_0_0": a_row("g", [(0, 0, 2)], versions=(2, 3))})
    assert step(store, monkeypatch, tmp_path, ExactnessConfig(bound=1e-4)) == {"exactness/checked": 0.0}


def test_without_log_probs_of_the_sampler_there_is_nothing_to_check(monkeypatch, tmp_path):
    assert step(sessions(), monkeypatch, tmp_path, calculate_log_probs=False) == {}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"bound": 0}, "verl_ext.exactness.bound=0 must be a number of nats greater than 0, or null"),
        ({"bound": math.nan}, "bound=nan must be a number"),
        ({"bound": math.inf}, "bound=inf must be a number"),
        ({"bound": "tight"}, "bound='tight' must be a number"),
        ({"bound": 1e-4, "dump_dir": 3}, "verl_ext.exactness.dump_dir=3 must be a folder"),
        ({"bound": 1e-4, "dumps": -1}, "verl_ext.exactness.dumps=-1 must not be negative"),
        ({"dump_dir": "there"}, "bound=null ignores dump_dir=there; set a bound"),
        ({"bounds": 1e-4}, "verl_ext.exactness.bounds is not a setting; known are: bound"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_in_one_line(settings, says):
    with pytest.raises(BadInput) as error:
        parse(OmegaConf.create({"verl_ext": {"exactness": settings}}))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_settings_are_read():
    parsed = parse(OmegaConf.create({"verl_ext": {"exactness": {"bound": 1e-3, "dumps": 0}}}))
    assert parsed.exactness == ExactnessConfig(bound=1e-3, dumps=0)
