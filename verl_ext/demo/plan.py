"""What the demo asks of verl: the evaluation subset, and the one command that evaluates, trains and evaluates again.

verl's own validation is the evaluation before and after: a second start of Ray and vLLM would cost minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_ext.demo.dumps import validation_steps
from verl_ext.demo.results import SPLITS
from verl_ext.demo.stages import file_digest
from verl_ext.types import BadInput

RECIPES = Path(__file__).resolve().parent.parent.parent / "recipes"
RECIPE = "bugfix_grpo"
"""Unless the user names another."""


@dataclass(frozen=True)
class Plan:
    """One training run.

    Attributes:
        tasks: Folder with ``train.parquet`` and one parquet for each validation split.
        model: Folder of the model to start from.
        out: Folder of the run; everything verl writes goes below it.
        steps: Training steps.
        seed: Of data order and sampling.
        sessions: Least number of sessions for each split in an evaluation.
        evaluations: Evaluations after the first one, evenly spaced; the last one is after the last step.
        recipe: Name of a file in ``recipes/``.
        overrides: Further Hydra overrides of the recipe, which win.
    """

    tasks: Path
    model: Path
    out: Path
    steps: int
    seed: int
    sessions: int = 400
    evaluations: int = 1
    recipe: str = RECIPE
    overrides: tuple[str, ...] = ()

    @property
    def long(self) -> bool:
        """Whether the recipe is for tasks of several files."""
        return "base=long" in self.overrides or "base: long" in (RECIPES / f"{self.recipe}.yaml").read_text()

    @property
    def test_every(self) -> int:
        """Steps between evaluations."""
        return max(1, -(-self.steps // self.evaluations))

    @property
    def evaluation_steps(self) -> list[int]:
        """Steps that verl evaluates after: 0, every ``test_every``, and the last."""
        return sorted({0, *range(self.test_every, self.steps + 1, self.test_every), self.steps})

    def evaluation_inputs(self) -> dict[str, Any]:
        """What the evaluation's tasks depend on."""
        files = {split: self.tasks / f"{split}.parquet" for split in SPLITS}
        return {"sessions": self.sessions, **{split: file_digest(file) for split, file in files.items()}}

    def inputs(self) -> dict[str, Any]:
        """What the run depends on; a run with other inputs starts afresh."""
        weights = sorted(path for path in self.model.glob("*") if path.suffix in {".safetensors", ".json", ".jinja"})
        return {
            **self.evaluation_inputs(),
            "train": file_digest(self.tasks / "train.parquet"),
            "model": [[path.name, file_digest(path)] for path in weights],
            "steps": self.steps,
            "seed": self.seed,
            "evaluations": self.evaluations,
            "recipe": self.recipe,
            "overrides": list(self.overrides),
        }


