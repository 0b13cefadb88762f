"""What would give a task's solution away, looked for before each episode: in the workspace, and where its code runs.

A policy finds every cheaper way than a repair: agents on SWE-bench read the fix in git's history (SWE-bench issue 465).
So a workspace is a tree of texts and nothing else, and the place where code runs holds no copy of the repaired package,
its history, a cache of it, or the tasks.

A leak is the infrastructure's failure: the episode does not take place, and no reward is made of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from verl_ext.gym.workspace import refused_path
from verl_ext.types import Case, InfrastructureError, Task, Tests

if TYPE_CHECKING:
    from verl_ext.sandbox import Sandbox

PACKAGE = Path(__file__).resolve().parents[1]
"""This package: the gym's catalogue holds the repaired functions."""

_GIT = {".git", ".hg", ".svn", ".jj"}
_GIT_FILES = {"head", "packed-refs", "fetch_head", "orig_head", ".gitmodules"}
_OBJECT = re.compile(r"(^|/)objects/([0-9a-f]{2}/[0-9a-f]{38,62}|pack/.*)")
_BYTE_CODE = (".pyc", ".pyo", ".so", ".pyd")
_WHEELS = (".whl", ".egg", ".tar.gz", ".tgz", ".zip", ".tar", ".bundle", ".pack")
_INSTALLED = re.compile(r"(^|/)(site-packages|dist-packages|[^/]+\.(dist-info|egg-info)|\.cache|\.venv)(/|$)", re.I)
_TASKS = re.compile(r"[\w.~/-]*/(?:(?:train|val|heldout_types|heldout_functions)\.parquet|tasks\.jsonl)\b")
_PROBE = Path(__file__).with_name("leaks_probe.py")
_PROBE_MODULE = "verl_ext_leaks_probe"


class _Asked:
    """What a sandbox was asked already: a lock, the answer to each question, names found clean by private files."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.answers: dict[tuple, str | None] = {}
        self.clean: dict[tuple[str, ...], set[str]] = {}


_asked: WeakKeyDictionary[Sandbox, _Asked] = WeakKeyDictionary()


async def check(task: Task, sandbox: Sandbox, private: Sequence[str] = ()) -> None:
    """Looks at the workspace (each time, well below a millisecond) and into the sandbox (once for each set of names).

    Args:
        task: What an episode is about to begin on.
        sandbox: Where its code will run. One without isolation is not looked into: it was chosen as such.
        private: Files that a policy must never see, such as the tasks' parquet: the workspace does not name them, and
            code does not find them.

    Raises:
        InfrastructureError: There is a leak; or the sandbox failed.
    """
    if (leak := in_workspace(task, private)) is not None:
        raise InfrastructureError(f"leak in task {task.task_id}: {leak}")
    if sandbox.isolation != "none" and (leak := await in_sandbox(modules(task), sandbox, private)) is not None:
        raise InfrastructureError(f"leak in the sandbox: {leak}")


def in_workspace(task: Task, private: Sequence[str] = ()) -> str | None:
    """The first leak among the task's own files, None when there is none."""
    sources = task.sources
    seen: dict[str, str] = {}
    for path, text in sources.items():
        if (reason := refused_path(path)) is not None:
            return reason
        if type(text) is not str:
            return f"{path} is no text"
        if seen.setdefault(path.casefold(), path) != path:
            return f"{path} and {seen[path.casefold()]} differ in case alone"
        if (leak := _by_name(path)) is not None:
            return leak
    named = private_names(tuple(private))
    for path, text in sources.items():
        found = next((name for name in named if name in text), None)
        if found is None and ("/tasks.jsonl" in text or ".parquet" in text):
            found = match[0] if (match := _TASKS.search(text)) else None
        if found is not None:
            return f"{path} names the tasks' file {found}"
        for gold_path, gold in task.gold.items():
            if path != gold_path and gold.strip() and f"\n{gold.strip()}\n" in f"\n{text}\n":
                return f"{path} holds the repaired {gold_path}"
    return None


async def in_sandbox(names: Sequence[str], sandbox: Sandbox, private: Sequence[str] = ()) -> str | None:
    """The first leak where code runs, None when there is none; a name is asked once, then remembered for this sandbox.

    Raises:
        InfrastructureError: The sandbox failed; nothing is remembered.
    """
    asked = _asked.setdefault(sandbox, _Asked())
    async with asked.lock:
        clean = asked.clean.setdefault(tuple(private), set())
        # Tasks of several files share most of their names, and a look takes longer than some grades.
        fresh = tuple(name for name in names if name not in clean)
        if names and not fresh:
            return None
        key = (fresh, tuple(private))
        if key not in asked.answers:
            asked.answers[key] = await _look(fresh, sandbox, private)
            if asked.answers[key] is None:
                clean.update(fresh)
        return asked.answers[key]


def modules(task: Task) -> tuple[str, ...]:
    """Top-level names under which the code to repair is imported."""
    heads = {task.public.module.partition(".")[0], task.hidden.module.partition(".")[0]}
    heads |= {path.partition("/")[0].removesuffix(".py") for path in (*task.editable, *task.gold) if path[-3:] == ".py"}
    return tuple(sorted(heads))


@cache
def private_names(private: tuple[str, ...]) -> tuple[str, ...]:
    """Texts that would name a private file: as given, and in full."""
    return tuple(sorted({name for path in private for name in (path, str(Path(path).resolve())) if "/" in name}))


def _by_name(path: str) -> str | None:
    low = path.lower()
    parts = low.split("/")
    if _GIT.intersection(parts) or parts[-1] in _GIT_FILES or _OBJECT.search(low):
        return f"{path} is of a version control's history"
    if "__pycache__" in parts or low.endswith(_BYTE_CODE):
        return f"{path} is compiled code"
    if low.endswith(_WHEELS):
        return f"{path} is an archive, which may hold the repaired package"
    if _INSTALLED.search(path):
        return f"{path} is of an installed package or a cache"
    return None


async def _look(names: Sequence[str], sandbox: Sandbox, private: Sequence[str]) -> str | None:
    from verl_ext.sandbox import Limits

    paths = [str(PACKAGE), *(str(Path(path).resolve()) for path in private)]
    cases = (
        Case("importable", (list(names),)),
        Case("copies", (list(names),)),
        Case("readable", (paths,)),
        Case("histories", (list(names),)),
        Case("wheels", (list(names),)),
    )
    sources = {f"{_PROBE_MODULE}.py": _PROBE.read_text(encoding="utf-8")}
    # Looking over a file system takes longer than a call of the gym.
    limits = Limits(cpu_seconds=10.0, call_seconds=30.0, total_seconds=90.0)
    outcomes = await sandbox.evaluate(sources, Tests(module=_PROBE_MODULE, cases=cases), limits)
    says = {
        "importable": "the task's module can be imported there without its files",
        "copies": "there is an installed or compiled copy of the task's module, or of this package",
        "readable": "code can read what it must not",
        "histories": "there is the history of the task's package, or of this one",
        "wheels": "there is an archive of the task's package, or of this one",
    }
    for case, outcome in zip(cases, outcomes, strict=True):
        if type(outcome.value) is not list:
            raise InfrastructureError(f"the look for leaks did not run: {outcome.failure} {outcome.error}")
        if outcome.value:
            return f"{says[case.call]}: {', '.join(map(str, outcome.value))[:300]}"
    return None
