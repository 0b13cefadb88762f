"""Supervised fine-tuning of TinyAgent by verl's own ``verl.trainer.sft_trainer``, on a CPU, in one process.

The learning rate goes down to zero: a policy whose last steps were large breaks in its first steps of reinforcement
learning.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_ext.types import BadInput

BATCH = 32


@dataclass(frozen=True)
class Phase:
    """One run of the trainer: what it learns from, its peak learning rate and passes over the data."""

    name: str
    learning_rate: float
    epochs: int


REPAIRS = Phase("repairs", 4e-3, 2)
"""To see bugs."""
SESSIONS = Phase("sessions", 1e-3, 1)
"""To hold a session, at a rate that keeps what the first phase taught."""
_STEP = re.compile(r"step:(\d+) - .*?train/loss:([-\d.e+]+)")


def overrides(phase: Phase, model: Path, data: Path, out: Path, seed: int) -> dict[str, object]:
    """Hydra overrides of verl's SFT recipe, key to value."""
    return {
        "data.train_files": data,
        "data.custom_cls.path": "pkg://verl_ext.tiny.dataset",
        "data.custom_cls.name": "SessionDataset",
        "data.train_batch_size": BATCH,
        "data.micro_batch_size_per_gpu": BATCH,
        "data.use_dynamic_bsz": False,
        "data.max_length": 1024,
        "data.num_workers": 0,
        "model.path": model,
        "model.use_remove_padding": True,
        "model.enable_gradient_checkpointing": False,
        "+model.override_config.attn_implementation": "sdpa",
        "engine.strategy": "fsdp2",
        "engine.dtype": "float32",
        "++engine.mixed_precision": "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
        "engine.use_torch_compile": False,
        "engine.seed": seed,
        "optim.lr": phase.learning_rate,
        "optim.lr_scheduler_type": "cosine",
        "optim.lr_warmup_steps_ratio": 0.05,
        "optim.min_lr_ratio": 0.0,
        "optim.weight_decay": 0.01,
        "optim.betas": "[0.9,0.98]",
        "trainer.device": "cpu",
        "trainer.seed": seed,
        "trainer.total_epochs": phase.epochs,
        "trainer.logger": "[console]",
        "trainer.save_freq": -1,
        "trainer.test_freq": -1,
        "trainer.resume_mode": "disable",
        "trainer.default_local_dir": out,
        "trainer.project_name": "tiny",
        "trainer.experiment_name": "sft",
        "checkpoint.save_contents": "[hf_model]",
    }


def run_sft(settings: Mapping[str, object], weights: Path, log: Path, report: Callable[[int, float], None]) -> None:
    """Trains, and leaves a Hugging Face folder.

    Args:
        settings: See :func:`overrides`.
        weights: The folder; replaced.
        log: Where the trainer's output goes.
        report: Told the step and its loss after each step.

    Raises:
        BadInput: The trainer failed; the line names the log.
    """
    out = Path(str(settings["trainer.default_local_dir"]))
    shutil.rmtree(out, ignore_errors=True)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1"]
    argv += ["-m", "verl.trainer.sft_trainer", *(f"{key}={value}" for key, value in settings.items())]
    # Passive: as in recipes/hardware/cpu.yaml.
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "VERL_PLATFORM": "cpu"}
    with (
        log.open("w") as sink,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as process,
    ):
        try:
            for line in process.stdout:
                sink.write(line)
                sink.flush()
                if found := _STEP.search(line):
                    report(int(found[1]), float(found[2]))
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise BadInput(f"verl's SFT trainer ended with status {process.returncode}; its last lines stand in {log}")
    (found,) = out.glob("global_step_*/huggingface")
    shutil.rmtree(weights, ignore_errors=True)
    shutil.move(found, weights)
    shutil.rmtree(out)


def export(weights: Path, tokenizer: Path, out: Path) -> None:
    """Leaves an ordinary Hugging Face folder: weights and config in float32, tokenizer. ``config.json`` comes last."""
    shutil.copyfile(weights / "model.safetensors", out / "model.safetensors")
    for path in tokenizer.iterdir():
        shutil.copyfile(path, out / path.name)
    config = json.loads((weights / "config.json").read_text())
    for key in ("torch_dtype", "attn_implementation"):  # how it was trained, not what it is
        config.pop(key, None)
    config["dtype"] = "float32"
    part = out / "config.json.part"
    part.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    os.replace(part, out / "config.json")
