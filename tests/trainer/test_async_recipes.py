"""The asynchronous recipes compose on both kinds of hardware, pass validation, and bound ages as they say."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("verl")
from verl.trainer.ppo.v1 import get_trainer_cls

from tests.gym.test_env import TASK
from verl_ext import config as our_config
from verl_ext.config import validate
from verl_ext.demo.plan import RECIPES, compose_recipe
from verl_ext.gym.export import write_parquet
from verl_ext.trainer.settings import TRAINERS, check_correction
from verl_ext.trainer.staleness import largest_age
from verl_ext.types import BadInput

V1 = ("bugfix_one_step", "bugfix_fully_async", "bugfix_colocate_async")
LEGACY = ("legacy/one_step_off", "legacy/fully_async")
CORRECTIONS = sorted(file.stem for file in (RECIPES / "correction").glob("*.yaml"))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Overrides that name a model and tasks that exist; the sandbox is tried elsewhere."""

    async def tried(*_):
        pass

    monkeypatch.setattr(our_config, "_try_sandbox", tried)
    (tmp_path / "config.json").write_text("{}")
    write_parquet(tmp_path / "train.parquet", [TASK], "ops")
    return [
        f"actor_rollout_ref.model.path={tmp_path}",
        f"data.train_files={tmp_path}/train.parquet",
        f"data.val_files=[{tmp_path}/train.parquet]",
    ]


def on(hardware, monkeypatch):
    if hardware == "cpu":
        monkeypatch.setenv("VERL_PLATFORM", "cpu")
    else:
        monkeypatch.delenv("VERL_PLATFORM", raising=False)
    return [f"hardware={hardware}"]


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("recipe", V1 + LEGACY)
def test_recipes_pass_validation_on_both_kinds_of_hardware(recipe, hardware, files, monkeypatch):
    config = compose_recipe(recipe, *on(hardware, monkeypatch), *files)
    validate(config)
    backend = config.actor_rollout_ref.rollout.checkpoint_engine.backend
    separate = {"cpu": "gloo", "gpu": "nccl"}[hardware]
    assert backend == ("naive" if "colocate" in recipe else separate)


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("recipe", V1)
def test_the_trainer_takes_the_recipe(recipe, hardware, monkeypatch):
    config = compose_recipe(recipe, *on(hardware, monkeypatch))
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)  # verl asserts sizes and backends here
    updates = {"bugfix_one_step": 1, "bugfix_fully_async": 4, "bugfix_colocate_async": 1}[recipe]
    assert trainer.parameter_sync_step == updates


@pytest.mark.parametrize("recipe", V1)
def test_the_largest_age_is_the_one_in_the_header(recipe):
    config = compose_recipe(recipe)
    header = (RECIPES / f"{recipe}.yaml").read_text()
    stated = int(re.search(r"^# Largest age: (\d+)\.", header, re.MULTILINE)[1])
    assert largest_age(config, TRAINERS[config.trainer.v1.trainer_mode]) == stated


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_correction_sets_every_key_so_that_nothing_is_left_of_another(correction):
    config = compose_recipe("bugfix_fully_async", f"correction={correction}")
    named = re.findall(r"^    (\w+): ", (RECIPES / f"correction/{correction}.yaml").read_text(), re.MULTILINE)
    assert set(named) == set(config.algorithm.rollout_correction)
    check_correction(config, bonus=True)


FOLD = ["verl_ext.context.manager=fold"]


@pytest.mark.parametrize(
    ("recipe", "words", "says"),
    [
        ("one_step_off", FOLD, "verl_ext.context.manager=fold has no effect in verl.experimental.one_step_off"),
        ("fully_async", FOLD, "use the recipe bugfix_fully_async instead"),
        (
            "one_step_off",
            ["algorithm.adv_estimator=gigpo"],
            "adv_estimator=gigpo has no effect in verl.experimental.one",
        ),
        ("fully_async", ["verl_ext.entropy.where=uniform", "verl_ext.entropy.coeff=0.1"], "verl_ext.entropy.where=uni"),
        ("fully_async", ["verl_ext.session_dir=runs/x"], "verl_ext.session_dir=runs/x has no effect"),
        (
            "one_step_off",
            ["verl_ext.truncated=mask", "+verl_ext.truncated_in_baseline=false"],
            "verl_ext.truncated_in_baseline=false has no effect",
        ),
        (
            "one_step_off",
            ["actor_rollout_ref.hybrid_engine=true"],
            "hybrid_engine=true: verl.experimental.one_step_off",
        ),
        ("one_step_off", ["actor_rollout_ref.rollout.checkpoint_engine.backend=naive"], "backend=nccl, or gloo on CPU"),
        (
            "one_step_off",
            ["rollout.nnodes=0"],
            "rollout.nnodes=0: verl.experimental.one_step_off_policy.main_ppo has a",
        ),
        (
            "one_step_off",
            ["ray_kwargs.ray_init.num_cpus=8"],
            "num_cpus=8: verl.experimental.one_step_off_policy.main_ppo asks for 18 or more",
        ),
        # With 24 it hung: the rollout's placement group was never ready.
        ("fully_async", ["ray_kwargs.ray_init.num_cpus=24"], "fully_async_main asks for 31 or more"),
        ("fully_async", ["data.train_batch_size=16"], "data.train_batch_size=16: verl.experimental.fully_async_policy"),
        ("fully_async", ["async_training.staleness_threshold=-1"], "staleness_threshold=-1 must be 0 or more"),
        ("fully_async", ["rollout.total_rollout_steps=8"], "total_rollout_steps=8 prompts are less than one step's 16"),
    ],
)
def test_what_the_older_entry_points_cannot_do_is_refused(recipe, words, says, files, monkeypatch):
    with pytest.raises(BadInput) as error:
        validate(compose_recipe(f"legacy/{recipe}", *on("cpu", monkeypatch), *files, *words))
    assert says in str(error.value) and "\n" not in str(error.value)
