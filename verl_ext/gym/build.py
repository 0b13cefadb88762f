"""Building the data set: programs, bugs, validation, splits, files.

Programs are examined in a fixed order, several at a time, and their results are taken in that order until each split
has its size. So the result does not depend on which jail answered first, and a build of the same seed gives the same
bytes; what was examined is kept in a journal (:mod:`verl_ext.gym.journal`).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from verl_ext.gym.check import check
from verl_ext.gym.export import write_parquet
from verl_ext.gym.journal import Journal
from verl_ext.gym.lengthen import lengthen
from verl_ext.gym.plan import wishes
from verl_ext.gym.prompts import check_tools
from verl_ext.gym.splits import SPLITS, Source, problems, sources
from verl_ext.gym.tasks import dump_tasks
from verl_ext.gym.validate import Examined, examine
from verl_ext.sandbox import Sandbox
from verl_ext.types import BadInput, Task

WINDOW = 8
"""Programs examined at one time: enough to keep the sandbox busy while one of them is parsed."""

Report = Callable[[str, int], None]
"""Told the split and the number of tasks it has, whenever that grows."""


@dataclass
class DataSet:
    """Tasks by split, in the order in which they were found, and mutants rejected on the way by split and reason."""

    tasks: dict[str, list[Task]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    rejected: dict[str, Counter[str]] = field(default_factory=lambda: {split: Counter() for split in SPLITS})

    def all(self) -> list[Task]:
        """Every task, split by split."""
        return [task for split in SPLITS for task in self.tasks[split]]


async def build(
    out: Path,
    sandbox: Sandbox,
    seed: int,
    sizes: Mapping[str, int],
    tools: str = "ops",
    report: Report = lambda split, count: None,
    long: bool = False,
) -> DataSet:
    """Builds the data set into folder ``out``: ``tasks.jsonl``, ``stats.json`` and one parquet file a split.

    Interrupted, it goes on where it stopped when called again.

    Args:
        out: Folder, made when missing.
        sandbox: Runs references and mutants; not closed here.
        seed: The same seed gives the same bytes.
        sizes: Tasks wanted in each split.
        tools: Tool set whose prompts the parquet files hold.
        report: Follows the progress.
        long: Puts each task among correct files of other functions, see :mod:`verl_ext.gym.lengthen`, and grades it
            again as it then stands; ``report`` is told how many are graded, under the name ``checked``.

    Raises:
        BadInput: Sizes that cannot be had, or an unknown tool set.
        InfrastructureError: The sandbox failed.
    """
    check_tools(tools)
    for split, size in sizes.items():
        if split not in SPLITS or size < 0:
            raise BadInput(f"size {split}={size}: splits are {', '.join(SPLITS)}, sizes are not negative")
    out.mkdir(parents=True, exist_ok=True)
    pools = sources(seed, sizes, tools)
    journal = Journal(out / "journal.jsonl", seed)
    try:
        data = await _collect(pools, sizes, journal, sandbox, seed, report)
    finally:
        journal.close()
    if found := problems(data.all()):
        raise AssertionError("\n".join(["splits overlap:", *found]))
    if long:
        data.tasks = {split: lengthen(tasks, seed) for split, tasks in data.tasks.items()}
        checked = count(1)
        if found := await check(data.all(), sandbox, lambda: report("checked", next(checked))):
            raise AssertionError("\n".join(["long tasks do not hold:", *found]))
    _write(out, data, seed, tools)
    return data


async def _collect(
    pools: Mapping[str, Sequence[Source]],
    sizes: Mapping[str, int],
    journal: Journal,
    sandbox: Sandbox,
    seed: int,
    report: Report,
) -> DataSet:
    data = DataSet()
    texts = {source.program.source for pool in pools.values() for source in pool}
    for split in SPLITS:
        size, tasks = sizes.get(split, 0), data.tasks[split]
        if len(tasks) >= size:
            continue
        async with aclosing(_examined(pools[split], journal, sandbox, seed)) as stream:
            async for found in stream:
                data.rejected[split] += found.rejected
                for task in found.tasks:
                    # At most half of val are other bugs of trained functions; the rest are relatives.
                    room = size if task.split == split else sizes.get("val", 0) // 2
                    text = task.sources[task.editable[0]]
                    if text in texts:
                        data.rejected[split]["duplicate"] += 1
                    elif len(data.tasks[task.split]) < room:
                        texts.add(text)
                        data.tasks[task.split].append(task)
                        report(task.split, len(data.tasks[task.split]))
                if len(tasks) >= size:
                    break
        if len(tasks) < size:
            raise BadInput(f"--{split.replace('_', '-')} {size}: only {len(tasks)} valid tasks; ask for fewer")
    return data


async def _examined(pool: Sequence[Source], journal: Journal, sandbox: Sandbox, seed: int) -> AsyncIterator[Examined]:
    """Examines a few programs ahead, and yields in order."""
    pending: deque[asyncio.Task[Examined]] = deque()
    waiting = iter(pool)
    try:
        while True:
            while len(pending) < WINDOW and (source := next(waiting, None)) is not None:
                pending.append(asyncio.create_task(_one(source, journal, sandbox, seed)))
                await asyncio.sleep(0)  # parsing blocks: let the jails be served between two programs
            if not pending:
                return
            yield await pending.popleft()
    except asyncio.CancelledError:
        for task in pending:
            task.cancel()
        raise
    finally:
        await asyncio.gather(*pending, return_exceptions=True)  # half-done work ends in the journal, not in the bin


async def _one(source: Source, journal: Journal, sandbox: Sandbox, seed: int) -> Examined:
    key = f"{source.split}{'+val' if source.also_val else ''}/{source.program.name}"
    known = journal.get(key)
    if known is None:
        known = await examine(source.program, wishes(source, seed), sandbox, seed)
        journal.put(key, known)
    return known


def statistics(data: DataSet, seed: int, tools: str) -> dict:
    """Counts by split: tasks by bug type, repairable ones, functions, and rejected mutants by reason."""
    splits = {}
    for split in SPLITS:
        tasks = data.tasks[split]
        bugs = Counter(task.bug_type for task in tasks)
        splits[split] = {
            "tasks": len(tasks),
            "functions": len({task.provenance["function"] for task in tasks}),
            "handwritten": sum(task.provenance["source"] == "handwritten" for task in tasks),
            "repairable": sum(task.provenance["repairable"] for task in tasks),
            "bug_types": dict(sorted(bugs.items())),
            **_files(tasks),
            "rejected": dict(sorted(data.rejected[split].items())),
        }
    return {"seed": seed, "tools": tools, "splits": splits}


def _files(tasks: Sequence[Task]) -> dict[str, dict[str, int]]:
    """Tasks by number of files, where some have more than one."""
    counts = Counter(len(task.editable) for task in tasks)
    return {"files": {str(n): counts[n] for n in sorted(counts)}} if max(counts, default=1) > 1 else {}


def _write(out: Path, data: DataSet, seed: int, tools: str) -> None:
    dump_tasks(out / "tasks.jsonl", data.all())
    for split in SPLITS:
        write_parquet(out / f"{split}.parquet", data.tasks[split], tools)
    part = out / "stats.json.part"
    part.write_text(json.dumps(statistics(data, seed, tools), indent=1) + "\n", encoding="utf-8")
    os.replace(part, out / "stats.json")
