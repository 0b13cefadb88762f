"""Finished runs side by side, by hand."""

import json
import re

import pytest

from verl_ext.cli import main
from verl_ext.demo.compare import cost_rows, read, table_rows
from verl_ext.types import BadInput


def a_report(recipe="bugfix_grpo", seed=0, val=0.5, redundant=1.0, overrides=()):
    return {
        "recipe": recipe,
        "seed": seed,
        "steps": 30,
        "overrides": list(overrides),
        "sessions": 400,
        "code": "0.1.0-abc",
        "splits": {
            s: {"before": {"value": 0.2}, "after": {"value": val}}
            for s in ("val", "heldout_types", "heldout_functions")
        },
        "behaviour": {"val": {"after": {"turns": 4.0, "redundant_per_success": redundant, "hard_coded": 0.25}}},
        "timings": {"step_s_median": 10.0},
        "costs": {},
    }


def write_run(folder, report, *steps):
    """A finished run as a demo leaves it, with the metrics of its steps."""
    (folder / "train" / "metrics").mkdir(parents=True)
    lines = [json.dumps({"step": step, "data": data}) for step, data in enumerate(steps, 1)]
    (folder / "train" / "metrics" / "0.jsonl").write_text("\n".join(lines))
    (folder / "report.json").write_text(json.dumps(report))


def test_seeds_of_a_recipe_make_one_row_with_every_seed():
    reports = [a_report(seed=1, val=0.4, redundant=None), a_report("bugfix_gigpo"), a_report(seed=0, val=0.3)]
    header, grpo, gigpo = table_rows(reports)
    row = dict(zip(header, grpo, strict=True))
    assert row["recipe"] == "bugfix_grpo" and row["seeds"] == "0, 1"
    assert row["val %"] == "35.0 (30.0, 40.0)"
    assert row["redundant a success"] == "1.0 (1.0, –)"
    assert row["hard-coded %"] == "25.0 (25.0, 25.0)" and row["s a step"] == "10.0 (10.0, 10.0)"
    assert row["val before %"] == "20.0 (20.0, 20.0)"
    assert dict(zip(header, gigpo, strict=True))["val %"] == "50.0"


def test_other_overrides_are_another_row():
    assert len(table_rows([a_report(), a_report(overrides=["a.b=1"])])) == 3


def test_where_a_run_writes_is_no_setting():
    a, b = (a_report(seed=seed, overrides=[f"verl_ext.session_dir=runs/{seed}"]) for seed in (0, 1))
    assert table_rows([a, b])[1][:2] == ("bugfix_grpo", "0, 1")


def test_costs_by_hand(tmp_path):
    step = {"timing_s/step": 30.0, "timing_s/testing": 99.0, "idle/trainer": 0.25, "session/tokens_sampled": 40.0}
    write_run(tmp_path / "a", a_report(), {"perf/x": 1.0}, step, {**step, "idle/trainer": 0.75})
    write_run(tmp_path / "b", a_report(seed=1), {**step, "segments/per_session": 2.0})
    header, row = cost_rows([read(tmp_path / "a"), read(tmp_path / "b")])
    assert dict(zip(header, row, strict=True)) == {
        "recipe": "bugfix_grpo",
        "minutes of steps": "0.8 (1.0, 0.5)",
        "sampled tokens": "40.0 (40.0, 40.0)",
        "segments": "2.0 (–, 2.0)",
        "trainer waits %": "37.5 (50.0, 25.0)",
    }


def test_a_run_given_twice_is_refused():
    with pytest.raises(BadInput, match="same seed"):
        table_rows([a_report(), a_report()])


def test_table_is_printed_and_written(tmp_path, capsys):
    write_run(tmp_path, a_report(), {"timing_s/step": 60.0})
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path), "--out", str(tmp_path / "t.md")])
    assert stop.value.code == 0
    assert re.search(r"^  held-out functions % +50\.0 *$", capsys.readouterr().out, re.MULTILINE)
    header, rule, row, _, *costs, _, made_by, _, code = (tmp_path / "t.md").read_text().splitlines()
    assert costs == ["| recipe | minutes of steps |", "|---|---|", "| bugfix_grpo | 1.0 |"]
    assert made_by.strip() == "verl-ext demo --recipe bugfix_grpo --seed 0 --steps 30 --sessions 400"
    assert code == "Code: 0.1.0-abc"
    assert header.count("|") == rule.count("|") == row.count("|") and "| 50.0 |" in row


def test_on_a_narrow_terminal_nothing_is_cut(tmp_path, capsys, monkeypatch):
    overrides = ["verl_ext.context.manager=drop_oldest", "verl_ext.context.budget=320"]
    write_run(tmp_path, a_report(overrides=overrides), {"timing_s/step": 60.0})
    shown = {}
    for columns in ("40", "250"):
        monkeypatch.setenv("COLUMNS", columns)
        with pytest.raises(SystemExit):
            main(["report", str(tmp_path)])
        shown[columns] = capsys.readouterr().out
        assert "…" not in shown[columns] and " ".join(("bugfix_grpo", *overrides)) in shown[columns]
    assert "┃" in shown["250"] and "┃" not in shown["40"]


def test_runs_of_different_code_are_named(tmp_path, capsys):
    for name, code in (("a", "1"), ("b", "2")):
        write_run(tmp_path / name, a_report(seed=int(code)) | {"code": code})
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "a"), str(tmp_path / "b")])
    assert "made by 2 states of the code: 1, 2" in capsys.readouterr().out


def test_an_unfinished_or_old_run_is_named(tmp_path, capsys):
    for text, says in ((None, "holds no report.json"), ("{}", "older version")):
        if text:
            (tmp_path / "report.json").write_text(text)
        with pytest.raises(SystemExit) as stop:
            main(["report", str(tmp_path)])
        error = capsys.readouterr().err
        assert stop.value.code == 2 and says in error and error.count("\n") == 1
