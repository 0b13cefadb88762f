"""The ``verifier`` reward manager: hidden tests of a session's final sources.

Runs in verl's reward workers, away from the agent loop: the hidden tests and the expected values never share a process
with policy code (the sandbox keeps them on its trusted side). An infrastructure failure is retried once and then
raised: verl drops that session's row, so it never becomes reward 0 and never enters its group's statistics.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.experimental.reward_loop.reward_manager.registry import register

from verl_ext.agent.sandboxes import shared_sandbox
from verl_ext.config import Config, parse
from verl_ext.gym.env import Verdicts, submission
from verl_ext.gym.tasks import task_from_json
from verl_ext.sandbox import Sandbox
from verl_ext.types import InfrastructureError, StopReason, Task, Verdict

logger = logging.getLogger(__name__)


hidden_verdicts = Verdicts(hidden=True)
"""Shared by all sessions of this process: those of a group often end in the same sources."""


async def grade_hidden(
    sandbox: Sandbox, task: Task, final: dict[str, str], retries: int = 1, verdicts: Verdicts = hidden_verdicts
) -> Verdict:
    """Grade the editable files of ``final`` over the pristine task; infrastructure failures are retried."""
    sources = submission(task, final)
    for attempt in range(retries + 1):
        try:
            return (await verdicts.grade(task, sources, sandbox))[0]
        except InfrastructureError as error:
            logger.error("grading task %s failed (try %d of %d): %s", task.task_id, attempt + 1, retries + 1, error)
            if attempt == retries:
                raise
    raise AssertionError("unreachable")


def score(verdict: Verdict, stop: StopReason, config: Config) -> float:
    """Reward of a finished session: 1.0 when every hidden case passes, else 0.0; ``truncated: zero`` overrules."""
    if stop.truncated and config.truncated == "zero":
        return 0.0
    return float(verdict.passed)


@register("verifier")
class VerifierRewardManager(RewardManagerBase):
    """Rewards the last row of a session by its hidden tests; see the module docstring."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any):
        super().__init__(config, tokenizer, compute_score)
        self.ours = parse(config)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Grade one session.

        Args:
            data: The session's rows; ``extra_info.task`` and the agent loop's ``tool_extra_fields`` are read.

        Returns:
            ``reward_score`` (0.0 or 1.0) and ``reward_extra_info`` with the same keys for every session.

        Raises:
            InfrastructureError: The sandbox failed twice, or grading took longer than ``verl_ext.grade_s``.
        """
        row = data[-1:][0].non_tensor_batch
        task = task_from_json(row["extra_info"]["task"])
        fields = row["tool_extra_fields"]
        stop = StopReason(fields["session"]["stop"])
        try:
            async with asyncio.timeout(self.ours.grade_s) as clock:
                sandbox = await shared_sandbox(self.ours.sandbox)
                verdict = await grade_hidden(sandbox, task, fields["final_sources"])
        except TimeoutError:
            if not clock.expired():
                raise
            raise InfrastructureError(
                f"grading task {task.task_id} took longer than verl_ext.grade_s={self.ours.grade_s:g}"
            ) from None
        totals = fields["session"]["totals"]
        return {
            "reward_score": score(verdict, stop, self.ours),
            "reward_extra_info": {
                "acc": float(verdict.passed),
                "hidden_share": verdict.share,
                "public_share": float(fields["public_share"]),
                "turns": totals["turns"],
                "invalid": totals["invalid"],
                "redundant": totals["redundant"],
                "hard_coded": float(totals["hard_coded"] > 0),
                "flags": " ".join(fields["flags"]),
                "task_id": task.task_id,
                "bug_type": task.bug_type,
                "stop": str(stop),
                "failure": verdict.failure or "",
                "grade_s": verdict.seconds,
            },
        }
