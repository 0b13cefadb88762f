"""The GRPO recipe through ``main_ppo`` on a CPU: what one run must show, in numbers."""

from __future__ import annotations

import asyncio
import json

import pytest
import torch

from tests.e2e.conftest import LEFT_OUT, PROMPTS, SESSIONS, Run, last_words


def rows(run: Run):
    return [(step, row) for step, sessions in sorted(run.sessions.items()) for row in sessions]


def test_a_dead_agent_loop_worker_ends_the_run_with_one_line(run):
    line = last_words(run.logs[0])
    assert line.startswith("error: agent-loop worker died (AgentLoopWorker")
    assert line.endswith(f"the same command goes on from step 2 in {run.folder}/checkpoints/global_step_2")


def test_the_same_command_goes_on_from_the_checkpoint_and_takes_the_same_number_of_steps(run):
    assert "Resuming from" not in run.logs[0] and "setting global step to 2" in run.logs[1]
    assert sorted(step for step in run.metrics if step > 0) == [1, 2, 3, 4]
    assert (run.folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "4"


def test_log_probs_of_sampler_and_trainer_agree(run):
    for step, metrics in run.metrics.items():
        assert metrics["exactness/log_prob_gap_max"] < 1e-4, f"step {step}"
        assert metrics["exactness/log_prob_gap_mean"] <= metrics["exactness/log_prob_gap_max"]
    worst = max(
        abs(sampler - trainer)
        for _, row in rows(run)
        for sampler, trainer, bit in zip(
            row["rollout_log_probs"], row["old_log_probs"], row["response_mask"], strict=True
        )
        if bit
    )
    assert 0 < worst < 1e-4


def test_weights_changed_and_reached_vllm(run):
    """The trainer's weights moved; the sampler's log-probs agree with the *new* ones, and not with the old ones."""
    from transformers import AutoModelForCausalLM

    before = AutoModelForCausalLM.from_pretrained(run.model).float().eval()
    shard = next((run.folder / "checkpoints" / "global_step_4" / "actor").glob("model_world_size_1_rank_0.pt"))
    state = torch.load(shard, weights_only=False)
    state = {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in state.items()}
    moved = max((state[name] - value).abs().max().item() for name, value in before.named_parameters() if name in state)
    assert moved > 1e-4

    gaps = []
    for row in run.sessions[4]:
        ids = torch.tensor([row["prompts"] + row["responses"]])
        with torch.no_grad():
            log_probs = before(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        old = log_probs[len(row["prompts"]) - 1 :]
        mask = torch.tensor(row["response_mask"]).bool()
        gaps.append((old - torch.tensor(row["rollout_log_probs"]))[mask].abs().max().item())
    assert max(gaps) > 1e-2, "step 4 was sampled from the weights that training started with"


def test_rows_are_what_the_sampler_saw_and_masks_cover_policy_tokens_only(run):
    from transformers import AutoTokenizer

    from verl_ext.agent.session import ids_digest

    end = AutoTokenizer.from_pretrained(run.model).eos_token_id
    for _, row in rows(run):
        ids = row["prompts"] + row["responses"]
        covered = set()
        for turn, digest in zip(row["session"]["turns"], row["session"]["sampled"], strict=True):
            assert ids_digest(ids[: len(row["prompts"]) + turn["end"]]) == digest
            assert row["responses"][turn["end"] - 1] == end or turn is row["session"]["turns"][-1]
            covered.update(range(turn["start"], turn["end"]))
        assert covered == {i for i, bit in enumerate(row["response_mask"]) if bit}


def test_every_session_has_a_row_with_the_same_fields(run):
    for step, sessions in run.sessions.items():
        assert len(sessions) == PROMPTS * SESSIONS - run.metrics[step]["session/left_out"]
        assert len({row["key"] for row in sessions}) == len(sessions)
        fields = {tuple(sorted(row["reward_extra_info"])) for row in sessions}
        assert len(fields) == 1


def test_rewards_equal_an_offline_regrade(run):
    from verl_ext.gym.tasks import load_tasks
    from verl_ext.reward.manager import grade_hidden
    from verl_ext.sandbox import open_sandbox

    tasks = load_tasks(run.tasks)

    async def regrade() -> list[float]:
        sandbox = await open_sandbox()
        try:
            verdicts = [
                await grade_hidden(sandbox, tasks[row["task_id"]], row["final_sources"]) for _, row in rows(run)
            ]
        finally:
            await sandbox.aclose()
        return [float(verdict.passed) for verdict in verdicts]

    rewards = [row["score"] for _, row in rows(run)]
    assert asyncio.run(regrade()) == rewards
    assert 0 < sum(rewards) < len(rewards), "all alike: nothing to learn from, nothing to check"


def test_advantages_are_grpo_of_the_rewards(run):
    for sessions in run.sessions.values():
        groups: dict[str, list[dict]] = {}
        for row in sessions:
            groups.setdefault(row["key"].split("_")[0], []).append(row)
        for group in groups.values():
            rewards = torch.tensor([row["score"] for row in group])
            # The only session of a group has nothing to be compared with.
            expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6) if len(group) > 1 else rewards * 0
            for row, advantage in zip(group, expected.tolist(), strict=True):
                got = [a for a, bit in zip(row["advantages"], row["response_mask"], strict=True) if bit]
                assert got == pytest.approx([advantage] * len(got), abs=1e-4)


def test_session_metrics_are_those_of_the_rows(run):
    for step, sessions in run.sessions.items():
        metrics = run.metrics[step]
        assert metrics["session/turns"] == pytest.approx(
            sum(len(row["session"]["turns"]) for row in sessions) / len(sessions)
        )
        stops = {key.rsplit("/", 1)[1]: value for key, value in metrics.items() if key.startswith("session/stop/")}
        assert sum(stops.values()) == pytest.approx(1.0)
        assert stops["submitted"] == pytest.approx(
            sum(row["session"]["stop"] == "submitted" for row in sessions) / len(sessions)
        )
        assert metrics["critic/score/mean"] == pytest.approx(sum(row["score"] for row in sessions) / len(sessions))


def test_sandbox_that_dies_costs_its_sessions_only_and_is_reported(run):
    left_out = {step: metrics["session/left_out"] for step, metrics in run.metrics.items() if step > 0}
    assert left_out[1] == left_out[2] == left_out[3] == 0
    assert 1 <= left_out[4] < PROMPTS * SESSIONS
    assert run.logs[1].encode().count(LEFT_OUT) >= left_out[4]
    # The others of its group are trained on: by their rewards alone, as test_advantages_... checks.
    assert len({row["key"].split("_")[0] for row in run.sessions[4]}) >= PROMPTS - 1


def test_validation_reports_pass_at_1_by_split(run):
    assert 0 <= run.metrics[4]["val-core/bugfix/val/acc/mean@1"] <= 1
    dump = [json.loads(line) for line in (run.folder / "validation" / "4.jsonl").read_text().splitlines()]
    assert len(dump) == 12
    assert run.metrics[4]["val-core/bugfix/val/acc/mean@1"] == pytest.approx(sum(r["acc"] for r in dump) / len(dump))
