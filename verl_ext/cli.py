"""`verl-ext`: a click group that imports a sub-command's module only when that sub-command is called.

`verl-ext --help` therefore answers at once: the help lines stand in the table below, and neither torch nor verl is
imported for them. A user's mistake (:class:`~verl_ext.types.BadInput`) ends in one line on stderr and status 2, an
interruption in one line and status 130.
"""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple

import click

from verl_ext.types import BadInput, InfrastructureError


class _Lazy(NamedTuple):
    module: str
    attribute: str
    help: str


COMMANDS: dict[str, _Lazy] = {
    "demo": _Lazy("verl_ext.demo.commands", "demo", "Train TinyAgent end to end; table and picture before and after."),
    "doctor": _Lazy("verl_ext.doctor", "doctor", "Check versions, plugins, platform and sandbox; say how to mend."),
    "exactness": _Lazy("verl_ext.trainer.commands", "exactness", "Check dumped rows against plain transformers."),
    "grade": _Lazy("verl_ext.sandbox.commands", "grade", "Grade a solution of a task; prints the verdict as JSON."),
    "report": _Lazy("verl_ext.demo.compare", "report", "Compare finished demos: recipes side by side, every seed."),
    "sandbox": _Lazy("verl_ext.sandbox.commands", "sandbox", "Serve the sandbox to tools that speak SandboxFusion."),
    "simulate": _Lazy("verl_ext.simulate.commands", "simulate", "Predict the speed and ages of asynchronous training."),
    "tasks": _Lazy("verl_ext.gym.commands", "tasks", "Build, show, count and check bug-fixing tasks."),
    "tiny": _Lazy("verl_ext.tiny.commands", "tiny", "Build TinyAgent: tokenizer, teacher sessions, SFT."),
}


class LazyGroup(click.Group):
    """A group whose members are named in :data:`COMMANDS` and imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        lazy = COMMANDS[cmd_name]
        return getattr(importlib.import_module(lazy.module), lazy.attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="verl-ext", prog_name="verl-ext")
def cli() -> None:
    """Train language models to repair code with multi-turn reinforcement learning, as plugins on verl."""


def main(args: list[str] | None = None) -> None:
    """Run the command line and leave the process with its status.

    Args:
        args: Command-line words without the program's name; those of the process by default.
    """
    try:
        status = cli.main(args=args, prog_name="verl-ext", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as mistake:  # `verl-ext` alone: the help text, not an error line
        mistake.show()
        sys.exit(mistake.exit_code)
    except click.ClickException as mistake:
        _fail(mistake.format_message(), mistake.exit_code)
    except BadInput as mistake:
        _fail(str(mistake), 2)
    except InfrastructureError as failure:
        _fail(str(failure), 1)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted", 130)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(line: str, status: int) -> None:
    click.echo(f"verl-ext: {line}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
