"""Three whole demos with different seeds, an hour on two cores: `make test-long`; outcome in docs/learning.md.

Finished ones are not repeated: they stay in ``runs/seed-K`` until code or recipe change.
"""

from __future__ import annotations

import json
from statistics import mean

import pytest

from tests.e2e.conftest import ROOT, cli

SEEDS = (0, 1, 2)


@pytest.mark.long
def test_the_recipe_learns_over_three_seeds():
    reports = []
    for seed in SEEDS:
        out = ROOT / "runs" / f"seed-{seed}"
        cli("demo", "--seed", str(seed), "--sessions", "400", "--out", str(out), timeout=3600)
        reports.append(json.loads((out / "report.json").read_text())["splits"])

    def average(split: str, when: str) -> float:
        return mean(report[split][when]["value"] for report in reports)

    assert average("val", "after") - average("val", "before") >= 0.20
    assert average("val", "after") - reports[0]["val"]["teacher"] >= 0.15
    assert all(report["heldout_functions"]["difference"]["low"] > 0 for report in reports)
