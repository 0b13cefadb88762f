"""``verl-ext grade``: the verdict on a solution, as JSON. ``verl-ext sandbox``: the sandbox as a server."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
from dataclasses import asdict
from pathlib import Path

import click

from verl_ext.sandbox.local import open_sandbox
from verl_ext.types import BadInput, InfrastructureError, Task, Verdict

_isolation = click.option(
    "--isolation",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "bubblewrap", "landlock", "none"]),
    help="auto: bubblewrap, else landlock, else refuse. none: no isolation, for code you trust.",
)


@click.command()
@click.option("--task", required=True, help="FILE.json, FILE.jsonl:ID, or an ID to be found below --tasks.")
@click.option(
    "--solution",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="A file (replaces the task's one editable file), or a directory (its editable files are taken).",
)
@click.option(
    "--tasks",
    default=Path("runs/tasks"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Task file, or directory of task files.",
)
@_isolation
def grade(task: str, solution: Path, tasks: Path, isolation: str) -> None:
    """Prints the verdict of the hidden tests as JSON: passed, cases, trust, failure, seconds.

    Exit code 0: passed; 1: failed; 2: bad input; 3: the sandbox failed.
    """
    try:
        found = find_task(task, tasks)
        verdict = asyncio.run(_grade(found, workspace(found, solution), isolation))
    except BadInput as error:
        click.echo(str(error), err=True)
        raise SystemExit(2) from None
    except InfrastructureError as error:
        click.echo(str(error), err=True)
        raise SystemExit(3) from None
    click.echo(json.dumps(asdict(verdict), indent=2))
    raise SystemExit(0 if verdict.passed else 1)


@click.group()
def sandbox() -> None:
    """The sandbox by itself."""


@sandbox.command(context_settings={"show_default": True})
@click.option("--host", default="127.0.0.1", help="Address to listen on; any but loopback needs a token.")
@click.option("--port", default=8080, type=click.IntRange(1, 65535))
@click.option("--workers", default=len(os.sched_getaffinity(0)), type=click.IntRange(min=1), help="Programs at a time.")
@_isolation
@click.option(
    "--token", envvar="VERL_EXT_SANDBOX_TOKEN", default="", help="Clients must send Authorization: Bearer TOKEN."
)
def serve(host: str, port: int, workers: int, isolation: str, token: str) -> None:
    """Answers SandboxFusion's run_code (Python, standard library) on http://HOST:PORT/run_code until interrupted.

    For verl's own grader: reward.sandbox_fusion.url=http://127.0.0.1:8080/run_code
    """
    if not token and not ipaddress.ip_address(socket.gethostbyname(host)).is_loopback:
        raise BadInput(f"--host {host} is reachable from outside; give a token: VERL_EXT_SANDBOX_TOKEN=... or --token")
    import uvicorn

    from verl_ext.sandbox.serve import app

    asyncio.run(_can_isolate(isolation))
    click.echo(f"run_code: http://{host}:{port}/run_code, {workers} at a time, isolation {isolation}; Ctrl-C ends it")
    uvicorn.run(app(workers, isolation, token), host=host, port=port, log_level="warning")


async def _can_isolate(isolation: str) -> None:
    """Raises :class:`BadInput`, before the server starts, where this machine cannot."""
    await (await open_sandbox(isolation, workers=1)).aclose()


def find_task(name: str, tasks: Path) -> Task:
    """The task that ``--task`` and ``--tasks`` mean; :class:`BadInput` when there is none."""
    from verl_ext.gym.tasks import load_tasks, task_from_json

    path, _, wanted = name.rpartition(":")
    if Path(name).is_file():
        path, wanted = name, ""
    if path and Path(path).suffix == ".json" and not wanted:
        try:
            return task_from_json(json.dumps(json.loads(Path(path).read_text(encoding="utf-8"))))
        except json.JSONDecodeError as error:
            raise BadInput(f"--task {path}: not JSON ({error})") from None
    if path and Path(path).is_file():
        files = [Path(path)]
    elif tasks.exists():
        built = tasks / "tasks.jsonl"  # a build folder holds a journal, too
        files = [built] if built.is_file() else sorted(tasks.rglob("*.jsonl")) if tasks.is_dir() else [tasks]
        wanted = name
    else:
        raise BadInput(f"--task {name}: no such file; give FILE.json, FILE.jsonl:ID, or an ID together with --tasks")
    for file in files:
        loaded = load_tasks(file)
        if wanted in loaded:
            return loaded[wanted]
        if not wanted and len(loaded) == 1:
            return next(iter(loaded.values()))
        if not wanted:
            raise BadInput(f"--task {name}: holds {len(loaded)} tasks; say which one, {name}:ID")
    raise BadInput(f"--task {name}: no task {wanted} in {', '.join(map(str, files)) or 'any file'}")


def workspace(task: Task, solution: Path) -> dict[str, str]:
    """The task's pristine sources with only its editable files replaced; links are not followed."""
    if solution.is_dir():
        chosen = {path: solution / path for path in task.editable if (solution / path).exists()}
    elif len(task.editable) == 1:
        chosen = {task.editable[0]: solution}
    else:
        raise BadInput(f"--solution {solution}: the task has {len(task.editable)} editable files; give a directory")
    sources = dict(task.sources)
    for path, file in chosen.items():
        if file.is_symlink() or not file.resolve().is_relative_to(solution.resolve()):
            raise BadInput(f"--solution: {file} is a link; give a regular file")
        try:
            sources[path] = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise BadInput(f"--solution: {file} is not UTF-8 text") from None
    return sources


async def _grade(task: Task, sources: dict[str, str], isolation: str) -> Verdict:
    sandbox = await open_sandbox(isolation, workers=1)
    try:
        return await sandbox.grade(sources, task.hidden)
    finally:
        await sandbox.aclose()
