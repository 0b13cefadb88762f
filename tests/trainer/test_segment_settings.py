"""Runs that cannot work with sessions of several rows are refused in one line, with what to set instead."""

import pytest

pytest.importorskip("verl")
from tests.objective.test_settings import run
from verl_ext.agent.settings import ChargesConfig, ContextConfig
from verl_ext.objective.settings import WEIGHABLE
from verl_ext.trainer.settings import OVER_SESSIONS, check_segments
from verl_ext.types import BadInput

GRPO = "algorithm.adv_estimator=grpo"
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode="
ROW = "set verl_ext.context.segment_weighting=row"


@pytest.mark.parametrize(
    ("settings", "overrides", "says"),
    [
        (
            {"manager": "fold"},
            ["algorithm.adv_estimator=rloo"],
            "rloo takes for a session; use one of grpo, gigpo, pot",
        ),
        ({"charges": ChargesConfig(failed_call=0.1)}, ["algorithm.adv_estimator=rloo"], "rloo does not read; use one"),
        ({}, ["algorithm.adv_estimator=gae"], f"a critic (algorithm.adv_estimator=gae); {ROW}"),
        (
            {},
            [GRPO, "critic.enable=true"],
            f"does not weigh the loss of a critic (algorithm.adv_estimator=grpo); {ROW}",
        ),
        ({}, [GRPO, "distillation.enabled=true"], f"the loss that distillation.enabled=true needs; {ROW}"),
        ({}, [GRPO, LOSS + "gspo"], f"loss_mode=gspo does not allow; {ROW}, or loss_mode to one of cispo, clip_cov"),
        ({}, [GRPO, LOSS + "bypass_mode"], f"loss_mode=bypass_mode does not allow; {ROW}"),
        ({}, [GRPO, LOSS + "somebodys_own"], f"loss_mode=somebodys_own does not allow; {ROW}"),
        ({}, [GRPO, "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm"], "set loss_scale_factor"),
    ],
)
def test_refused(settings, overrides, says):
    with pytest.raises(BadInput) as error:
        check_segments(ContextConfig(**settings), run(*overrides))
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "overrides"),
    [
        *(({"manager": "fold"}, [f"algorithm.adv_estimator={name}"]) for name in OVER_SESSIONS),
        *(({}, [GRPO, LOSS + name]) for name in sorted(WEIGHABLE)),
        ({"segment_weighting": "row"}, ["algorithm.adv_estimator=gae"]),
        ({"segment_weighting": "row", "manager": "note"}, [GRPO, LOSS + "bypass_mode"]),
        ({"segment_weighting": "row"}, [GRPO, "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm"]),
        ({}, ["algorithm.adv_estimator=rloo"]),  # one row a session is what it takes it for
        ({}, [GRPO, "actor_rollout_ref.actor.shuffle=true", "actor_rollout_ref.actor.ppo_epochs=2"]),
    ],
)
def test_let_through(settings, overrides):
    check_segments(ContextConfig(**settings), run(*overrides))
