"""Turn-level credit through ``main_ppo`` on a CPU: what reaches the tokens is what the estimator says of the turns."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import ENTROPY_COEFF, PROMPTS, Run, Training, last_words, on_tokens, turns_of
from verl_ext.credit import TurnTable, potential


@pytest.fixture(scope="module")
def gigpo_run(folding_run) -> Run:
    """Synchronous, two steps, with an entropy bonus; its sessions have several segments."""
    return folding_run("drop_oldest")


@pytest.fixture(scope="module")
def potential_run(tasks_dir, model_dir) -> Run:
    """Asynchronous on shared devices, three steps: sessions are cut short by updates and go on afterwards. Then its
    reward worker is killed.

    Tools are slow, now and then very slow: on a fast machine every session would else end before the first update.
    """
    run = Run(tasks_dir.parent / "potential", model_dir, tasks_dir)
    run.folder.mkdir()
    settings = "+algorithm.credit={gamma: 1.0, lam: 1.0, baseline: leave_one_out, invalid_penalty: 0.0}"
    overrides = ["algorithm.adv_estimator=potential", settings, "trainer.total_training_steps=50"]
    overrides += ["verl_ext.tool_delay=pareto:1.0:1.5", "verl_ext.watch_s=2.0"]
    overrides += ["trainer.save_freq=-1", "trainer.test_freq=-1"]
    training = Training(run, 1, *overrides, recipe="bugfix_colocate_async")
    training.wait_for(lambda: 3 in training.steps(), "step 3")
    training.dies_of("RewardLoopWorker")
    run.logs = [training.log.read_text(errors="replace")]
    run.read()
    # Of a fourth step, if it was taken, not everything may have been written.
    for found in (run.metrics, run.sessions):
        for step in set(found) - {1, 2, 3}:
            del found[step]
    return run


def expected(sessions: list[dict]) -> list[float]:
    groups, names, rewards, records = zip(*turns_of(sessions), strict=True)
    columns = ([record[name] for record in records] for name in ("index", "anchor"))
    potentials = [record["potential"] for record in records]
    return potential(TurnTable.from_columns(groups, names, *columns, rewards, potentials))[0].tolist()


def test_gigpo_gives_the_turns_of_a_session_their_own_advantages(gigpo_run):
    """What they are is compared in tests/e2e/test_folding.py, over all segments of a session."""
    assert sorted(gigpo_run.sessions) == [1, 2]
    for sessions in gigpo_run.sessions.values():
        on_tokens(sessions)
    rows = [row for sessions in gigpo_run.sessions.values() for row in sessions]
    several = sum(len({row["advantages"][turn["start"]] for turn in row["session"]["turns"]}) > 1 for row in rows)
    assert several > PROMPTS, "every session has one advantage: no turn-level credit to speak of"


def test_potential_reaches_the_tokens_of_each_turn_in_an_asynchronous_run(potential_run):
    assert sorted(potential_run.sessions) == [1, 2, 3]
    for sessions in potential_run.sessions.values():
        assert on_tokens(sessions) == pytest.approx(expected(sessions), abs=1e-5)
    spans = [metrics["training/off_policy/trajectory_spans/max"] for metrics in potential_run.metrics.values()]
    assert max(spans) > 1, "no session was sampled across an update"
    for step, rows in potential_run.sessions.items():
        versions = [version for row in rows for turn in row["session"]["turns"] for version in turn["versions"]]
        assert min(versions) >= step - 1 - 2 and max(versions) <= step - 1, "older than bugfix_colocate_async says"


def test_a_dead_reward_worker_ends_the_run_with_one_line(potential_run):
    line = last_words(potential_run.logs[0])
    assert line.startswith("error: reward worker died (RewardLoopWorker, pid ")
    assert line.endswith("no checkpoint was saved (trainer.save_freq=-1)")


def test_log_probs_agree_where_the_weights_did_not_move(gigpo_run, potential_run):
    for metrics in gigpo_run.metrics.values():
        assert metrics["exactness/checked"] == 1.0
    checked = [m for run in (gigpo_run, potential_run) for m in run.metrics.values() if m["exactness/checked"] > 0]
    assert len(checked) >= 3
    assert all(metrics["exactness/log_prob_gap_max"] < 1e-4 for metrics in checked)


def test_credit_and_step_groups_are_in_the_metrics(gigpo_run, potential_run):
    for run in (gigpo_run, potential_run):
        for metrics in run.metrics.values():
            assert metrics["session/groups_of_one"] == 0 and 0 <= metrics["credit/degenerate_groups"] < 1
            assert metrics["credit/variance"] > 0
            assert 0 < metrics["step_groups/contested_turns"] <= metrics["step_groups/repeated_turns"] < 1


def test_the_entropy_bonus_is_in_the_loss(gigpo_run):
    for metrics in gigpo_run.metrics.values():
        assert metrics["actor/loss"] == pytest.approx(
            metrics["actor/pg_loss"] - metrics["actor/entropy_bonus"], abs=1e-5
        )
        assert metrics["entropy/bonus/coeff"] == pytest.approx(ENTROPY_COEFF)
        # Two of the four tokens of every message but the first.
        assert 0.2 < metrics["entropy/bonus/token_share"] < 0.5
        # The weights sum to those of a uniform bonus, so it is the coefficient times a mean entropy: each session's own
        # mean counts once there, each token once in the metrics.
        after = [metrics[f"entropy/after_observation/{position}"] for position in (0, 1)]
        assert 0.8 * ENTROPY_COEFF * min(after) < metrics["actor/entropy_bonus"] < 1.25 * ENTROPY_COEFF * max(after)


def test_entropy_by_position_is_in_the_metrics_of_every_run(gigpo_run, potential_run):
    for run in (gigpo_run, potential_run):
        for metrics in run.metrics.values():
            assert metrics["entropy/all"] > 0 and metrics["entropy/first_turn/0"] > 0
