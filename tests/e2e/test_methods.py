"""A first look at the methods: three seeds of each, in `make test-long`; the table is in docs/results.md.

Takes about three and a half hours on two cores. Finished runs are not repeated, and an interrupted one goes on from its
checkpoint, until code or recipes change. The runs of a seed start from the same model, so its evaluation before
training is made once.
"""

from __future__ import annotations

import json
import shutil

import pytest

from tests.e2e.conftest import ROOT, cli

SEEDS = (0, 1, 2)
STEPS = 30
METHODS = {
    "grpo": ("bugfix_grpo",),
    "gigpo": ("bugfix_gigpo",),
    "potential": ("bugfix_potential",),
    "entropy": ("bugfix_entropy",),
    "uniform": ("bugfix_entropy", "verl_ext.entropy.where=uniform"),
}


@pytest.mark.long
def test_every_method_trains_and_is_reported():
    folder = ROOT / "runs" / "methods"
    outs = []
    for seed in SEEDS:
        for method, (recipe, *overrides) in METHODS.items():
            out = folder / f"{method}-{seed}"
            first = folder / f"grpo-{seed}" / "train" / "validation" / "0.jsonl"
            target = out / "train" / "validation" / "0.jsonl"
            if first.is_file() and not (out / "train").exists():
                target.parent.mkdir(parents=True)
                shutil.copyfile(first, target)
            argv = ["demo", "--recipe", recipe, "--seed", str(seed), "--steps", str(STEPS), "--sessions", "400"]
            cli(*argv, "--out", str(out), *overrides, timeout=3600)
            outs.append(out)
    cli("report", *map(str, outs), "--out", str(folder / "table.md"))
    reports = [json.loads((out / "report.json").read_text()) for out in outs]
    assert all(found["splits"]["val"]["sessions"] >= 400 for found in reports)
    assert len({found["code"] for found in reports}) == 1, "the code changed in between; delete runs/methods"
    assert len({json.dumps(found["training"]) for found in reports}) == len(reports), "two runs are the same run"
