"""The root command: finds the others when they are asked for, and ends every run with a meaning."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from .command import shared_options
from .exit_codes import MEANINGS, guarded
from .terminal import soften

_HERE = "windlass._cli.commands"
_RUN = "windlass._cli.run"
_COMMANDS = {
    "alerts": f"{_HERE}.alerts:alerts",
    "audit": f"{_HERE}.audit:audit",
    "check": f"{_HERE}.check:check",
    "completion": f"{_HERE}.completion:completion",
    "dead": f"{_HERE}.dead:dead",
    "demo": "windlass._cli.demo.command:demo",
    "enqueue": f"{_HERE}.enqueue:enqueue",
    "keeper": f"{_RUN}.keeper:keeper",
    "keys": f"{_HERE}.keys:keys",
    "limits": f"{_HERE}.limits:limits",
    "migrate": f"{_HERE}.migrate:migrate",
    "prune": f"{_HERE}.prune:prune",
    "queues": f"{_HERE}.queues:queues",
    "schedules": f"{_HERE}.schedules:schedules",
    "serve": f"{_RUN}.serve:serve",
    "tasks": f"{_HERE}.tasks:tasks",
    "up": f"{_RUN}.up:up",
    "version": f"{_HERE}.version:version",
    "worker": f"{_RUN}.worker:worker",
    "workers": f"{_HERE}.workers:workers",
}
_COMPLETE_VARIABLE = "_WINDLASS_COMPLETE"


class Root(click.Group):
    """A group whose commands are imported by need, and whose errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command there is."""
        here = [name for name in _COMMANDS if name != "demo" or _has_demo()]
        return sorted({*super().list_commands(ctx), *here})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names, or a hint at the one that was probably meant."""
        meant = get_close_matches(args[0], self.list_commands(ctx), n=1)
        if meant and args[0] not in self.list_commands(ctx):
            raise click.UsageError(f"No such command {args[0]!r}; did you mean {meant[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the exit codes mean."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANINGS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and leave with the exit code: the one entrance, also for click's test runner."""
        del standalone_mode, windows_expand_args
        given = list(sys.argv[1:] if args is None else args)
        name = prog_name or "windlass"

        def work() -> None:
            soften()
            self._main_shell_completion(extra, name, complete_var or _COMPLETE_VARIABLE)
            if any(not _is_text(argument) for argument in given):
                raise click.UsageError("The command line holds bytes that are not UTF-8 text")
            with self.make_context("windlass", given, **extra) as context:
                self.invoke(context)

        sys.exit(guarded(work, given))


def _is_text(argument: str) -> bool:
    """Whether it was UTF-8: what was not arrives as lone surrogates, which no store keeps."""
    return not any("\ud800" <= char <= "\udfff" for char in argument)


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
