"""Settings of the entropy bonus: refused in one line where out of range, or where verl's side cannot work with them."""

import functools

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from verl_ext.config import parse
from verl_ext.demo.plan import compose_recipe
from verl_ext.objective.settings import EntropyConfig, check
from verl_ext.types import BadInput

ACTOR = "actor_rollout_ref.actor."
AFTER = {"where": "after_observation", "coeff": 0.1}


@functools.cache
def verl_config(*overrides):
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", list(overrides))


def run(*overrides):
    return verl_config(ACTOR + "calculate_entropy=true", *overrides)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"where": "everywhere"}, "verl_ext.entropy.where='everywhere' is not one of none, after_observation, uniform"),
        ({"match": "row"}, "verl_ext.entropy.match='row' is not one of total, none"),
        ({"coeff": -0.1}, "verl_ext.entropy.coeff=-0.1 must be a finite number, 0 or more"),
        ({"coeff": float("nan")}, "verl_ext.entropy.coeff=nan must be"),
        ({"end_coeff": -1.0, "decay_steps": 2}, "verl_ext.entropy.end_coeff=-1.0 must be"),
        ({"tokens": 0}, "verl_ext.entropy.tokens=0 must be 1 or more"),
        ({"decay_steps": -1}, "verl_ext.entropy.decay_steps=-1 must be 0 (constant) or more"),
        ({"end_coeff": 0.1}, "verl_ext.entropy.end_coeff=0.1 needs decay_steps"),
    ],
)
def test_out_of_range(settings, says):
    with pytest.raises(BadInput) as error:
        check(EntropyConfig(**settings), run())
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"coeff": 0.1}, "where=none ignores coeff=0.1; set where to after_observation or uniform, or coeff=0.0"),
        ({"tokens": 2}, "ignores tokens=2; set where to after_observation or uniform, or tokens=10"),
        ({"first_turn": True}, "ignores first_turn=True;"),
        ({"match": "none"}, "ignores match=none;"),
        ({"decay_steps": 5, "end_coeff": 0.2}, "ignores decay_steps=5, end_coeff=0.2;"),
        ({"where": "uniform"}, "where=uniform with coeff=0 and end_coeff=0 is no bonus; set coeff, or where=none"),
        ({"where": "after_observation", "decay_steps": 5}, "where=after_observation with coeff=0 and end_coeff=0"),
    ],
)
def test_what_would_have_no_effect(settings, says):
    with pytest.raises(BadInput) as error:
        check(EntropyConfig(**settings), run())
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "overrides", "where"),
    [
        ("bugfix_grpo", [], "none"),  # writes every key, at its default
        ("bugfix_entropy", [], "after_observation"),
        # The documented comparison; the recipe's tokens and match stay where they are.
        ("bugfix_entropy", ["verl_ext.entropy.where=uniform"], "uniform"),
        ("bugfix_entropy", ["verl_ext.entropy.where=uniform", "verl_ext.entropy.first_turn=true"], "uniform"),
        ("bugfix_entropy", ["verl_ext.entropy.where=none"], None),
        (
            "bugfix_entropy",
            ["verl_ext.entropy.where=none", "verl_ext.entropy.coeff=0", "verl_ext.entropy.tokens=10"],
            "none",
        ),
    ],
)
def test_recipes_and_what_their_documentation_overrides(recipe, overrides, where):
    config = compose_recipe(recipe, *overrides)
    settings = EntropyConfig(**OmegaConf.to_object(config.verl_ext.entropy))
    if where is None:
        with pytest.raises(BadInput, match=r"ignores coeff=0\.01, tokens=2; .* or coeff=0\.0, tokens=10$"):
            check(settings, config)
        return
    check(settings, config)
    assert settings.where == where and settings == parse(config).entropy


@pytest.mark.parametrize(
    ("settings", "overrides", "says"),
    [
        (AFTER, ["calculate_entropy=false"], "set actor_rollout_ref.actor.calculate_entropy=true"),
        ({**AFTER, "where": "uniform"}, ["entropy_coeff=0.01"], "are one bonus twice; set entropy_coeff=0"),
        (AFTER, ["loss_agg_mode=seq-mean-token-sum-norm"], "set loss_scale_factor"),
    ],
)
def test_combinations_that_cannot_work(settings, overrides, says):
    with pytest.raises(BadInput) as error:
        check(EntropyConfig(**settings), run(*(ACTOR + override for override in overrides)))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_distillation_has_a_loss_of_its_own():
    with pytest.raises(BadInput, match=r"set distillation\.enabled=false"):
        check(EntropyConfig(**AFTER), run("distillation.enabled=true"))


def test_chunked_entropy_has_no_gradient_in_megatron():
    chunked = ACTOR + "entropy_from_logits_with_chunking=true"
    with pytest.raises(BadInput, match="chunking=true has no gradient"):
        check(EntropyConfig(**AFTER), run("model_engine=megatron", chunked))
    check(EntropyConfig(**AFTER), run("model_engine=megatron"))
    check(EntropyConfig(**AFTER), run(chunked))


@pytest.mark.parametrize(
    ("settings", "overrides"),
    [
        (AFTER, []),
        (AFTER, ["calculate_entropy=false", "entropy_coeff=0.01"]),  # verl computes it for either
        (AFTER, ["loss_agg_mode=seq-mean-token-sum-norm", "loss_scale_factor=100"]),
        (AFTER, ["shuffle=true", "ppo_epochs=2"]),
        ({**AFTER, "coeff": 0.0, "decay_steps": 5, "end_coeff": 0.1}, []),  # a bonus that sets in
        ({"where": "none"}, ["calculate_entropy=false"]),
    ],
)
def test_combinations_that_work(settings, overrides):
    check(EntropyConfig(**settings), run(*(ACTOR + override for override in overrides)))
