"""``verl-ext tasks``: build, show, count and check bug-fixing tasks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from verl_ext.progress import bar
from verl_ext.types import BadInput, Case, Task

DEFAULT_DIR = "runs/tasks"
LONG_DIR = "runs/tasks-long"
SIZES = {"train": 1800, "val": 200, "heldout_functions": 200, "heldout_types": 150}
"""Tasks in each split by default."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def tasks() -> None:
    """Build, show, count and check bug-fixing tasks."""


@tasks.command()
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same bytes.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help=f"Folder.  [default: {DEFAULT_DIR}, with --long {LONG_DIR}]",
)
@click.option("--long", is_flag=True, help="Several files each: more source than a small context holds.")
@click.option("--tools", type=click.Choice(["ops", "code"]), default="ops", show_default=True, help="Tool set.")
@click.option("--train", type=click.IntRange(0), default=SIZES["train"], show_default=True, help="Tasks.")
@click.option("--val", type=click.IntRange(0), default=SIZES["val"], show_default=True, help="Tasks.")
@click.option("--heldout-functions", type=click.IntRange(0), default=SIZES["heldout_functions"], show_default=True)
@click.option("--heldout-types", type=click.IntRange(0), default=SIZES["heldout_types"], show_default=True)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Jails at one time.")
def build(seed: int, out: Path | None, long: bool, tools: str, workers: int, **sizes: int) -> None:
    """Build tasks.jsonl and the parquet files that verl reads; interrupted, call it again to go on."""
    out = out or Path(LONG_DIR if long else DEFAULT_DIR)
    tools = "ops_files" if long and tools == "ops" else tools
    from verl_ext.gym.build import build as build_data
    from verl_ext.gym.splits import SPLITS
    from verl_ext.sandbox import open_sandbox

    async def run() -> None:
        counts = dict.fromkeys((*SPLITS, "checked"), 0)
        sandbox = await open_sandbox(workers=workers)
        try:
            with bar("tasks", sum(sizes.values()) * (1 + long)) as progress:

                def report(split: str, count: int) -> None:
                    counts[split] = count
                    progress(sum(counts.values()), split if split == "checked" else f"now {split}")

                await build_data(out, sandbox, seed, sizes, tools, report, long)
        finally:
            await sandbox.aclose()

    asyncio.run(run())
    _print_stats(out)


@tasks.command()
@click.argument("task_id", metavar="ID")
@click.option("--dir", "folder", type=click.Path(path_type=Path), default=DEFAULT_DIR, show_default=True)
def show(task_id: str, folder: Path) -> None:
    """Print a task: issue, the bug as a diff, tests. ID may be the beginning of an id."""
    from verl_ext.gym.tasks import load_tasks

    known = load_tasks(folder)
    found = [known[task_id]] if task_id in known else [t for i, t in known.items() if i.startswith(task_id)]
    if not found:
        raise BadInput(f"no task {task_id!r} in {folder}; ids look like {next(iter(known), '(the file is empty)')}")
    if len(found) > 1:
        names = ", ".join(t.task_id for t in found[:5])
        raise BadInput(f"{task_id!r} begins {len(found)} ids, give one in full: {names}{' ...' if found[5:] else ''}")
    _print_task(found[0])


@tasks.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path), default=DEFAULT_DIR)
def stats(folder: Path) -> None:
    """Count tasks by split and bug type, rejected mutants by reason, and one-edit repairs."""
    _print_stats(folder)


@tasks.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path), default=DEFAULT_DIR)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Jails at one time.")
def check(folder: Path, workers: int) -> None:
    """Grade repaired and buggy source of every task, prove the splits disjoint; exit 1 if not all is well."""
    from verl_ext.gym.check import check as check_tasks
    from verl_ext.gym.tasks import load_tasks
    from verl_ext.sandbox import open_sandbox

    known = load_tasks(folder)

    async def run() -> list[str]:
        sandbox = await open_sandbox(workers=workers)
        try:
            with bar("tasks", len(known)) as report:
                count = iter(range(1, len(known) + 1))
                return await check_tasks(known.values(), sandbox, lambda: report(next(count), ""))
        finally:
            await sandbox.aclose()

    found = asyncio.run(run())
    for line in found:
        click.echo(line)
    if found:
        raise SystemExit(1)
    click.echo(f"{len(known)} tasks hold; no source stands in two splits")


def _print_stats(folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    path = folder / "stats.json"
    if not path.is_file():
        raise BadInput(f"no {path}; build one with `verl-ext tasks build --out {folder}`")
    splits = json.loads(path.read_text(encoding="utf-8"))["splits"]
    names = list(splits)
    console = Console()

    table = Table("bug type", *names, title="tasks")
    bugs = sorted({bug for split in splits.values() for bug in split["bug_types"]})
    for bug in bugs:
        table.add_row(bug, *(str(splits[n]["bug_types"].get(bug, "")) for n in names))
    table.add_section()
    for key in ("tasks", "functions", "handwritten"):
        table.add_row(key, *(str(splits[n][key]) for n in names))
    shares = (f"{splits[n]['repairable'] / max(1, splits[n]['tasks']):.0%}" for n in names)
    table.add_row("repaired by one menu edit", *shares)
    console.print(table)

    table = Table("reason", *names, title="rejected mutants")
    for reason in sorted({reason for split in splits.values() for reason in split["rejected"]}):
        table.add_row(reason, *(str(splits[n]["rejected"].get(reason, "")) for n in names))
    console.print(table)


def _print_task(task: Task) -> None:
    import difflib

    click.echo(f"{task.task_id}\nsplit {task.split} · bug {task.bug_type} · {json.dumps(dict(task.provenance))}")
    click.echo(f"\n{task.issue}\n")
    for path in task.gold:
        gold, buggy = task.gold[path].splitlines(), task.sources[path].splitlines()
        for line in difflib.unified_diff(buggy, gold, f"{path} (buggy)", f"{path} (repaired)", n=99, lineterm=""):
            click.echo(line)
    for name, tests in (("public", task.public), ("hidden", task.hidden)):
        click.echo(f"\n{name} tests")
        for case in tests.cases:
            click.echo(f"  {_call(case)} {f'raises {case.raises}' if case.raises else f'-> {case.expected!r}'}")


def _call(case: Case) -> str:
    parts = [*map(repr, case.args), *(f"{name}={value!r}" for name, value in case.kwargs.items())]
    steps = "".join(f" .{method}({', '.join(map(repr, args))})" for method, args in case.then)
    return f"{case.call}({', '.join(parts)}){steps}"
