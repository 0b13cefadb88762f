"""Proves the patches: the tests of each fail on verl as it was released, and pass once they are applied.

    python patches/check.py            all of them
    python patches/check.py 2 4        by number

Works on a copy of the installed verl; the installed one stays as it is, and our own plugins stay out.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

PATCHES = sorted(Path(__file__).parent.glob("*.patch"))
VERL = "0.9.1"


def apply(patches: Sequence[Path], tree: Path, part: str) -> str | None:
    """Apply what the patches change below ``part``; returns why one does not apply."""
    # Below a repository, git would look for the files there and pass over all of them.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    for patch in patches:
        argv = ["git", "apply", f"--include={part}/*", str(patch.resolve())]
        done = subprocess.run(argv, cwd=tree, env=env, capture_output=True, text=True)
        if done.returncode:
            return f"{patch.name}: does not apply: {done.stderr}"
    return None


def failing(tree: Path) -> tuple[set[str], str]:
    """Files with failing tests among those in the tree, run on the verl in the tree; and what pytest printed."""
    env = {key: value for key, value in os.environ.items() if key != "VERL_PLATFORM"}
    env |= {"PYTHONPATH": str(tree), "VERL_USE_EXTERNAL_PLUGINS": "none"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=.", "tests"]
    done = subprocess.run(argv, cwd=tree, env=env, capture_output=True, text=True)
    files = set(re.findall(r"^(?:FAILED|ERROR) (tests/[\w/]+\.py)", done.stdout, re.MULTILINE))
    if bool(files) != bool(done.returncode):
        return {f"status {done.returncode}"}, done.stdout + done.stderr
    return files, done.stdout


def check(patches: Sequence[Path]) -> str | None:
    """Why the patches are not proved; None when they are."""
    tests = {re.search(r"^\+\+\+ b/(tests/.*)$", patch.read_text(), re.MULTILINE)[1]: patch.name for patch in patches}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve() / "verl"
        verl = Path(find_spec("verl").origin).parent
        shutil.copytree(verl, tree / "verl", ignore=shutil.ignore_patterns("__pycache__"))
        if problem := apply(patches, tree, "tests"):
            return problem
        failed, said = failing(tree)
        if failed != set(tests):
            good = ", ".join(name for file, name in tests.items() if file not in failed)
            return f"the tests of {good or 'all'} do not fail without it:\n{said}"
        if problem := apply(patches, tree, "verl"):
            return problem
        failed, said = failing(tree)
        return f"{', '.join(failed)} fails with all patches:\n{said}" if failed else None


def main(numbers: Sequence[str]) -> int:
    """Returns the exit status."""
    if (found := importlib.metadata.version("verl")) != VERL:
        print(f"error: the patches are for verl {VERL}, and {found} is installed; run: pip install verl=={VERL}")
        return 2
    known = {str(int(patch.name[:4])): patch for patch in PATCHES}
    if unknown := [number for number in numbers if number not in known]:
        print(f"error: no patch {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    chosen = [known[number] for number in numbers or known]
    problem = check(chosen)
    print(problem or "\n".join(f"{patch.name}: its tests fail without it and pass with it" for patch in chosen))
    return int(problem is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
