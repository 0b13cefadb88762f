"""Each way in which a solution could lie about, planted: the episode does not take place, by the sandbox's fault."""

import dataclasses
import importlib.util
import json
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pytest
import pytest_asyncio

from tests.gym.test_env import BUGGY, GOLD, TASK
from verl_ext.gym import leaks
from verl_ext.gym.env import BugFixEnv, Verdicts
from verl_ext.sandbox import open_sandbox
from verl_ext.types import Action, InfrastructureError, StopReason, Tests

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox():
    sandbox = await open_sandbox(workers=1)
    yield sandbox
    await sandbox.aclose()


class Open:
    """A sandbox that says it isolates and does not: what is planted on this machine lies where code runs."""

    isolation = "bubblewrap"

    def __init__(self, plain):
        self.grade, self.evaluate, self.asked = plain.grade, self._evaluate, 0
        self._plain = plain

    async def _evaluate(self, *given):
        self.asked += 1
        return await self._plain.evaluate(*given)


@pytest_asyncio.fixture(loop_scope="module")
async def open_place():
    with pytest.warns(UserWarning, match="your rights"):
        plain = await open_sandbox("none", workers=1)
    yield Open(plain)
    await plain.aclose()


def named(name: str):
    """The task with its code under another name."""
    path = f"{name}.py"
    return dataclasses.replace(
        TASK,
        sources={path: BUGGY},
        editable=(path,),
        gold={path: GOLD},
        public=dataclasses.replace(TASK.public, module=name),
        hidden=dataclasses.replace(TASK.hidden, module=name),
    )


async def refused(task, sandbox, says: str, private=()) -> None:
    env = BugFixEnv(task, sandbox, verdicts=Verdicts(), private=private)
    with pytest.raises(InfrastructureError, match=f"^leak in .*{says}"):
        await env.reset()
    with pytest.raises(RuntimeError, match="reset"):
        await env.step(Action("run_tests"))


async def test_a_clean_workspace_is_free_of_leaks_and_quickly_looked_at(sandbox):
    env = BugFixEnv(TASK, sandbox, verdicts=Verdicts(), private=("runs/tasks/train.parquet",))
    await env.reset()
    sources = {f"pkg/module_{number}.py": BUGGY * 20 for number in range(20)}
    task = dataclasses.replace(TASK, sources={**TASK.sources, **sources})
    await leaks.check(task, sandbox, ("runs/tasks/train.parquet",))
    begin = time.perf_counter()
    for _ in range(20):
        await leaks.check(task, sandbox, ("runs/tasks/train.parquet",))
    assert (time.perf_counter() - begin) / 20 < 1e-3


async def test_a_leak_leaves_the_session_out():
    """The agent loop turns the error into this; see test_session for what becomes of it."""
    assert StopReason.SANDBOX_ERROR.infrastructure


@pytest.mark.parametrize(
    ("kind", "path", "text", "says"),
    [
        ("objects", ".git/objects/ab/" + "0" * 38, "x", "version control's history"),
        ("a bare repository", "cache.d/objects/pack/pack-1.idx", "x", "version control's history"),
        ("reflog", "backup/logs/HEAD", "0000 1111 fix", "version control's history"),
        ("remote", ".git/config", '[remote "origin"]', "version control's history"),
        ("gitlink", ".git", "gitdir: /repos/gold/.git", "version control's history"),
        ("packed refs", "packed-refs", "x", "version control's history"),
        ("mercurial", ".hg/store/data", "x", "version control's history"),
        ("byte code", "solution.pyc", "x", "compiled code"),
        ("byte code cache", "__pycache__/solution.cpython-311.pyc", "x", "compiled code"),
        ("extension", "solution.cpython-311-x86_64-linux-gnu.so", "x", "compiled code"),
        ("wheel", "dist/solution-1.0-py3-none-any.whl", "x", "an archive"),
        ("source archive", "dist/solution-1.0.tar.gz", "x", "an archive"),
        ("wheel cache", ".cache/pip/wheels/ab/origin.json", "{}", "installed package or a cache"),
        ("installed copy", "lib/python3.11/site-packages/solution.py", GOLD, "installed package or a cache"),
        ("metadata", "solution.egg-info/SOURCES.txt", "x", "installed package or a cache"),
        ("repaired copy", "solution.py.orig", "# before\n" + GOLD, "holds the repaired solution.py"),
        ("tasks named", "notes.md", "see runs/tasks/train.parquet", "names the tasks' file"),
        ("task list named", "conf.py", "PATH = '/data/tasks/tasks.jsonl'", "names the tasks' file"),
        ("own parquet named", "conf.py", "PATH = '/data/my/rows.parquet'", "tasks' file /data/my/rows.parquet"),
        ("bytes", "data.bin", b"\0", "is no text"),
        ("upward", "../solution.py", "x", "must be relative"),
        ("absolute", "/work/solution.py", "x", "must be relative"),
        ("NUL", "solution.py\0.txt", "x", "use letters"),
        ("full width", "ｓolution.py", "x", "can look like others"),
        ("case", "Solution.py", "x", "differ in case alone"),
    ],
)  # fmt: skip
async def test_planted_in_the_workspace(sandbox, kind, path, text, says):
    task = dataclasses.replace(TASK, sources={**TASK.sources, path: text})
    await refused(task, sandbox, says, private=("/data/my/rows.parquet",))


