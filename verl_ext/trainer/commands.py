"""``verl-ext exactness``: a dump of training rows against plain transformers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from verl_ext.progress import bar
from verl_ext.types import BadInput

BOUND = 1e-4
_FILE = click.Path(path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("dump", type=_FILE)
@click.option("--model", "folder", type=_FILE, required=True, help="Hugging Face folder with the weights that sampled.")
@click.option("--bound", type=click.FloatRange(0, min_open=True), default=BOUND, show_default=True, help="In nats.")
@click.option("--temperature", type=click.FloatRange(0, min_open=True), help="Of the rollout.  [default: DUMP's, or 1]")
def exactness(dump: Path, folder: Path, bound: float, temperature: float | None) -> None:
    """Compute the log-probs of DUMP once more, by plain transformers in float32; exit 1 if one is beyond the bound.

    DUMP is a file of verl_ext.session_dir or verl_ext.exactness.dump_dir. The table has the largest and the mean
    difference to the sampler's and to the trainer's log-probs, by segment and turn. The rows of step N were sampled by
    the weights after N - 1 steps: those of step 1 by the model that training started from.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from rich.console import Console

    from verl_ext.trainer.rescore import SOURCES, gaps_to, read_dump, rescore

    rows = read_dump(dump)
    model = _load(folder)
    with bar("rows", len(rows)) as report:
        log_probs = rescore(model, rows, temperature=temperature, done=lambda count: report(count, ""))
    gaps = {source: found for source in SOURCES if (found := gaps_to(rows, log_probs, source))}
    if not gaps:
        raise BadInput(f"{dump}: all rows were sampled by other weights than those of their step; none can be compared")
    Console(highlight=False).print(_table(gaps))
    compared = next(iter(gaps.values()))
    if left := len(rows) - len(compared):
        click.echo(f"{left} of {len(rows)} rows left out: sampled by other weights than those of the step")
    passed = False
    for source, found in gaps.items():
        worst = max(found, key=lambda row: row.whole.largest)
        largest = worst.whole.largest
        turn = max(worst.turns, key=lambda index: worst.turns[index].largest, default="none")
        passed |= worst.whole.passes(bound)
        says = "MORE THAN" if worst.whole.passes(bound) else "within"
        click.echo(f"{source}: at most {largest:.3g} nats, {says} {bound:g} (session {worst.row.key}, turn {turn})")
    if passed:
        raise SystemExit(1)


def _load(folder: Path) -> Any:
    if not (folder / "config.json").is_file():
        raise BadInput(
            f"no model in {folder}: it holds no config.json; verl's checkpoints need verl.model_merger first"
        )
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{folder} holds no model that transformers can read: {str(error).splitlines()[0]}") from None


def _table(gaps: dict[str, list]) -> Any:
    from rich.table import Table

    from verl_ext.trainer.gaps import POSITIONS, by_segment, by_turn, whole

    table = Table("where", "tokens", title="differences of log-probs, nats", title_justify="left")
    for source in gaps:
        table.add_column(f"{source} max", justify="right")
        table.add_column("mean", justify="right")
    table.columns[1].justify = "right"

    def add(name: str, spreads: list) -> None:
        cells = [cell for spread in spreads for cell in (f"{spread.largest:.2e}", f"{spread.mean:.2e}")]
        table.add_row(name, f"{spreads[0].tokens:,}", *cells)

    add("all", [whole(found) for found in gaps.values()])
    for name, buckets in (("segment", by_segment), ("turn", by_turn)):
        table.add_section()
        by_source = [buckets(found) for found in gaps.values()]
        for first in by_source[0]:
            after = POSITIONS[POSITIONS.index(first) + 1 :]
            span = (
                f"{first}" if after and after[0] == first + 1 else f"{first}-{after[0] - 1}" if after else f"{first}-"
            )
            add(f"{name} {span}", [found[first] for found in by_source])
    return table
