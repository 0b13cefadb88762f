"""Bad input is refused in one line before anything starts."""

import sys

import pytest
from omegaconf import OmegaConf

from verl_ext.config import Config, SandboxConfig, parse, validate_or_exit
from verl_ext.types import BadInput


def config(**ours):
    return OmegaConf.create({"verl_ext": ours})


def test_defaults_and_overrides():
    assert parse(OmegaConf.create({})) == Config()
    parsed = parse(config(truncated="mask", sandbox={"workers": 3}))
    assert parsed.truncated == "mask" and parsed.sandbox == SandboxConfig(workers=3)
    assert parse(config(tool_delay=0.5)).tool_delay == "0.5"  # a number, as the error for other texts allows


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        ({"toools": "ops"}, "verl_ext.toools is not a setting; known are: tools"),
        ({"tools": "vim"}, "verl_ext.tools='vim' is not one of ops, "),
        ({"truncated": "drop"}, "verl_ext.truncated='drop' is not one of mask, zero, score"),
        ({"wall_clock_s": 0}, "verl_ext.wall_clock_s=0 must be greater than 0"),
        ({"temperature_factor": 0.0}, "verl_ext.temperature_factor=0.0 must be greater than 0"),
        ({"tool_delay": "pareto:1:1"}, "verl_ext.tool_delay: 'pareto:1:1' has no mean"),
        ({"max_turn_tokens": -1}, "verl_ext.max_turn_tokens=-1 must not be negative"),
        ({"max_invalid_calls": "three"}, "verl_ext.max_invalid_calls='three' must be int"),
        ({"sandbox": {"backend": "docker"}}, "verl_ext.sandbox.backend='docker' is not one of local"),
        ({"sandbox": {"jail": 1}}, "verl_ext.sandbox.jail is not a setting"),
        ({"sandbox": {"backend": "fusion"}}, "backend=fusion needs endpoints"),
        ({"sandbox": {"endpoints": ["http://x/run_code"]}}, "and the others take none"),
        ({"sandbox": {"image": "python:3.11"}}, "these are for backend=swerex"),
        ({"sandbox": {"deployment": "local"}}, "these are for backend=swerex"),
        ({"sandbox": {"backend": "swerex"}}, "it needs an image"),
        ({"sandbox": {"backend": "swerex", "image": "i", "isolation": "none"}}, "leave isolation=auto"),
        ({"sandbox": {"backend": "swerex", "deployment": "local"}}, "set isolation=none for code you trust"),
        ({"sandbox": {"backend": "swerex", "deployment": "modal"}}, "is not one of docker, local"),
        ({"sandbox": {"backend": "fusion", "endpoints": "http://x/run_code"}}, "must be a list of texts"),
        ({"truncated_in_baseline": False}, "needs verl_ext.truncated=mask"),
    ],
)
def test_one_line_names_key_value_and_what_is_allowed(ours, says):
    with pytest.raises(BadInput) as error:
        parse(config(**ours))
    assert says in str(error.value) and "\n" not in str(error.value)


def recipe(**changes):
    """The parts of a recipe that validation reads, valid but for files that do not exist."""
    base = OmegaConf.create(
        {
            "verl_ext": {},
            "trainer": {
                "use_v1": True,
                "device": "cpu",
                "v1": {"trainer_mode": "bugfix_sync", "separate_async": {"parameter_sync_step": 4}},
            },
            "reward": {"reward_manager": {"name": "verifier"}},
            "algorithm": {"adv_estimator": "grpo"},
            "data": {
                "train_files": "nowhere/train.parquet",
                "val_files": [],
                "train_batch_size": 16,
                "max_prompt_length": 384,
                "max_response_length": 256,
            },
            "actor_rollout_ref": {
                "model": {"path": "nowhere/model"},
                "actor": {
                    "calculate_entropy": False,
                    "entropy_coeff": 0.0,
                    "strategy": "fsdp2",
                    "loss_agg_mode": "token-mean",
                    "shuffle": False,
                    "ppo_epochs": 1,
                    "ppo_mini_batch_size": 4,
                    "policy_loss": {"loss_mode": "vanilla"},
                },
                "rollout": {
                    "n": 8,
                    "nnodes": 1,
                    "n_gpus_per_node": 1,
                    "checkpoint_engine": {"backend": "naive"},
                    "calculate_log_probs": True,
                    "max_model_len": None,
                    "agent": {"default_agent_loop": "bugfix"},
                    "multi_turn": {"max_assistant_turns": 6},
                },
            },
        }
    )
    for key, value in changes.items():
        OmegaConf.update(base, key.replace("__", "."), value, force_add=True)
    return base


