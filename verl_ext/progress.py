"""Progress of long work, on a terminal and in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def bar(title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """A progress bar with time left; on a terminal that is none, a line every twenty seconds at most."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if console.is_terminal:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(TextColumn("{task.description}"), *columns, TextColumn("{task.fields[note]}")) as progress:
            task = progress.add_task(title, total=total, note="")
            yield lambda count, note: progress.update(task, completed=count, note=note)
        return
    started = last = time.monotonic()
    click.echo(f"{title} ...", err=True)

    def report(count: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if total and (now - last >= 20 or count == total):
            last = now
            left = (now - started) / max(count, 1) * (total - count)
            click.echo(f"{title}: {count}/{total}, {left:.0f} s left {note}".rstrip(), err=True)

    yield report
