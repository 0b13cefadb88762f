"""The recipes for verl's older asynchronous entry points, each trained on a CPU for a few steps."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Run
from verl_ext.legacy import ENTRY_POINTS

COMMON = ("verl_ext.session_dir=null", "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=1")
OWN = {
    "one_step_off": ("trainer.total_training_steps=3",),
    # Eight prompts a set of weights, two sets.
    "fully_async": (
        "data.train_batch_size=0",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "rollout.total_rollout_steps=16",
    ),
}


@pytest.fixture(scope="module", params=ENTRY_POINTS)
def run(request, whole_run) -> Run:
    name = request.param
    found = whole_run(f"legacy_{name}", f"legacy/{name}", *COMMON, *OWN[name], module=ENTRY_POINTS[name])
    found.name = name
    return found


def test_it_trains(run):
    print(run.name, {step: sorted(metrics) for step, metrics in run.metrics.items()})
    steps = [metrics for metrics in run.metrics.values() if "actor/grad_norm" in metrics]
    assert len(steps) >= 2 and all(metrics["actor/grad_norm"] > 0 for metrics in steps)
