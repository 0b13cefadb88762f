"""Stages that are done once: a marker beside the product names the inputs it was made from.

A stage whose marker holds the same inputs is passed over, so that an interrupted demo goes on where it was; other
inputs make it run again. The marker is written last and in one step: it never stands beside half a product.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_ext.types import BadInput


def file_digest(path: Path) -> str:
    """16 hex digits over a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def code_version() -> str:
    """Of package, code and recipes: a stage that was done with others is done again."""
    root = Path(__file__).resolve().parents[2]
    state = hashlib.blake2b(digest_size=8)
    for path in sorted([*(root / "verl_ext").rglob("*.py"), *(root / "recipes").rglob("*.yaml")]):
        state.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{importlib.metadata.version('verl-ext')}-{state.hexdigest()}"


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_json(path: Path) -> Any:
    """The file's value; None when it is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def seconds_if_done(marker: Path, inputs: Mapping[str, Any]) -> float | None:
    """Seconds that the stage took when it was done with these inputs; None when it was not."""
    found = read_json(marker)
    if not isinstance(found, dict) or found.get("inputs") != dict(inputs):
        return None
    return float(found["seconds"])


def mark_done(marker: Path, inputs: Mapping[str, Any], seconds: float) -> None:
    """Record that the stage is done."""
    write_json(marker, {"inputs": dict(inputs), "seconds": round(seconds, 1)})


def run_visible(argv: Sequence[str], environ: Mapping[str, str]) -> float:
    """Run a command that shows its own progress on this terminal; returns its seconds.

    Raises:
        BadInput: It failed; its own message stands above.
        KeyboardInterrupt: It was interrupted.
    """
    start = time.monotonic()
    process = subprocess.Popen(argv, env=dict(environ))
    try:
        status = process.wait()
    except KeyboardInterrupt:
        process.wait()  # the terminal sent it the same signal
        raise
    if status in (130, -2):
        raise KeyboardInterrupt
    if status:
        raise BadInput(f"failed with status {status}; see above. Once mended, the same command goes on from here")
    return time.monotonic() - start


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Refuse a second demo in the same folder while one runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"another demo is running in {folder}; wait for it or give another --out") from None
        yield