async def test_a_bug_that_only_adds_is_no_repaired_copy(sandbox):
    """``return x`` is a part of ``return x + 1``: whole lines count, and not the file to repair itself."""
    longer = {"solution.py": GOLD.rstrip() + " + 1\n", "other.py": GOLD.rstrip() + " + 1\n"}
    await leaks.check(dataclasses.replace(TASK, sources=longer), sandbox)


async def test_planted_an_importable_copy(sandbox):
    """Of the standard library, which every jail has: a task that repairs a copy of it must have another name."""
    await refused(named("textwrap"), sandbox, "can be imported there without its files: textwrap")


async def test_planted_an_installed_copy(sandbox):
    """In the interpreter's own site-packages, which a jail does not import from but shows."""
    site = Path(sys.base_prefix, "lib", f"python3.{sys.version_info[1]}", "site-packages")
    found = next((path.name for path in site.glob("*") if (path / "__init__.py").exists()), None)
    if found is None:
        pytest.skip(f"nothing is installed in {site}")
    await refused(named(found), sandbox, f"copy of the task's module.*{site}/{found}")


async def test_planted_this_package_where_code_runs(open_place):
    """An installation in the interpreter's prefix: the catalogue's repaired functions could be read."""
    await refused(TASK, open_place, f"can read what it must not: {leaks.PACKAGE}")


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def elsewhere(monkeypatch, folder):
    """This machine's own copy of the package is not looked for, so that the planted leak is the one that is found. The
    home directory, of which a worker's empty environment says nothing, is in the folder."""
    text = leaks._PROBE.read_text().replace('_OURS = "verl_ext"', '_OURS = "nobody_s"')
    probe = folder / "probe.py"
    probe.write_text(text.replace('os.path.expanduser("~")', json.dumps(str(folder / "home"))))
    monkeypatch.setattr(leaks, "_PROBE", probe)
    monkeypatch.setattr(leaks, "PACKAGE", Path("/nowhere/verl_ext"))


async def test_planted_the_tasks_parquet(open_place, elsewhere, tmp_path):
    file = tmp_path / "rows.parquet"
    file.write_bytes(b"PAR1")
    await refused(TASK, open_place, f"can read what it must not: {file}", private=(str(file),))


async def test_planted_a_history_of_the_package(open_place, elsewhere, folder):
    (folder / ".git/objects").mkdir(parents=True)
    (folder / "src/fixme").mkdir(parents=True)
    await refused(named("fixme"), open_place, f"the history of the task's package, .*{folder}/.git")


@pytest.mark.parametrize("hidden", [False, True])
async def test_planted_a_wheel_and_a_cached_one_without_its_name(open_place, elsewhere, folder, hidden):
    name = ".cache/pip/http-v2/a/b.body" if hidden else "fixme-1.0-py3-none-any.whl"
    place = folder / "home" / name
    place.parent.mkdir(parents=True)
    with zipfile.ZipFile(place, "w") as wheel:
        wheel.writestr("fixme/__init__.py", GOLD)
    await refused(named("fixme"), open_place, f"an archive of the task's package, .*{place}")


async def test_what_is_seen_but_cannot_be_read_is_no_leak(elsewhere, folder):
    """As under Landlock, which lets code ask whether a file is there."""
    spec = importlib.util.spec_from_file_location("probe", leaks._PROBE)
    spec.loader.exec_module(probe := importlib.util.module_from_spec(spec))
    closed = folder / "closed"
    closed.symlink_to(closed)  # there, and not to be opened, by root either
    assert probe.readable([str(closed)]) == []
    closed.unlink()
    closed.write_text("")
    assert probe.readable([str(closed)]) == [str(closed)]


async def test_the_sandbox_is_asked_once_for_the_same_names(sandbox):
    counting = Open(sandbox)
    for _ in range(3):
        await leaks.check(TASK, counting)
    assert counting.asked == 1
    await leaks.check(named("other_name"), counting)
    assert counting.asked == 2
    both = dataclasses.replace(
        TASK, sources={**TASK.sources, "other_name.py": ""}, editable=("solution.py", "other_name.py")
    )
    await leaks.check(both, counting)
    assert counting.asked == 2, "both names were found clean"
    await leaks.check(both, counting, ("/data/my/rows.parquet",))
    assert counting.asked == 3, "with other private files nothing is known"


async def test_a_look_that_fails_is_not_remembered(sandbox, monkeypatch):
    async def broken(*given):
        raise InfrastructureError("the jail did not start")

    failing = Open(sandbox)
    working, failing.evaluate = failing.evaluate, broken
    with pytest.raises(InfrastructureError, match="did not start"):
        await leaks.check(TASK, failing)
    failing.evaluate = working
    await leaks.check(TASK, failing)
    monkeypatch.setattr(leaks, "_PROBE", Path(__file__))  # not a probe
    with pytest.raises(InfrastructureError, match="the look for leaks did not run: import"):
        await leaks.check(named("another_name"), failing)


async def test_without_isolation_only_the_workspace_is_looked_at(open_place):
    open_place.isolation = "none"
    await leaks.check(TASK, open_place)
    assert open_place.asked == 0


async def test_every_kind_of_task_has_its_names(sandbox):
    package = dataclasses.replace(
        TASK,
        sources={"pkg/__init__.py": "", "pkg/core.py": BUGGY, "tests/test_a.py": ""},
        editable=("pkg/core.py",),
        gold={"pkg/core.py": GOLD},
        public=Tests("pkg.core", TASK.public.cases),
        hidden=Tests("pkg", TASK.hidden.cases),
    )
    assert leaks.modules(package) == ("pkg",)
    await leaks.check(package, sandbox)