GIGPO = {"algorithm__adv_estimator": "gigpo"}
BYPASS_LOSS = {"actor_rollout_ref__actor__policy_loss__loss_mode": "bypass_mode"}
SEPARATE = {
    "trainer__v1__trainer_mode": "bugfix_separate_async",
    "actor_rollout_ref__rollout__checkpoint_engine__backend": "nccl",
}


def correction(**settings):
    return {"algorithm__rollout_correction": {"bypass_mode": False, **settings}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"trainer__use_v1": False}, "trainer.use_v1=false"),
        ({"trainer__v1__trainer_mode": "sync"}, "has no session metrics; set it to bugfix_sync or bugfix_colocate"),
        ({"reward__reward_manager__name": "naive"}, "set reward.reward_manager.name=verifier"),
        ({"actor_rollout_ref__rollout__n": 1}, "use 2 or more"),
        ({"actor_rollout_ref__rollout__calculate_log_probs": False}, "set it to true"),
        ({"trainer__v1__trainer_mode": "bugfix_separate_async"}, "checkpoint_engine.backend=nccl, or gloo on CPU"),
        (SEPARATE | {"actor_rollout_ref__rollout__nnodes": 0}, "rollout.nnodes=0: bugfix_separate_async has a rollout"),
        (
            SEPARATE | {"trainer__v1__sampler": {"max_off_policy_threshold": 1, "max_off_policy_strategy": "wait"}},
            "batches ahead span 2 versions, and would be trained on all the same; set the threshold to 2 or more",
        ),
        (SEPARATE | {"data__train_batch_size": 12}, "data.train_batch_size=12 must be trainer.v1.separate_async.param"),
        (GIGPO | {"algorithm__credit": 5}, "algorithm.credit=5 must hold settings"),
        ({"verl_ext": 5}, "verl_ext=5 must hold settings; known are: tools"),
        ({"verl_ext": {"entropy": None}}, "verl_ext.entropy=None must hold settings; known are: where"),
        ({"verl_ext": {"sandbox": "x"}}, "verl_ext.sandbox='x' must hold settings"),
        (
            {"verl_ext": {"entropy": {"where": "uniform", "coeff": 0.1}}},
            "set actor_rollout_ref.actor.calculate_entropy",
        ),
        ({"algorithm__adv_estimator": "rloo", "actor_rollout_ref__rollout__n": 1}, "rloo compares the sessions of a"),
        (correction(rollout_is="foo"), "rollout_correction.rollout_is='foo' must be null, token or sequence"),
        (correction(rollout_rs="token_k1,foo", rollout_rs_threshold=1.0), "rollout_rs='foo' is not one of seq_max_k2"),
        (correction(rollout_rs="token_k1"), "rollout_rs=token_k1 needs algorithm.rollout_correction.rollout_rs_thr"),
        (
            correction(rollout_is="token", rollout_is_threshold=None),
            "rollout_is=token needs algorithm.rollout_correctio",
        ),
        (
            correction(rollout_is="token", rollout_is_threshold="5_0.5"),
            "rollout_is_threshold='5_0.5': rollout_is_thresh",
        ),
        (
            correction(rollout_is="token", rollout_is_threshold=-1),
            "rollout_is_threshold=-1: rollout_is_threshold upper",
        ),
        (
            correction(rollout_rs="seq_sum_k1", rollout_rs_threshold="1,2"),
            "rollout_rs_threshold='1,2': rollout_rs_thres",
        ),
        (
            correction(rollout_rs_threshold=1.0),
            "rollout_rs_threshold=1.0 needs algorithm.rollout_correction.rollout_rs",
        ),
        (
            correction(rollout_is_batch_normalize=True),
            "rollout_is_batch_normalize=true needs algorithm.rollout_correct",
        ),
        (correction(loss_type="reinforce"), "loss_type=reinforce is read with bypass_mode=true only; remove it"),
        (
            correction(rollout_is="token") | {"actor_rollout_ref__rollout__calculate_log_probs": False},
            "corrects by the sampler's log-probs, without which verl skips it",
        ),
        (
            correction(bypass_mode=True, rollout_is="token") | BYPASS_LOSS,
            "rollout_is=token with bypass_mode=true and loss_type=ppo_clip: that loss corrects by its own ratio",
        ),
        (correction(bypass_mode=True), "bypass_mode=True with actor.policy_loss.loss_mode=vanilla: verl ignores"),
        (correction() | BYPASS_LOSS, "bypass_mode=False with actor.policy_loss.loss_mode=bypass_mode: verl ignores"),
        (correction(bypass_mode=True) | BYPASS_LOSS, "+actor_rollout_ref.actor.policy_loss.rollout_correction=$"),
        (
            correction(bypass_mode=True, rollout_rs="token_k1", rollout_rs_threshold=1.0)
            | BYPASS_LOSS
            | {"actor_rollout_ref__actor__policy_loss__rollout_correction": {"bypass_mode": True}}
            | {"actor_rollout_ref__actor__calculate_entropy": True}
            | {"verl_ext": {"entropy": {"where": "uniform", "coeff": 0.1}}},
            "rejects tokens inside verl's loss, where the entropy bonus cannot see it",
        ),
        ({"algorithm__credit": {"gamma": 0.9}}, "algorithm.adv_estimator=grpo does not read it"),
        (
            GIGPO | {"algorithm__credit": {"gama": 0.9}},
            "algorithm.credit.gama is not a setting of gigpo; known are: gamma",
        ),
        (GIGPO | {"algorithm__credit": {"gamma": 1.5}}, "algorithm.credit.gamma=1.5: must be in (0, 1]"),
        (GIGPO | {"algorithm__credit": {"gamma": "high"}}, "algorithm.credit.gamma='high': must be in (0, 1]"),
        (
            GIGPO | {"algorithm__credit": {"step_weight": -1}},
            "algorithm.credit.step_weight=-1: must be a finite number",
        ),
        (
            GIGPO | {"algorithm__credit": {"step_norm": "max"}},
            "algorithm.credit.step_norm='max': must be mean or mean_std",
        ),
        (GIGPO | {"algorithm__lam": 0.9}, "algorithm.lam=0.9 is over tokens and not read by gigpo"),
        (GIGPO | {"algorithm__gamma": 0.9}, "set algorithm.credit.gamma, which is over turns"),
        (GIGPO | {"algorithm__norm_adv_by_std_in_grpo": False}, "set algorithm.credit.episode_norm"),
        (GIGPO | {"actor_rollout_ref__rollout__n": 1}, "gigpo compares the sessions of a group; use 2 or more"),
        (
            GIGPO | {"trainer__v1__trainer_mode": "sync"},
            "has no turns for algorithm.adv_estimator=gigpo; set it to bugfix",
        ),
        ({"algorithm__adv_estimator": "potential", "algorithm__credit": {"step_weight": 1.0}}, "setting of potential"),
        ({"trainer__device": "cuda"}, "for a CPU run use both"),
        ({}, "nowhere/model holds no config.json; run: verl-ext tiny build"),
    ],
)
def test_recipe_is_refused_with_status_2(changes, says, capsys, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    with pytest.raises(SystemExit) as stop:
        validate_or_exit(recipe(**changes))
    line = capsys.readouterr().err
    assert stop.value.code == 2 and line.startswith("error: ") and says in line and line.count("\n") == 1


def test_missing_data_names_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit):
        validate_or_exit(recipe(actor_rollout_ref__model__path=str(tmp_path)))
    assert "nowhere/train.parquet does not exist; run: verl-ext tasks build --out" in capsys.readouterr().err


