"""Trainers of ours that save. They and their saving are verl's; worker groups, data loader and the checkpoint of
TransferQueue are stand-ins that write real files."""

from __future__ import annotations

import errno
from copy import deepcopy
from functools import cache
from pathlib import Path

import torch
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1 import trainer_base as verl_trainer

from verl_ext.demo.plan import compose_recipe


class Group:
    """A worker group whose ``save_checkpoint`` writes ``numbers`` floats, or fails."""

    world_size = 1
    workers = ()

    def __init__(self):
        self.numbers, self.error, self.seen = 1000, None, []

    def save_checkpoint(self, path, remote, step, max_ckpt_to_keep):
        self.seen.append(max_ckpt_to_keep)
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "begun").touch()
        if self.error:
            raise self.error
        torch.save(torch.zeros(self.numbers), folder / "model.pt")


class Loader:
    def __init__(self):
        self.fetched = 0

    def state_dict(self):
        return {"fetched": self.fetched}


composed_once = cache(compose_recipe)


def trainer_in(root: Path, recipe: str, monkeypatch):
    config = deepcopy(composed_once(recipe))
    config.trainer.default_local_dir = str(root)
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    trainer.actor_rollout_wg, trainer.train_dataloader = Group(), Loader()

    def save_queue(folder, metadata):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "metadata.json").write_text("{}")

    monkeypatch.setattr(verl_trainer.tq, "save_checkpoint", save_queue)
    monkeypatch.setattr("verl_ext.trainer.faults.tq.kv_list", lambda partition_id: {})
    return trainer


def save(trainer, step: int) -> None:
    trainer.global_steps = step
    trainer._save_checkpoint()


def kept(trainer) -> list[str]:
    return sorted(path.name for path in trainer._root.iterdir())


def refuse(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")