def split_sizes(tasks: int, sessions: int, runs: int) -> int:
    """Number of tasks to evaluate so that ``runs`` sessions each make at least ``sessions``, at most ``tasks``."""
    return min(tasks, -(-sessions // runs))


def evaluation_files(plan: Plan) -> tuple[list[Path], int]:
    """Write the evaluation subset of every split: evenly spaced tasks, the same for every seed.

    Returns:
        The parquet files in the order of :data:`SPLITS`, and the sessions for each task (``val_kwargs.n``), the same in
        all splits since verl has one setting: as few as the smallest split allows.

    Raises:
        BadInput: A split's file is missing or empty.
    """
    import pyarrow.parquet as pq

    tables = {}
    for split in SPLITS:
        source = plan.tasks / f"{split}.parquet"
        if not source.is_file():
            raise BadInput(f"{source} does not exist; run: verl-ext tasks build --out {plan.tasks}")
        tables[split] = pq.read_table(source)
        if not len(tables[split]):
            raise BadInput(f"{source} holds no task; build more: verl-ext tasks build --out {plan.tasks}")
    runs = max(1, -(-plan.sessions // min(len(table) for table in tables.values())))
    files = []
    for split, table in tables.items():
        count = split_sizes(len(table), plan.sessions, runs)
        chosen = table.take([i * len(table) // count for i in range(count)])
        path = plan.out / "evaluation" / f"{split}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(chosen, path)
        files.append(path)
    return files, runs


def attempts(plan: Plan) -> int:
    """Number of times this run was started."""
    return len(list((plan.out / "metrics").glob("*.jsonl")))


def checkpoint_step(plan: Plan) -> int:
    """Step of the run's last complete checkpoint, 0 without one."""
    latest = plan.out / "checkpoints" / "latest_checkpointed_iteration.txt"
    text = latest.read_text().strip() if latest.is_file() else ""
    return int(text) if text.isdigit() else 0  # empty for the moment in which verl writes it


def complete(plan: Plan) -> bool:
    """The run has trained to its end and evaluated there."""
    return checkpoint_step(plan) >= plan.steps and plan.steps in validation_steps(plan.out / "validation")


def check_recipe(name: str) -> None:
    """Raises :class:`BadInput` when there is no such recipe."""
    known = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    if not known:
        raise BadInput(f"no recipes in {RECIPES}; run the demo from a clone (pip install -e .)")
    if name not in known:
        raise BadInput(f"--recipe {name} is not one of {', '.join(known)}")


def compose_recipe(name: str, *words: str) -> DictConfig:
    """The recipe with Hydra overrides, as verl's entry points compose it.

    Raises:
        BadInput: What Hydra says, in one line.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException

    verl = Path(find_spec("verl").origin).parent  # by path: `pkg://` would import all of verl
    try:
        with initialize_config_dir(str(RECIPES), version_base=None):
            return compose(name, [f"hydra.searchpath=[file://{verl}/trainer/config]", *words])
    except HydraException as error:
        raise BadInput(f"recipe {name}: {' '.join(str(error).split())}") from None


def check(plan: Plan) -> None:
    """Raises :class:`BadInput` when the trainer would refuse these settings, whatever tasks and model are."""
    from verl_ext.config import check_settings

    check_settings(compose_recipe(plan.recipe, *words(plan, [], 1)))


def command(plan: Plan, files: list[Path], runs: int) -> list[str]:
    """The command line of verl's trainer for this attempt."""
    check_recipe(plan.recipe)
    trainer = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-path", str(RECIPES)]
    hydra_dir = f"hydra.run.dir={_quoted(plan.out / 'hydra')}"
    return [*trainer, "--config-name", plan.recipe, hydra_dir, *words(plan, files, runs)]


def words(plan: Plan, files: list[Path], runs: int) -> list[str]:
    """Hydra overrides for this attempt, the plan's own last.

    An attempt that goes on from a checkpoint repeats no evaluation that was written; one whose last checkpoint is the
    last step has only the last evaluation to make.
    """
    written = validation_steps(plan.out / "validation")
    only_evaluate = checkpoint_step(plan) >= plan.steps
    settings = {
        "hardware": "cpu",
        "data.train_files": _quoted(plan.tasks / "train.parquet"),
        "data.val_files": f"[{','.join(_quoted(file) for file in files)}]",
        "data.seed": plan.seed,
        "actor_rollout_ref.model.path": _quoted(plan.model),
        "actor_rollout_ref.actor.data_loader_seed": plan.seed,
        "actor_rollout_ref.actor.fsdp_config.seed": plan.seed,
        "actor_rollout_ref.rollout.seed": plan.seed,
        "actor_rollout_ref.rollout.val_kwargs.n": runs,
        "trainer.total_training_steps": plan.steps,
        "trainer.test_freq": plan.test_every,
        "trainer.save_freq": max(1, plan.steps // 5),
        "trainer.val_before_train": only_evaluate or checkpoint_step(plan) not in written,
        "trainer.val_only": only_evaluate,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": _quoted(plan.out / "checkpoints"),
        "trainer.validation_data_dir": _quoted(plan.out / "validation"),
        "trainer.logger": "[console,tensorboard,file]",
    }
    own = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()]
    return [*own, *plan.overrides]


def environment(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """The trainer's environment: the CPU platform, and where this attempt's metrics go."""
    metrics = plan.out / "metrics"
    metrics.mkdir(parents=True, exist_ok=True)
    return {
        **environ,
        "VERL_PLATFORM": "cpu",
        "VERL_FILE_LOGGER_PATH": str((metrics / f"{attempts(plan)}.jsonl").resolve()),
        "TENSORBOARD_DIR": str((plan.out / "tensorboard").resolve()),
        "HYDRA_FULL_ERROR": "1",
    }


def _quoted(path: Path) -> str:
    """An absolute path as a Hydra value: Ray's workers have another working directory, and paths may hold anything."""
    text = str(path.resolve()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
