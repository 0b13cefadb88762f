"""verl's older entry points: their configurations are told apart, and checked before Ray starts."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest
from omegaconf import OmegaConf

from verl_ext import compat, config, legacy
from verl_ext.demo.plan import RECIPES

FULLY = OmegaConf.create({"async_training": {}, "rollout": {}})
ONE_STEP = OmegaConf.create({"rollout": {}})
V1 = OmegaConf.create({"trainer": {}})


def test_a_configuration_names_its_entry_point():
    assert [legacy.entry_point(of) for of in (FULLY, ONE_STEP, V1)] == ["fully_async", "one_step_off", None]
    assert set(legacy.ENTRY_POINTS) == set(legacy.INSTEAD) == {f.stem for f in (RECIPES / "legacy").glob("*.yaml")}


@pytest.mark.parametrize(("of", "validated"), [(FULLY, 1), (ONE_STEP, 1), (V1, 0)])
def test_run_ppo_validates_what_is_validated_nowhere_else(of, validated, monkeypatch):
    seen, ran = [], []
    monkeypatch.setattr(config, "validate_or_exit", lambda *args: seen.append(args))
    module = ModuleType("main_ppo")
    module.run_ppo = lambda *args, **more: ran.append((args, more))
    compat._validate_before_legacy_runs(module)
    module.run_ppo(of, task_runner_class=int)
    assert seen == [(of,)] * validated and ran == [((of,), {"task_runner_class": int})]


def test_verl_main_ppo_names_the_entry_point_of_an_older_recipe(capsys):
    module = ModuleType("config")
    module.validate_config = lambda *_, **__: None
    compat._validate_our_config_first(module)
    with pytest.raises(SystemExit) as stop:
        module.validate_config(config=FULLY)
    says = (
        "legacy/fully_async is for python -m verl.experimental.fully_async_policy.fully_async_main; with verl.trainer"
    )
    line = capsys.readouterr().err
    assert stop.value.code == 2 and says in line and line.count("\n") == 1


@pytest.mark.e2e
@pytest.mark.parametrize("name", legacy.ENTRY_POINTS)
def test_the_entry_point_itself_stops_in_one_line_before_ray_starts(name, tmp_path):
    command = [sys.executable, "-m", legacy.ENTRY_POINTS[name], "--config-path", str(RECIPES)]
    command += ["--config-name", f"legacy/{name}", "verl_ext.context.manager=fold", f"hydra.run.dir={tmp_path}"]
    environment = os.environ | {"VERL_PLATFORM": "cpu"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1, done.stderr[-2000:]
    assert f"has no effect in {legacy.ENTRY_POINTS[name]}; use the recipe {legacy.INSTEAD[name]}" in errors[0]
    assert "ray init" not in done.stdout and "Traceback" not in done.stderr
