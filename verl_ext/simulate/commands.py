"""``verl-ext simulate``: throughput, idle shares and ages of three ways of training, before any of them runs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from verl_ext.types import BadInput

if TYPE_CHECKING:
    from verl_ext.simulate.policies import Policy
    from verl_ext.simulate.report import Row
    from verl_ext.simulate.runs import StepSeconds
    from verl_ext.simulate.workload import Distribution, StepCosts, Workload

MODES = ("sync", "one_step", "one_step_off", "fully_async")
_SHOWN = ("sync", "one_step", "fully_async")
_DEFAULTS = {
    "turns": "uniform:2:8",
    "turn_s": "lognormal:2:0.5",
    "tool_s": "pareto:2:2",
    "after_s": "0",
    "train_s": "20",
    "sync_s": "1",
}
_BATCH, _GROUP = 16, 8
# Sessions from which on a bar is shown: the model plays thousands a second.
_LONG = 15_000
_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)


def _spec(option: str, text: str) -> Any:
    name = option.removeprefix("--").replace("-", "_")
    return click.option(option, metavar="DIST", help=f"{text}  [default: {_DEFAULTS[name]}, or measured]")


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option("--run", type=_PATH, help="A run whose session dump and metrics give the distributions.")
@click.option("--metrics", type=_PATH, help="The run's metrics, where they are not in its folder.")
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(MODES),
    help=f"Only this; repeatable.  [default: {', '.join(_SHOWN)}]",
)
@click.option("--steps", default=50, type=click.IntRange(2), help="Training steps.")
@click.option("--skip", type=click.IntRange(0), help="Steps at the start left out of the figures.  [default: a tenth]")
@click.option("--batch", type=click.IntRange(1), help=f"Prompts a step.  [default: {_BATCH}, or the run's]")
@click.option("--group", type=click.IntRange(1), help=f"Sessions a prompt.  [default: {_GROUP}, or the run's]")
@_spec("--turns", "Turns a session.")
@_spec("--turn-s", "Seconds of generation a turn, at full speed.")
@_spec("--tool-s", "Seconds of the tool after a turn.")
@_spec("--after-s", "Seconds from a session's last turn until it can be trained on.")
@_spec("--train-s", "Trainer seconds a step.")
@_spec("--sync-s", "Seconds to bring new weights to the rollout; generation stops meanwhile.")
@click.option("--slots", type=click.IntRange(1), help="Sessions at a time.  [default: no limit]")
@click.option(
    "--saturation",
    type=click.FloatRange(0, min_open=True),
    help="Requests at full speed; more share it.  [default: all]",
)
@click.option(
    "--overlap-speed",
    default=1.0,
    type=click.FloatRange(0, 1, min_open=True),
    help="Speed of trainer and generation while both work: 1 on separate devices, 0.5 on one shared.",
)
@click.option("--poll-s", default=0.0, type=click.FloatRange(0), help="Seconds between the trainer's looks.")
@click.option("--resume-s", default=0.0, type=click.FloatRange(0), help="Pause of an interrupted request; verl's is 1.")
@click.option(
    "--eta",
    "etas",
    multiple=True,
    type=click.FloatRange(0),
    default=(2.0,),
    help="Staleness of fully_async (verl: warm-up batches); repeatable.",
)
@click.option("--policy", type=click.Choice(("areal", "verl")), default="areal", help="Admission of fully_async.")
@click.option(
    "--order",
    type=click.Choice(("finished", "submitted")),
    help="areal: train the oldest that finished, or strictly in order.  [default: finished]",
)
@click.option("--updates", type=click.IntRange(1), help="verl: parameter_sync_step.  [default: 1]")
@click.option("--threshold", type=click.IntRange(1), help="verl: max_off_policy_threshold.  [default: none]")
@click.option("--strategy", type=click.Choice(("drop", "wait")), help="verl: max_off_policy_strategy.  [default: drop]")
@click.option("--seed", default=0)
@click.option(
    "--compare", multiple=True, metavar="MODE=RUN", help="Set measured steps beside the prediction; repeatable."
)
@click.option("--json", "json_file", type=_FILE, help="Write every figure here.")
@click.option("--plot", type=_FILE, help="Write a PNG here.")
def simulate(**given: Any) -> None:
    """Predict throughput, idle shares and ages of synchronous, one-step and fully asynchronous training.

    DIST is a number, uniform:LOW:HIGH, exponential:MEAN, lognormal:MEAN:SIGMA or pareto:MEAN:ALPHA. With --run, the
    sessions of its dump are drawn again by prompt, and trainer and sync seconds are those of its metrics, without the
    first step of each attempt. docs/simulate.md says what is modelled and what is not.
    """
    from rich.console import Console

    from verl_ext.simulate import report

    numbers = {name: [given[name]] for name in ("saturation", "overlap_speed", "poll_s", "resume_s")}
    for name, values in {"eta": given["etas"], **numbers}.items():
        if not all(value is None or math.isfinite(value) for value in values):
            raise BadInput(f"--{name.replace('_', '-')} must be finite")
    measured = _compared(given["compare"])
    policies = _policies(given)
    for mode in measured:
        if mode not in {mode for mode, _, _ in policies}:
            raise BadInput(f"--compare {mode}=... but {mode} is not simulated; add --mode {mode}")
    inputs = _inputs(given)
    skip = given["steps"] // 10 if given["skip"] is None else given["skip"]
    if skip >= given["steps"]:
        raise BadInput(f"--skip {skip} leaves none of the {given['steps']} steps")
    rows = _run(given, inputs, policies, skip)

    console = Console(highlight=False)
    _print(console, report.table(rows))
    for line in report.notes(rows):
        console.print(line, soft_wrap=True)
    if measured:
        _print(console, report.comparison(rows, measured))
    if given["json_file"]:
        found = report.as_json(rows, {**inputs.described, "skip": skip, "seed": given["seed"]}, measured)
        given["json_file"].parent.mkdir(parents=True, exist_ok=True)
        given["json_file"].write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given["plot"]:
        given["plot"].parent.mkdir(parents=True, exist_ok=True)
        report.draw(rows, given["plot"])


def _print(console: Any, columns: list[tuple[str, ...]]) -> None:
    from rich.table import Table

    shown = Table(*(column[0] for column in columns))
    for cells in zip(*(column[1:] for column in columns), strict=True):
        shown.add_row(*cells)
    console.print(shown)


@dataclass(frozen=True)
class _Inputs:
    workload: Workload
    costs: StepCosts
    batch: int
    group: int
    described: dict[str, Any]


def _inputs(given: dict[str, Any]) -> _Inputs:
    from verl_ext.simulate.workload import Parameters, StepCosts, distribution

    seed, described = given["seed"], {}
    drawn: dict[str, Distribution] = {
        name: distribution(given[name] or default)
        for name, default in _DEFAULTS.items()
        if given[name] or not given["run"]
    }
    if given["run"]:
        workload, batch, group = _from_run(given, drawn, described)
    else:
        if given["metrics"]:
            raise BadInput("--metrics goes with --run; give the run's session dump with it")
        workload = Parameters(seed, *(drawn[name] for name in ("turns", "turn_s", "tool_s", "after_s")))
        batch, group = _BATCH, _GROUP
    batch, group = given["batch"] or batch, given["group"] or group
    described |= {"batch": batch, "group": group, **{name: found.text for name, found in drawn.items()}}
    names = ("steps", "slots", "saturation", "overlap_speed", "poll_s", "resume_s", "policy", "order")
    described |= {name: given[name] for name in (*names, "updates", "threshold", "strategy")}
    return _Inputs(workload, StepCosts(seed, drawn["train_s"], drawn["sync_s"]), batch, group, described)


def _from_run(
    given: dict[str, Any], drawn: dict[str, Distribution], described: dict[str, Any]
) -> tuple[Workload, int, int]:
    from verl_ext.simulate import runs
    from verl_ext.simulate.calibrate import full_speed
    from verl_ext.simulate.workload import Resampled, measured

    run = given["run"]
    for name in ("turns", "turn_s", "tool_s"):
        if given[name]:
            raise BadInput(f"--{name.replace('_', '-')} comes from --run; leave one of them out")
    dump = runs.read_dump(run)
    speed = 1.0
    if not all(name in drawn for name in ("train_s", "sync_s", "after_s")) or given["saturation"]:
        if run.is_file() and not given["metrics"]:
            raise BadInput(
                f"{run} has no trainer seconds; add --metrics FILE, or give --train-s, --sync-s and --after-s"
            )
        steps = runs.read_steps(given["metrics"] or run)
        dump = dump.only({step.number for step in steps})
        drawn.setdefault("train_s", measured([step.train for step in steps]))
        drawn.setdefault("sync_s", measured([step.sync for step in steps]))
        if ("after_s" not in drawn or given["saturation"]) and not runs.synchronous(steps):
            raise BadInput(
                f"{run} is asynchronous: its waits are no generation times; give --after-s, and no --saturation"
            )
        if "after_s" not in drawn:
            drawn["after_s"] = measured([runs.unseen_seconds(dump, steps)])
        if given["saturation"]:
            speed = full_speed(dump, steps, given["saturation"], drawn["after_s"].mean)
    described |= {"run": str(run), "sessions": sum(map(len, dump.groups)), "full_speed": speed}
    return Resampled(given["seed"], dump.groups, speed, drawn["after_s"]), dump.batch, dump.size


def _policies(given: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """``(mode, label, make)``; ``make`` gives the policy for a batch size."""
    modes = given["modes"] or _SHOWN
    known = {"order": "areal", "updates": "verl", "threshold": "verl", "strategy": "verl"}
    for name, policy in known.items():
        if given[name] is not None and (policy != given["policy"] or "fully_async" not in modes):
            raise BadInput(f"--{name} is a setting of fully_async with --policy {policy}, which is not simulated")
    if given["strategy"] and given["threshold"] is None:
        raise BadInput("--strategy says what happens at --threshold; give one")
    found: list[tuple[str, str, Any]] = []
    from verl_ext.simulate import policies

    if "sync" in modes:
        found.append(("sync", "sync", policies.Sync))
    if "one_step" in modes:
        found.append(("one_step", "one step", policies.one_step))
    if "one_step_off" in modes:
        found.append(("one_step_off", "one step off", policies.OneStepOff))
    if "fully_async" in modes:
        found += [("fully_async", *_fully_async(given, eta)) for eta in dict.fromkeys(given["etas"])]
    return found


def _fully_async(given: dict[str, Any], eta: float) -> tuple[str, Any]:
    from verl_ext.simulate import policies

    if given["policy"] == "areal":
        if eta != int(eta):
            raise BadInput(f"--eta {eta:g} must be a whole number; fractions are for --policy verl")
        order = given["order"] or "finished"
        label = f"async, eta {eta:g}" + (", in order" if order == "submitted" else "")
        return label, lambda batch: policies.AReaL(batch, eta=int(eta), order=order)
    settings = {
        "warmup": eta,
        "threshold": given["threshold"],
        "strategy": given["strategy"] or "drop",
        "updates": given["updates"] or 1,
    }
    label = f"verl, {eta:g} warm-up"
    if settings["threshold"]:
        label += f", {settings['strategy']} at {settings['threshold']}"
    if settings["updates"] > 1:
        label += f", {settings['updates']} updates"
    return label, lambda batch: policies.Verl(batch, **settings)


def _run(given: dict[str, Any], inputs: _Inputs, policies: list[tuple[str, str, Any]], skip: int) -> list[Row]:
    from contextlib import nullcontext

    from verl_ext.progress import bar
    from verl_ext.simulate.model import Machine
    from verl_ext.simulate.model import simulate as run_model
    from verl_ext.simulate.report import Row

    limits = {name: given[name] or math.inf for name in ("slots", "saturation")}
    machine = Machine(**limits, **{name: given[name] for name in ("overlap_speed", "poll_s", "resume_s")})
    steps = given["steps"]
    made: list[Policy] = [make(inputs.batch) for _, _, make in policies]
    total = steps * len(made)
    shown = total * inputs.batch * inputs.group >= _LONG
    rows = []
    with bar("simulate", total) if shown else nullcontext(lambda count, note: None) as report:
        for number, ((mode, label, _), policy) in enumerate(zip(policies, made, strict=True)):

            def step_done(step: int, before: int = number * steps, label: str = label) -> None:
                report(before + step, label)

            sizes = {"group": inputs.group, "steps": steps, "skip": skip}
            result = run_model(policy, machine, inputs.workload, inputs.costs, **sizes, step_done=step_done)
            rows.append(Row(mode, label, result))
    return rows


def _compared(pairs: tuple[str, ...]) -> dict[str, list[StepSeconds]]:
    from verl_ext.simulate.runs import read_steps

    found: dict[str, list[StepSeconds]] = {}
    for pair in pairs:
        mode, equals, run = pair.partition("=")
        if not equals or mode not in MODES:
            raise BadInput(f"--compare {pair!r}: write MODE=RUN, with a mode of {', '.join(MODES)}")
        if mode in found:
            raise BadInput(f"--compare has {mode} twice; give one run for each mode")
        found[mode] = read_steps(Path(run))
    return found