def test_what_long_tasks_miss_is_built_with_long(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    for says in ("run: verl-ext tiny build --long", "run: verl-ext tasks build --long --out"):
        config = recipe(actor_rollout_ref__model__path=str(tmp_path))
        config.verl_ext.tools = "ops_files"
        with pytest.raises(SystemExit):
            validate_or_exit(config)
        assert says in capsys.readouterr().err
        (tmp_path / "config.json").write_text("{}")


def test_an_estimator_of_ours_needs_a_trainer_of_ours_with_any_agent_loop(capsys):
    config = recipe(
        trainer__v1__trainer_mode="sync", actor_rollout_ref__rollout__agent__default_agent_loop="tool_agent"
    )
    del config["verl_ext"]
    validate_or_exit(config)  # verl's own estimator: not our business
    config.algorithm.adv_estimator = "potential"
    with pytest.raises(SystemExit):
        validate_or_exit(config)
    assert "no turns for algorithm.adv_estimator=potential; set it to bugfix_sync" in capsys.readouterr().err
    config.trainer.v1.trainer_mode = "bugfix_sync"
    validate_or_exit(config)


def test_other_recipes_pass_untouched():
    validate_or_exit(OmegaConf.create({"trainer": {"use_v1": False}}))


def test_tests_that_a_policy_can_fool_are_refused_unless_asked_for(tmp_path, capsys, monkeypatch):
    from dataclasses import replace

    from tests.attacks.suite import PACKAGE
    from verl_ext.gym.export import write_parquet
    from verl_ext.types import Task

    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    (tmp_path / "config.json").write_text("{}")
    task = Task(
        task_id="shop",
        sources=PACKAGE.honest,
        editable=(PACKAGE.editable,),
        issue="sums",
        public=PACKAGE.tests,
        hidden=replace(PACKAGE.tests, shared=True),
        bug_type="wrong_return",
        gold={PACKAGE.editable: PACKAGE.honest[PACKAGE.editable]},
        split="train",
        provenance={},
    )
    write_parquet(tmp_path / "train.parquet", [task], "code")
    files = {"data__train_files": str(tmp_path / "train.parquet"), "data__val_files": []}
    with pytest.raises(SystemExit):
        validate_or_exit(recipe(actor_rollout_ref__model__path=str(tmp_path), verl_ext={"tools": "code"}, **files))
    assert "holds task shop, whose tests run in the solution's own process" in capsys.readouterr().err
    allowed = {"tools": "code", "sandbox": {"shared": True, "isolation": "none"}}
    validate_or_exit(recipe(actor_rollout_ref__model__path=str(tmp_path), verl_ext=allowed, **files))


def test_a_sandbox_where_code_finds_this_package_is_refused(tmp_path, capsys, monkeypatch):
    """Installed below the interpreter's own prefix, it lies open in every jail, with the repaired functions in it."""
    from pathlib import Path

    from tests.gym.test_env import TASK
    from verl_ext.gym import leaks
    from verl_ext.gym.export import write_parquet

    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    (tmp_path / "config.json").write_text("{}")
    write_parquet(tmp_path / "train.parquet", [TASK], "ops")
    files = {"data__train_files": str(tmp_path / "train.parquet"), "data__val_files": []}
    config = recipe(actor_rollout_ref__model__path=str(tmp_path), **files)
    validate_or_exit(config)
    monkeypatch.setattr(leaks, "PACKAGE", Path(sys.base_prefix, "lib"))
    with pytest.raises(SystemExit):
        validate_or_exit(config)
    line = capsys.readouterr().err
    assert "a policy's code could look up solutions: code can read what it must not" in line and line.count("\n") == 1
