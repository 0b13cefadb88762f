"""Checkpoints that a full disk or a kill cannot take along: what verl writes, made safe from outside.

verl writes the actor, then the data loader's and TransferQueue's state, then the number of the step into a tracker
file. As soon as the actor is written it deletes the oldest one (``max_actor_ckpt_to_keep``), which with 1 is the last
checkpoint that a run could go on from. Here the old ones go when the tracker names the new one.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

TRACKER = "latest_checkpointed_iteration.txt"
_WORDS = "No space left|Disk quota exceeded|File too large|Read-only file system|Input/output error"
_TORCH = "PytorchStreamWriter failed|iostream error|unexpected pos"
"""What ``torch.save`` makes of a write that fails; it loses the cause."""


def folder_of(root: Path, step: int) -> Path:
    """verl's folder of a step's checkpoint."""
    return root / f"global_step_{step}"


def disk_trouble(error: BaseException) -> str | None:
    """In a few words why writing failed, for an error of the file system here or in a worker; None for any other."""
    cause = getattr(error, "cause", None) or error  # what a Ray worker raised
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    text = f"{cause} {error}"
    if found := re.search(_WORDS, text):
        return found.group()
    return "a file could not be written, as on a full disk" if re.search(_TORCH, text) else None


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def check_room(root: Path, last: int | None) -> None:
    """Raise ``OSError`` (``ENOSPC``) when a checkpoint as large as that of step ``last`` does not fit any more.

    Cheaper than to find out in the middle, and with several ranks the only way to go on: a rank that fails while it
    writes leaves the others at a barrier.
    """
    if last is None or not (folder := folder_of(root, last)).is_dir():
        return
    need, free = size_of(folder), shutil.disk_usage(root).free
    if free < need:
        raise OSError(errno.ENOSPC, f"No space left: {free >> 20} MiB free, {need >> 20} MiB needed")


def read_tracker(root: Path) -> int | None:
    """The step that a run would go on from; None without one."""
    try:
        return int((root / TRACKER).read_text())
    except (FileNotFoundError, ValueError):
        return None


def write_tracker(root: Path, step: int | None) -> None:
    """Name a step, all at once; None: no step."""
    if step is None:
        (root / TRACKER).unlink(missing_ok=True)
        return
    new = root / f"{TRACKER}.new"
    new.write_text(str(step))
    os.replace(new, root / TRACKER)


def mend_tracker(root: Path) -> None:
    """A tracker without a number was cut while verl wrote it, which it does last: the newest folder is complete."""
    if not (root / TRACKER).is_file() or read_tracker(root) is not None:
        return
    steps = [int(path.name.rpartition("_")[2]) for path in root.glob("global_step_*") if path.name[-1].isdigit()]
    write_tracker(root, max(steps, default=None))


def undo(root: Path, step: int, last: int | None) -> None:
    """Remove what a failed save of ``step`` left, and name ``last`` again."""
    shutil.rmtree(folder_of(root, step), ignore_errors=True)
    if read_tracker(root) != last:
        write_tracker(root, last)


def prune(root: Path, steps: list[int], keep: int | None) -> list[int]:
    """Delete the oldest of ``steps`` until ``keep`` are left (None: all stay); returns those that are left."""
    gone = steps[: max(len(steps) - keep, 0)] if keep else []
    for step in gone:
        shutil.rmtree(folder_of(root, step), ignore_errors=True)
    return steps[len(gone) :]


def to_keep(trainer: DictConfig, critic: bool) -> int | None:
    """How many checkpoints ``trainer.max_*_ckpt_to_keep`` ask for; None: all."""
    if trainer.get("remove_previous_ckpt_in_save"):
        return 1
    asked = [trainer.get("max_actor_ckpt_to_keep"), *([trainer.get("max_critic_ckpt_to_keep")] if critic else [])]
    return max(asked) if all(asked) else None


@contextmanager
def deleting_nothing(trainer: DictConfig) -> Iterator[None]:
    """verl's own deleting switched off meanwhile."""
    off: dict[str, Any] = {
        "max_actor_ckpt_to_keep": None,
        "max_critic_ckpt_to_keep": None,
        "remove_previous_ckpt_in_save": False,
    }
    before = {key: trainer[key] for key in off if key in trainer}
    with open_dict(trainer):
        trainer.update({key: off[key] for key in before})
    try:
        yield
    finally:
        with open_dict(trainer):
            trainer.update(before)
