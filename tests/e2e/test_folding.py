"""The folding managers through ``main_ppo`` on a CPU, each in a run of its own: what was sampled is what is trained.

The three synchronous runs check every row; the run on ``separate_async`` those of its first step, since later ones are
sampled by older weights.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.conftest import FOLDING_BUDGET, PROMPTS, SESSIONS, Run
from verl_ext.agent.context import DROPPED
from verl_ext.credit import TurnTable, gigpo, grpo
from verl_ext.trainer.gaps import whole
from verl_ext.trainer.rescore import gaps_to, read_dump, rescore

BOUND = 1e-4
MANAGERS = ("drop_oldest", "env_summary", "note", "fold")


@pytest.fixture(params=MANAGERS)
def run(request, folding_run) -> Run:
    return folding_run(request.param)


def sessions_of(rows: list[dict]) -> dict[tuple[str, str], list[dict]]:
    """Rows by group and session, in the order of segments."""
    found = defaultdict(dict)
    for row in rows:
        group, session, segment = row["key"].rsplit("_", 2)
        found[group, session][int(segment)] = row
    for segments in found.values():
        assert sorted(segments) == list(range(len(segments)))
    return {key: [segments[i] for i in sorted(segments)] for key, segments in found.items()}


def folded(run: Run, steps: tuple[int, ...] = (1, 2)) -> int:
    """Sessions of several segments; skips where folding is up to a policy that did not."""
    found = sum(len(segments) > 1 for step in steps for segments in sessions_of(run.sessions[step]).values())
    if not found and run.manager in ("note", "fold"):
        pytest.skip("this small policy wrote neither note nor goal; tests/agent/test_segments.py has them scripted")
    return found


def checked_steps(run: Run) -> list[int]:
    return [1] if run.manager == "note" else [1, 2]


def test_sampler_and_trainer_agree_in_every_segment(run):
    for step in checked_steps(run):
        metrics = run.metrics[step]
        assert metrics["exactness/checked"] == 1.0 and metrics["exactness/over_bound"] == 0.0
        assert metrics["exactness/log_prob_gap_max"] < BOUND
        assert metrics.get("exactness/segment/1/max", 0.0) < BOUND
    assert not (run.folder / "checkpoints" / "exactness").exists()


def test_plain_transformers_agree_and_see_a_wrong_reconstruction(run):
    """The sampler of step 1 had the weights that training started from."""
    folded(run, steps=(1,))
    rows = read_dump(run.folder / "sessions" / "1.jsonl")
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(run.model, dtype="float32").eval()
    tokenizer = AutoTokenizer.from_pretrained(run.model)

    def largest(rebuild: str) -> float:
        return whole(gaps_to(rows, rescore(model, rows, rebuild=rebuild, tokenizer=tokenizer))).largest

    assert largest("as_sampled") < BOUND
    assert largest("full_history") > BOUND and largest("retokenised") > BOUND


def test_sessions_were_folded_and_each_token_is_trained_once(run):
    for step, rows in run.sessions.items():
        sessions = sessions_of(rows)
        assert len(sessions) == PROMPTS * SESSIONS
        for segments in sessions.values():
            turns = [turn for row in segments for turn in row["session"]["turns"]]
            assert [turn["index"] for turn in turns] == list(range(len(turns)))
            for row in segments:
                assert len(row["prompts"]) + len(row["responses"]) <= row["session"]["budget"] == FOLDING_BUDGET
                own = {i for turn in row["session"]["turns"] for i in range(turn["start"], turn["end"])}
                assert {i for i, bit in enumerate(row["response_mask"]) if bit} == own
        assert run.metrics[step]["segments/per_session"] == pytest.approx(len(rows) / len(sessions))
    assert folded(run) >= (8 if run.manager in ("drop_oldest", "env_summary") else 1)


@pytest.mark.parametrize(("manager", "tool"), [("note", "note"), ("fold", "branch")])
def test_the_policy_folds_by_itself_where_it_may(folding_run, manager, tool):
    run = folding_run(manager)
    folded(run)
    # The environment may have closed a branch.
    assert tool in {turn["tool"] for rows in run.sessions.values() for row in rows for turn in row["session"]["turns"]}


def test_dropped_answers_leave_their_mark(folding_run):
    run = folding_run("drop_oldest")
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    later = [row for rows in run.sessions.values() for row in rows if not row["key"].endswith("_0")]
    # Where whole turns were left out, none may be left of those that were dropped.
    assert any(DROPPED in tokenizer.decode(row["prompts"]) for row in later)


def test_advantages_are_those_of_whole_sessions(run):
    for rows in run.sessions.values():
        columns, places = [], []
        for (group, session), segments in sessions_of(rows).items():
            last = segments[-1]["session"]["turns"][-1]["index"]
            for row in segments:
                for turn in row["session"]["turns"]:
                    reward = turn["reward"] + (row["score"] if turn["index"] == last else 0.0)
                    columns.append((group, session, turn["index"], turn["anchor"], reward))
                    places.append((row, turn))
        table = TurnTable.from_columns(*zip(*columns, strict=True))
        if run.manager == "drop_oldest":
            expected = gigpo(table, gamma=0.95, episode_norm="mean_std", step_norm="mean", std_floor=1e-6)[0]
        else:
            expected = grpo(table, episode_norm="mean_std")[0]
        for (row, turn), value in zip(places, expected.tolist(), strict=True):
            assert row["advantages"][turn["start"] : turn["end"]] == pytest.approx(
                [value] * (turn["end"] - turn["start"]), abs=1e-4
            )


def test_it_trains_and_says_what_a_session_cost(run):
    for metrics in run.metrics.values():
        assert metrics["actor/grad_norm"] > 0
        assert metrics["session/context_tokens"] <= FOLDING_BUDGET
        assert metrics["process/failed_call"] == pytest.approx(0.01 * metrics["session/invalid"], abs=1e-6)


def test_separate_async_trains_on_no_turn_older_than_its_recipe_says(folding_run):
    run = folding_run("note")
    for step, rows in run.sessions.items():
        versions = [version for row in rows for turn in row["session"]["turns"] for version in turn["versions"]]
        assert min(versions) >= step - 1 - 1 and max(versions) <= step - 1
