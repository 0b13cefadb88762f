"""Grading final sources: only editable files count, infrastructure is retried once, truncation is as configured."""

import asyncio

import numpy as np
import pytest
from omegaconf import OmegaConf

pytest.importorskip("verl")
from verl import DataProto

from verl_ext.config import Config
from verl_ext.gym.env import Verdicts
from verl_ext.gym.tasks import task_to_json
from verl_ext.reward.manager import VerifierRewardManager, grade_hidden, score
from verl_ext.sandbox import open_sandbox
from verl_ext.types import Case, InfrastructureError, StopReason, Task, Tests, Verdict

TASK = Task(
    task_id="double/arithmetic/0",
    sources={"solution.py": "from helper import two\n\ndef double(x):\n    return x + two\n", "helper.py": "two = 2\n"},
    editable=("solution.py",),
    issue="Twice x.",
    public=Tests(cases=(Case("double", (3,), expected=6),)),
    hidden=Tests(cases=(Case("double", (5,), expected=10), Case("double", (-1,), expected=-2))),
    bug_type="arithmetic_swap",
    gold={"solution.py": "from helper import two\n\ndef double(x):\n    return x * two\n"},
    split="train",
)


async def test_gold_passes_and_buggy_fails():
    sandbox = await open_sandbox()
    try:
        assert (await grade_hidden(sandbox, TASK, dict(TASK.gold))).passed
        assert not (await grade_hidden(sandbox, TASK, dict(TASK.sources))).passed
        # A file that the task does not let the policy edit is dropped: two = 5 would make 5 + 5 right.
        cheat = {**TASK.sources, "helper.py": "two = 5\n"}
        assert not (await grade_hidden(sandbox, TASK, cheat)).passed
    finally:
        await sandbox.aclose()


class Flaky:
    """A sandbox whose first ``failures`` grades fail for reasons of infrastructure."""

    def __init__(self, failures: int):
        self.failures, self.calls = failures, 0

    async def grade(self, sources, tests, limits=None):
        self.calls += 1
        if self.calls <= self.failures:
            raise InfrastructureError("the template died")
        return Verdict(True, (), "oracle", None, 0.0)


async def test_infrastructure_is_retried_once_then_raised():
    kept = Verdicts(hidden=True)
    sandbox = Flaky(2)
    with pytest.raises(InfrastructureError):
        await grade_hidden(sandbox, TASK, {}, verdicts=kept)
    assert sandbox.calls == 2 and len(kept) == 0
    sandbox = Flaky(1)
    assert (await grade_hidden(sandbox, TASK, {}, verdicts=kept)).passed
    assert (await grade_hidden(sandbox, TASK, {}, verdicts=kept)).passed
    assert sandbox.calls == 2, "the same sources are graded once"


@pytest.mark.parametrize(
    ("stop", "truncated", "reward"),
    [
        (StopReason.SUBMITTED, "zero", 1.0),
        (StopReason.MAX_TURNS, "zero", 1.0),
        (StopReason.RESPONSE_BUDGET, "zero", 0.0),
        (StopReason.RESPONSE_BUDGET, "score", 1.0),
        (StopReason.WALL_CLOCK, "mask", 1.0),
    ],
)
def test_truncation(stop, truncated, reward):
    passed = Verdict(True, (), "oracle", None, 0.0)
    failed = Verdict(False, (), "oracle", "wrong", 0.0)
    assert score(passed, stop, Config(truncated=truncated)) == reward
    assert score(failed, stop, Config(truncated=truncated)) == 0.0


async def test_a_grade_that_hangs_is_a_failure_of_infrastructure(monkeypatch):
    """verl waits for a reward for ever, and with it the whole step."""

    async def never(*_, **__):
        await asyncio.Event().wait()

    monkeypatch.setattr("verl_ext.reward.manager.shared_sandbox", never)
    config = OmegaConf.create({"verl_ext": {"grade_s": 0.2}})
    fields = {"session": {"stop": "submitted", "totals": {}}, "final_sources": {}}
    columns = {"extra_info": {"task": task_to_json(TASK)}, "tool_extra_fields": fields}
    data = DataProto(non_tensor_batch={name: np.array([value], dtype=object) for name, value in columns.items()})
    manager = VerifierRewardManager(config, tokenizer=None)
    with pytest.raises(InfrastructureError, match=r"double/arithmetic/0 took longer than verl_ext\.grade_s=0\.2"):
        await asyncio.wait_for(manager.run_single(data), 30)
