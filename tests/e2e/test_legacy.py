"""The recipes for verl's older asynchronous entry points, each trained on a CPU for a few steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.e2e.conftest import Run
from verl_ext.legacy import ENTRY_POINTS

COMMON = ("verl_ext.session_dir=null", "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=1")
OWN = {
    "one_step_off": ("trainer.total_training_steps=3",),
    # Two sets of weights, each after four updates of two prompts.
    "fully_async": (
        "data.train_batch_size=0",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "rollout.total_rollout_steps=16",
    ),
}
STEPS = {"one_step_off": [1, 2, 3], "fully_async": [1, 2]}


@pytest.fixture(scope="module")
def trained(whole_run) -> Callable[[str], Run]:
    """The run of a recipe, made when it is first asked for."""

    @cache
    def run(name: str) -> Run:
        module = ENTRY_POINTS[name]
        found = whole_run(f"legacy_{name}", f"legacy/{name}", *COMMON, *OWN[name], module=module)
        # The fully asynchronous one logs its rollout before the first step, too.
        found.metrics = {step: metrics for step, metrics in found.metrics.items() if "actor/grad_norm" in metrics}
        return found

    return run


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_it_trains_and_saves_other_weights(trained, name):
    run = trained(name)
    assert sorted(run.metrics) == STEPS[name]
    for metrics in run.metrics.values():
        assert metrics["actor/grad_norm"] > 0 and 0 <= metrics["critic/score/mean"] <= 1
        assert metrics["num_turns/mean"] > 2
    folder = run.folder / "checkpoints" / f"global_step_{STEPS[name][-1]}" / "actor"
    state = torch.load(folder / "model_world_size_1_rank_0.pt", weights_only=False)
    state = {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in state.items()}
    before = dict(AutoModelForCausalLM.from_pretrained(run.model).float().named_parameters())
    assert max((state[name] - value).abs().max().item() for name, value in before.items() if name in state) > 1e-4


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_the_first_step_is_on_policy_and_later_ones_are_not(trained, name):
    """Sampled by the weights that training began with, and trained on by others from step 2 on."""
    first, *later = (metrics["training/rollout_probs_diff_max"] for _, metrics in sorted(trained(name).metrics.items()))
    assert first < 1e-4 and min(later) > 1e-3


def test_the_fully_asynchronous_one_counts_versions(trained):
    run = trained("fully_async")
    versions = [metrics["fully_async/count/current_param_version"] for metrics in run.metrics.values()]
    assert versions == [0, 1]
    # Handed out ahead: a batch, sampled by version 0 and trained on by version 1.
    assert 0 < run.metrics[2]["fully_async/count/stale_trajectory_processed"] <= 64
    assert run.metrics[2]["fully_async/count/dropped_stale_samples"] == 0
