"""The root command: finds the others when they are asked for, and ends every run with a meaning."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from .asked import Command, shared_options
from .exits import MEANINGS, guarded
from .terminal import soften

_HERE = "windlass._cli.commands"
_COMMANDS = {
    "audit": f"{_HERE}.audit:audit",
    "check": f"{_HERE}.check:check",
    "completion": f"{_HERE}.completion:completion",
    "dead": f"{_HERE}.dead:dead",
    "demo": "windlass._cli.demo.command:demo",
    "enqueue": f"{_HERE}.enqueue:enqueue",
    "migrate": f"{_HERE}.migrate:migrate",
    "prune": f"{_HERE}.prune:prune",
    "queues": f"{_HERE}.queues:queues",
    "tasks": f"{_HERE}.tasks:tasks",
    "version": f"{_HERE}.version:version",
    "worker": f"{_HERE}.worker:worker",
    "workers": f"{_HERE}.workers:workers",
}
_COMPLETE_VARIABLE = "_WINDLASS_COMPLETE"


class Root(click.Group):
    """A group whose commands are imported by need, and whose errors are one line."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command there is."""
        return [name for name in _COMMANDS if name != "demo" or _has_demo()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if name not in self.list_commands(ctx):
            return None
        module, _, attribute = _COMMANDS[name].partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the exit codes mean."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANINGS.items()])

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:
        """Run, and leave with the exit code."""
        given = list(sys.argv[1:] if args is None else args)
        extra.pop("standalone_mode", None)

        def work() -> None:
            soften()
            self._main_shell_completion({}, "windlass", _COMPLETE_VARIABLE)
            with self.make_context("windlass", given, **extra) as ctx:
                self.invoke(ctx)

        sys.exit(guarded(work, given))


def _has_demo() -> bool:
    try:
        return find_spec("windlass._cli.demo.command") is not None
    except ModuleNotFoundError:
        return False


root = Root(
    name="windlass",
    help="A durable task queue: it holds every task it was given until that task has ended.",
    params=list(shared_options()),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
