"""`verl-ext report RUN...`: finished demos side by side, the seeds of one recipe together.

Means over seeds stand beside every seed's own figure, because seeds differ by more than methods often do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import click

from verl_ext.demo.costs import COSTS, costs
from verl_ext.demo.results import SPLITS
from verl_ext.demo.stages import read_json
from verl_ext.types import BadInput

_COLUMNS = ("recipe", "seeds", "steps", "val before %", *(f"{name} %" for name in SPLITS.values()))
_BEHAVIOUR = {"turns": "turns", "redundant_per_success": "redundant a success", "hard_coded": "hard-coded %"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", help="Write the table as Markdown here too.", type=click.Path(path_type=Path))
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Compare finished runs of `verl-ext demo`, given by their folders.

    Runs of one recipe with the same overrides and steps make one row. A cell is the mean over seeds, then every seed's
    own figure in brackets; pass rates are on hidden tests after training, behaviour is that on `val`. A second table
    has what training cost, from the metrics: minutes, tokens a session, waiting. The Markdown file has the command of
    each run too.
    """
    from rich.console import Console

    reports = [read(run) for run in runs]
    tables = [table_rows(reports), cost_rows(reports)]
    console = Console(highlight=False)
    for rows in tables:
        _show(console, rows)
    codes = sorted({found["code"] for found in reports})
    if len(codes) > 1:
        console.print(f"These runs were made by {len(codes)} states of the code: {', '.join(codes)}", soft_wrap=True)
    if out:
        lines = []
        for header, *body in tables:
            lines += [_markdown(header), "|" + "---|" * len(header), *map(_markdown, body), ""]
        lines += [*(f"    {command(found)}" for found in reports), "", f"Code: {', '.join(codes)}"]
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _markdown(row: tuple[str, ...]) -> str:
    return "| " + " | ".join(row) + " |"


def _show(console: Any, rows: Sequence[tuple[str, ...]]) -> None:
    """A table where there is room for it, else a list for each recipe."""
    from rich.table import Table

    shown = Table(*rows[0])
    for row in rows[1:]:
        shown.add_row(*row)
    if console.measure(shown, options=console.options.update(width=1000)).maximum <= console.width:
        console.print(shown)
        return
    for row in rows[1:]:
        console.print(f"[bold]{row[0]}[/bold]", soft_wrap=True)
        listed = Table.grid(padding=(0, 2), pad_edge=True)
        for name, cell in zip(rows[0][1:], row[1:], strict=True):
            listed.add_row(name, cell)
        console.print(listed)


def read(run: Path) -> dict[str, Any]:
    """What ``report.json`` of a finished run holds, and ``costs`` (:func:`~verl_ext.demo.costs.costs`).

    Raises:
        BadInput: The run is not finished, or an older version wrote it.
    """
    found = read_json(run / "report.json")
    if found is None:
        raise BadInput(f"{run} holds no report.json; the same `verl-ext demo` command finishes the run")
    if not {"recipe", "behaviour", "code"} <= found.keys():
        raise BadInput(f"{run}/report.json was written by an older version; run `verl-ext demo` on it again")
    return found | {"costs": costs(run / "train")}


def table_rows(reports: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Header and one row a recipe, in the order of the reports: what was learnt."""
    rows = [(*_COLUMNS, *_BEHAVIOUR.values(), "s a step")]
    for name, seeds in _by_recipe(reports):
        rates = [[100 * found["splits"]["val"]["before"]["value"] for found in seeds]]
        rates += [[100 * found["splits"][split]["after"]["value"] for found in seeds] for split in SPLITS]
        behaviour = [[found["behaviour"]["val"]["after"][name] for found in seeds] for name in _BEHAVIOUR]
        behaviour[-1] = [100 * value for value in behaviour[-1]]
        seconds = [found["timings"].get("step_s_median") for found in seeds]
        numbers, steps = ", ".join(str(found["seed"]) for found in seeds), str(seeds[0]["steps"])
        rows.append((name, numbers, steps, *(_cell(values) for values in (*rates, *behaviour, seconds))))
    return rows


def cost_rows(reports: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The same rows with what was spent; a column that no run has a figure for is left out."""
    names = ["minutes of steps", *(column for column, _ in COSTS.values())]
    names = [name for name in names if any(name in found["costs"] for found in reports)]
    rows = [("recipe", *names)]
    for recipe, seeds in _by_recipe(reports):
        rows.append((recipe, *(_cell([found["costs"].get(name) for found in seeds]) for name in names)))
    return rows


def _by_recipe(reports: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Recipe with overrides, and its runs by seed."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for found in reports:
        groups.setdefault((found["recipe"], tuple(_overrides(found)), found["steps"]), []).append(found)
    for (recipe, *_), runs in groups.items():
        if len({found["seed"] for found in runs}) < len(runs):
            raise BadInput(f"two runs of {recipe} have the same seed; give each run once")
    return [
        (" ".join((recipe, *overrides)), sorted(runs, key=lambda found: found["seed"]))
        for (recipe, overrides, _), runs in groups.items()
    ]


def command(found: dict[str, Any]) -> str:
    """The command that made a run, but for its folders."""
    words = {"recipe": found["recipe"], "seed": found["seed"], "steps": found["steps"], "sessions": found["sessions"]}
    return " ".join(["verl-ext demo", *(f"--{key} {value}" for key, value in words.items()), *_overrides(found)])


def _overrides(found: dict[str, Any]) -> list[str]:
    """Those that say how to train, not where to write."""
    return [override for override in found["overrides"] if not override.startswith("verl_ext.session_dir=")]


def _cell(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    each = ", ".join("–" if value is None else f"{value:.1f}" for value in values)
    return f"{mean(known):.1f} ({each})" if len(values) > 1 else each
