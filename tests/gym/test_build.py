"""Building: each kind of mutant meets its fate, and a small data set comes out whole, the same, and after a crash."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.gym.build import build
from verl_ext.gym.check import check
from verl_ext.gym.commands import tasks as command
from verl_ext.gym.edits import apply
from verl_ext.gym.operators import Mutant
from verl_ext.gym.plan import Wish, wishes
from verl_ext.gym.program import Program
from verl_ext.gym.splits import HELDOUT_OPERATORS, HELDOUT_TEMPLATES, TRAINED_OPERATORS, Source, problems, sources
from verl_ext.gym.tasks import load_tasks
from verl_ext.gym.validate import HIDDEN, PUBLIC, examine, spread
from verl_ext.sandbox import Limits, LocalSandbox, Outcome, open_sandbox
from verl_ext.types import Case, InfrastructureError, Task, Tests

SIZES = {"train": 8, "val": 3, "heldout_functions": 3, "heldout_types": 3}

GOLD = """\
def clip(x):
    if x < 0:
        raise ValueError("negative")
    if x > 9:
        return 9
    return x
"""


def _program(source: str = GOLD) -> Program:
    return Program("clip", "numeric", source, "Cut x at 9.", lambda rng: Case("clip", (rng.randint(-12, 30),)))


def _wish(source: str, split: str = "train") -> Wish:
    return Wish(Mutant(source, 4, "off_by_one"), split, None)


@pytest.fixture
async def sandbox() -> AsyncIterator[LocalSandbox]:
    box = await open_sandbox(workers=2)
    yield box
    await box.aclose()


async def test_a_valid_mutant_becomes_a_task(sandbox: LocalSandbox) -> None:
    found = await examine(_program(), [_wish(GOLD.replace("return 9", "return 8"), "val")], sandbox, seed=0)
    (task,) = found.tasks
    assert not found.rejected
    assert (task.split, task.bug_type, task.gold) == ("val", "off_by_one", {"solution.py": GOLD})
    assert (len(task.public), len(task.hidden)) == (PUBLIC, HIDDEN)
    for case in (*task.public.cases, *task.hidden.cases):
        (x,) = case.args
        assert (case.raises, case.expected) == (("ValueError", None) if x < 0 else (None, min(x, 9)))
    for tests in (task.public, task.hidden):
        assert (await sandbox.grade(task.gold, tests)).passed
        assert not (await sandbox.grade(task.sources, tests)).passed
    assert (await examine(_program(), [_wish(task.sources["solution.py"], "val")], sandbox, seed=0)).tasks == (task,)


async def test_fates(sandbox: LocalSandbox) -> None:
    """One jail holds them all, and none of them spoils the others."""
    fates = {
        "equivalent": GOLD.replace("> 9", "> 8 and x != 9"),
        "weak": GOLD.replace("return 9", "return 9 if x != 20 else 8"),
        "hanging": GOLD.replace("return 9", "\n        while True: pass"),
        "crashing": GOLD.replace("return 9", "import os; os._exit(0)"),
        "flaky": "import os\n" + GOLD.replace("return 9", "return 9 if os.urandom(1) < b'\\x80' else 8"),
        "valid": GOLD.replace("return 9", "return 0"),
    }
    found = await examine(_program(), [_wish(text) for text in fates.values()], sandbox, seed=0)
    assert found.rejected == {fate: 1 for fate in fates if fate != "valid"}
    assert [task.sources["solution.py"] for task in found.tasks] == [fates["valid"]]


@pytest.mark.parametrize("reference", ["import os\ndef clip(x): return os.urandom(4)\n", "def clip(x): return {}[x]\n"])
async def test_a_reference_without_answers_is_rejected(reference: str, sandbox: LocalSandbox) -> None:
    """Random answers, or an exception that the program does not speak of."""
    found = await examine(_program(reference), [_wish(GOLD)], sandbox, seed=0)
    assert not found.tasks
    assert sum(found.rejected.values()) == 1


@given(st.lists(st.booleans(), min_size=PUBLIC + HIDDEN, max_size=24), st.integers())
def test_spread_shows_the_bug_on_both_sides(outcomes: list[bool], seed: int) -> None:
    outcomes[0] = outcomes[-1] = False
    passes = {3 * i: ok for i, ok in enumerate(outcomes)}
    public, hidden = spread(passes, Random(seed))
    assert (len(public), len(hidden)) == (PUBLIC, HIDDEN)
    assert len({*public, *hidden}) == PUBLIC + HIDDEN
    assert {*public, *hidden} <= passes.keys()
    assert not all(passes[i] for i in public)
    assert not all(passes[i] for i in hidden)


def test_wishes_are_of_other_operators_and_mostly_repairable() -> None:
    found = [w for s in sources(0, SIZES)["train"][:30] for w in _checked_wishes(s)]
    assert {w.mutant.operator for w in found} == set(TRAINED_OPERATORS)
    assert sum(w.repair is not None for w in found) / len(found) >= 0.85


def _checked_wishes(source: Source) -> list[Wish]:
    found = wishes(source, seed=0)
    assert found == wishes(source, seed=0)
    assert len({w.mutant.operator for w in found}) == len(found)
    for wish in found:
        assert wish.repair is None or apply(wish.mutant.source, *wish.repair) == source.program.source
    assert [w.split for w in found[3:]] == ["val"] * len(found[3:])
    return found


def test_sources_of_splits_are_disjoint() -> None:
    pools = sources(0, SIZES)
    texts = [s.program.source for pool in pools.values() for s in pool]
    assert len(set(texts)) == len(texts)
    assert all((s.program.template in HELDOUT_TEMPLATES or not s.program.template) for s in pools["heldout_functions"])
    assert not any(s.program.template in HELDOUT_TEMPLATES for name in ("train", "val") for s in pools[name])


def test_a_larger_build_extends_a_smaller_one() -> None:
    small, large = sources(0, SIZES), sources(0, {**SIZES, "train": 100})
    for split, pool in small.items():
        names = [s.program.name for s in pool]
        assert names == [s.program.name for s in large[split]][: len(pool)]


def _task(name: str, buggy: str, gold: str, split: str, bug: str = "off_by_one", **provenance: str) -> Task:
    tests = Tests(cases=(Case("f"),))
    return Task(name, {"s.py": buggy}, ("s.py",), "", tests, tests, bug, {"s.py": gold}, split, provenance)


def test_problems_name_each_overlap() -> None:
    train = _task("t", "b1", "g1", "train", function="f", template="loop")
    assert problems([train, _task("v", "b2", "g1", "val", "boolean_swap", function="f")]) == []
    wrong = {
        "the same buggy source as t": _task("x", "b1", "g9", "val"),
        "stands in train.val too": _task("x", "b2", "g1", "heldout_types", "wrong_slice"),
        "is the repaired source of t": _task("x", "g1", "g9", "heldout_functions"),
        "bug type wrong_slice in split train": _task("x", "b2", "g2", "train", "wrong_slice"),
        "f with off_by_one is trained on": _task("x", "b2", "g1", "val", function="f"),
        "template loop is trained on": _task("x", "b2", "g2", "heldout_functions", template="loop"),
        "unknown split": _task("x", "b2", "g2", "test"),
    }
    for message, task in wrong.items():
        (line,) = problems([train, task])
        assert line.startswith("x: ")
        assert message.replace(".", "+") in line


class Unplugged:
    """A real sandbox that fails after some jails."""

    def __init__(self, sandbox: LocalSandbox, left: int):
        self._sandbox = sandbox
        self.left = left

    async def evaluate(self, sources: dict, tests: Tests, limits: Limits | None = None) -> tuple[Outcome, ...]:
        self.left -= 1
        if self.left < 0:
            raise InfrastructureError("unplugged")
        return await self._sandbox.evaluate(sources, tests, limits)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set, built in one go."""
    out = tmp_path_factory.mktemp("whole")
    sizes = [f"--{split.replace('_', '-')}={size}" for split, size in SIZES.items()]
    done = CliRunner().invoke(command, ["build", "--out", str(out), *sizes], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


FILES = ("tasks.jsonl", "stats.json", *(f"{split}.parquet" for split in SIZES))


async def test_an_interrupted_build_goes_on_to_the_same_bytes(
    folder: Path, tmp_path: Path, sandbox: LocalSandbox
) -> None:
    with pytest.raises(InfrastructureError, match="unplugged"):
        await build(tmp_path, Unplugged(sandbox, 40), 0, SIZES)
    assert not (tmp_path / "tasks.jsonl").exists()
    journal = tmp_path / "journal.jsonl"
    known = journal.read_text().count("\n") - 1
    assert known > 0, "a few programs were examined"
    with journal.open("a") as file:
        file.write('{"key": "cut o')

    await build(tmp_path, sandbox, 0, SIZES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name
    keys = [json.loads(line).get("key") for line in journal.read_text().splitlines()[1:]]
    assert len(set(keys)) == len(keys) > known, "what was known is not run again"
    await build(tmp_path, Unplugged(sandbox, 0), 0, SIZES)


def test_sizes_splits_and_tests(folder: Path) -> None:
    tasks = load_tasks(folder).values()
    assert {split: sum(t.split == split for t in tasks) for split in SIZES} == SIZES
    for task in tasks:
        assert (task.bug_type in HELDOUT_OPERATORS) == (task.split == "heldout_types")
        calls = [repr((c.args, c.then)) for c in (*task.public.cases, *task.hidden.cases)]
        assert len(set(calls)) == PUBLIC + HIDDEN
        if task.provenance["repairable"]:
            line, op = task.provenance["repair"]
            assert apply(task.sources["solution.py"], line, op) == task.gold["solution.py"]


def test_parquet_is_what_verl_reads(folder: Path) -> None:
    from pyarrow import parquet

    tasks = load_tasks(folder)
    rows = parquet.read_table(folder / "val.parquet").to_pylist()
    assert len(rows) == SIZES["val"]
    for index, row in enumerate(rows):
        task = tasks[row["reward_model"]["ground_truth"]]
        assert (row["data_source"], row["agent_name"]) == ("bugfix/val", "bugfix")
        assert row["extra_info"]["index"] == index
        assert json.loads(row["extra_info"]["task"])["task_id"] == task.task_id
        (message,) = row["prompt"]
        assert message["role"] == "user"
        assert task.sources["solution.py"].splitlines()[0] in message["content"]


async def test_check_finds_what_is_wrong(folder: Path, sandbox: LocalSandbox) -> None:
    good, other = list(load_tasks(folder).values())[:2]
    assert await check([good, other], sandbox) == []
    swapped = replace(good, sources=good.gold, gold=good.sources)
    lines = await check([swapped], sandbox)
    assert len(lines) == 4
    assert sum("the repaired source fails the" in line for line in lines) == 2
    assert sum("the bug does not show in the" in line for line in lines) == 2
    leaking = replace(other, public=Tests(cases=(*other.public.cases, other.hidden.cases[0])))
    assert await check([leaking], sandbox) == [f"{other.task_id}: an input is both public and hidden"]


def test_commands(folder: Path) -> None:
    run = CliRunner()
    done = run.invoke(command, ["check", str(folder)])
    assert done.exit_code == 0, done.output
    assert "17 tasks hold; no source stands in two splits" in done.output
    assert "rejected mutants" in run.invoke(command, ["stats", str(folder)]).output
    task_id = next(iter(load_tasks(folder)))
    shown = run.invoke(command, ["show", task_id, "--dir", str(folder)]).output
    assert shown.startswith(task_id)
    assert "hidden tests" in shown
