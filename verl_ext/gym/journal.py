"""What a build has found out so far, so that an interrupted one goes on where it stopped.

One line for each examined program, appended as soon as it is known. The first line names the seed and a digest of the
gym's own code: results of other code are not reused. A line that was cut off by an interruption is dropped.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

from verl_ext.gym.tasks import task_from_json, task_to_json
from verl_ext.gym.validate import Examined


class Journal:
    """Examined programs by key, on disk.

    Args:
        path: The file; made when missing, begun anew when it is of another seed or other code.
        seed: Of the build.
    """

    def __init__(self, path: Path, seed: int):
        self._path = path
        self._known: dict[str, dict] = {}
        header = json.dumps({"seed": seed, "code": code_digest()})
        lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
        whole = lines[:-1]  # what follows the last newline was cut off
        if not whole or whole[0] != header:
            whole = [header]
        for line in whole[1:]:
            entry = json.loads(line)
            self._known[entry["key"]] = entry
        path.write_text("\n".join(whole) + "\n", encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> Examined | None:
        """What is known of a program."""
        if key not in self._known:
            return None
        entry = self._known[key]
        return Examined(tuple(task_from_json(text) for text in entry["tasks"]), Counter(entry["rejected"]))

    def put(self, key: str, found: Examined) -> None:
        """Notes an examined program; on disk when this returns."""
        rejected = {reason: found.rejected[reason] for reason in sorted(found.rejected)}
        entry = {"key": key, "tasks": [task_to_json(task) for task in found.tasks], "rejected": rejected}
        self._known[key] = entry
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def code_digest() -> str:
    """Digest of every module of the gym: with other code, a build may come out differently."""
    root = Path(__file__).parent
    state = hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        state.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()
