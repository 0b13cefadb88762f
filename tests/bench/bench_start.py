"""Time to the first step and time a step of the GRPO recipe on this machine.

Runs ``main_ppo`` for a few steps on tasks and model that were built before, without evaluation or checkpoint:

    python tests/bench/bench_start.py [--tasks runs/tasks] [--model runs/tiny] [--steps 5]

Times are wall-clock on an otherwise idle machine; the shares of a step are ratios of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("gen", "old_log_prob", "update_actor", "update_weights")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=Path, default=ROOT / "runs" / "tasks")
    parser.add_argument("--model", type=Path, default=ROOT / "runs" / "tiny")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    tasks, model = options.tasks.resolve(), options.model.resolve()
    if not (tasks / "train.parquet").is_file() or not (model / "config.json").is_file():
        sys.exit(f"no tasks in {tasks} or no model in {model}; run: verl-ext tasks build && verl-ext tiny build")
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        argv = [
            *(sys.executable, "-m", "verl.trainer.main_ppo"),
            *("--config-path", str(ROOT / "recipes"), "--config-name", "bugfix_grpo"),
            f"data.train_files={tasks}/train.parquet",
            f"data.val_files=[{tasks}/val.parquet]",
            f"actor_rollout_ref.model.path={model}",
            f"trainer.total_training_steps={options.steps}",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            "trainer.save_freq=-1",
            "trainer.logger=[file]",
            f"trainer.default_local_dir={folder}/checkpoints",
        ]
        env = {**os.environ, "VERL_PLATFORM": "cpu", "VERL_FILE_LOGGER_PATH": str(metrics)}
        with open(Path(folder) / "log", "w+") as log:
            begin = time.monotonic()
            run = subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
            while run.poll() is None and not (metrics.is_file() and metrics.stat().st_size):
                time.sleep(0.1)
            first = time.monotonic() - begin
            if run.wait():
                log.seek(0)
                sys.exit(f"the run failed:\n{log.read()[-3000:]}")
        steps = [json.loads(line)["data"] for line in metrics.read_text().splitlines()]
    times = [step["timing_s/step"] for step in steps]
    rest = steps[1:] or steps
    print(f"first step finished after {first:.0f} s (start-up {first - times[0]:.0f} s, first step {times[0]:.1f} s)")
    print(f"a step: {statistics.median(step['timing_s/step'] for step in rest):.1f} s (median of {len(rest)})")
    for part in PARTS:
        share = statistics.median(step[f"timing_s/{part}"] / step["timing_s/step"] for step in rest)
        print(f"  {part}: {share:.0%}")


if __name__ == "__main__":
    main()
