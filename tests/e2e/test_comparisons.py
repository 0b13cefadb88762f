"""First looks, by `make test-long`: whole demos side by side, some seeds of each; the tables are in docs/results.md.

Finished runs are not repeated, and an interrupted one goes on from its checkpoint, until code or recipes change. On two
cores a run takes twelve minutes and more, so choose: `make test-long ARGS="-k methods"`.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import Literal

import pytest

from tests.e2e.conftest import ROOT, cli


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        seeds, steps: Of every run; a step has the same number of sessions in all of them.
        sessions: Of each split in an evaluation.
        runs: Recipe and overrides by name.
        common: Overrides of all runs; ``{out}`` is the run's folder.
        one_start: What shares one evaluation before training: all the runs of a ``seed``, which evaluate alike, or the
            seeds of a ``run``, where each has its own context.
    """

    seeds: tuple[int, ...]
    steps: int
    runs: dict[str, tuple[str, ...]]
    common: tuple[str, ...] = ()
    one_start: Literal["seed", "run"] = "seed"
    sessions: int = 400


WHOLE = ("verl_ext.context.manager=none", "verl_ext.context.budget=0", "data.max_response_length=864")
CORRECTIONS = ("none", "token_tis", "sequence_mask")
COMPARISONS = {
    "methods": Comparison(
        (0, 1, 2),
        30,
        {
            "grpo": ("bugfix_grpo",),
            "gigpo": ("bugfix_gigpo",),
            "potential": ("bugfix_potential",),
            "entropy": ("bugfix_entropy",),
            "uniform": ("bugfix_entropy", "verl_ext.entropy.where=uniform"),
        },
    ),
    # A context smaller than a session (at the recipe's 448 tokens four in five fit), and the whole history as the upper
    # bound.
    "managers": Comparison(
        (0, 1),
        15,
        {
            **{
                name: ("bugfix_fold", f"verl_ext.context.manager={name}", "verl_ext.context.budget=320")
                for name in ("drop_oldest", "env_summary", "note")
            },
            "none": ("bugfix_fold", *WHOLE),
        },
        common=("verl_ext.session_dir={out}/train/sessions",),
        one_start="run",
        sessions=200,
    ),
    # Slow tools with a heavy tail, so that asynchrony matters. The synchronous runs, which take longest, are evaluated
    # half-way too: where were they when the others ended? Session dumps for `verl-ext simulate`.
    "asynchrony": Comparison(
        (0, 1),
        15,
        {
            "sync": ("bugfix_grpo", "trainer.test_freq=8"),
            "one_step": ("bugfix_one_step",),
            **{f"fully_async_{name}": ("bugfix_fully_async", f"correction={name}") for name in CORRECTIONS},
        },
        common=("verl_ext.tool_delay=pareto:1.5:2.0", "verl_ext.session_dir={out}/train/sessions"),
        sessions=200,
    ),
    # The sampler is off by a known amount.
    "mismatch": Comparison(
        (0,),
        15,
        {name: ("bugfix_fully_async", f"correction={name}") for name in CORRECTIONS},
        common=("verl_ext.temperature_factor=1.2", "verl_ext.exactness.bound=null"),
        sessions=200,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", COMPARISONS)
def test_every_run_trains_and_is_reported(name):
    compared = COMPARISONS[name]
    folder = ROOT / "runs" / name
    outs = []
    for seed in compared.seeds:
        for run, (recipe, *overrides) in compared.runs.items():
            starts = {"seed": f"{next(iter(compared.runs))}-{seed}", "run": f"{run}-{compared.seeds[0]}"}
            first = folder / starts[compared.one_start] / "train" / "validation" / "0.jsonl"
            out = folder / f"{run}-{seed}"
            target = out / "train" / "validation" / "0.jsonl"
            if first.is_file() and not (out / "train").exists():
                target.parent.mkdir(parents=True)
                shutil.copyfile(first, target)
            argv = ["demo", "--recipe", recipe, "--seed", str(seed), "--steps", str(compared.steps)]
            argv += ["--sessions", str(compared.sessions), "--out", str(out)]
            argv += [*overrides, *(override.format(out=out) for override in compared.common)]
            cli(*argv, timeout=3600)
            outs.append(out)
    cli("report", *map(str, outs), "--out", str(folder / "table.md"))
    reports = [json.loads((out / "report.json").read_text()) for out in outs]
    assert all(found["splits"]["val"]["sessions"] >= compared.sessions for found in reports)
    assert len({found["code"] for found in reports}) == 1, "the code changed in between; delete the runs"
    assert len({json.dumps(found["training"]) for found in reports}) == len(reports), "two runs are the same run"
