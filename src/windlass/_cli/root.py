"""The root command `windlass`: imports each command when it is run, and turns errors into exit codes."""

import platform
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version as installed_version
from typing import Any

import click
from click.shell_completion import get_completion_class

from .command import Cli, Commands, pass_cli, shared_options
from .exit_codes import MEANINGS, guarded
from .output import escape_unencodable

_MODULES = {
    **dict.fromkeys(("archive", "dashboard", "keeper", "owner", "serve", "top", "up"), "run"),
    "worker": "worker",
    **dict.fromkeys(("check", "encryption", "export", "migrate", "prune", "shards"), "upkeep"),
    **dict.fromkeys(("alerts", "audit", "dead", "endpoints", "enqueue", "history"), "commands"),
    **dict.fromkeys(
        ("init", "keys", "limits", "queues", "quotas", "schedules", "tasks", "types", "workers"), "commands"
    ),
}
"""The folder of the module that defines a command, both of its name."""

_COMPLETE_VARIABLE = "_WINDLASS_COMPLETE"


class Root(Commands):
    """A group that imports its commands lazily and reports errors in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, or return None if there is none of that name."""
        if cmd_name in self.commands or cmd_name not in self.list_commands(ctx):
            return super().get_command(ctx, cmd_name)
        module = f"windlass._cli.{_MODULES[cmd_name]}.{cmd_name}"
        found: click.Command = getattr(import_module(module), cmd_name)
        return found

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Explain the exit codes."""
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
        """Run the command line and exit with its code; click's test runner enters here, too."""
        del standalone_mode, windows_expand_args
        given = list(sys.argv[1:] if args is None else args)
        name = prog_name or "windlass"

        def work() -> None:
            escape_unencodable()
            self._main_shell_completion(extra, name, complete_var or _COMPLETE_VARIABLE)
            if any(not _is_text(argument) for argument in given):
                raise click.UsageError("The command line contains bytes that are not UTF-8")
            with self.make_context("windlass", given, **extra) as context:
                self.invoke(context)

        sys.exit(guarded(work, given))


def _is_text(argument: str) -> bool:
    """Whether it was UTF-8: other bytes arrive as lone surrogates, which no store can keep."""
    return not any("\ud800" <= char <= "\udfff" for char in argument)


def _say_version(cli: Cli) -> None:
    number, python = installed_version("windlass"), platform.python_version()
    cli.output.say(f"windlass {number} (Python {python})", {"windlass": number, "python": python})


def _version_option() -> click.Option:
    def say(context: click.Context, _option: click.Parameter, value: bool) -> None:
        if value:
            _say_version(context.ensure_object(Cli))
            context.exit()

    text = "Print the version and exit"
    return click.Option(["--version"], help=text, is_flag=True, expose_value=False, callback=say)


root = Root(
    name="windlass",
    help="A durable task queue: every task is kept until it has ended, whatever crashes meanwhile.",
    params=[*shared_options(), _version_option()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)


@root.command("version")
@pass_cli
def version(cli: Cli) -> None:
    """Print the version."""
    _say_version(cli)


@root.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash, put eval "$(windlass completion bash)" into ~/.bashrc.
    """
    found = get_completion_class(shell)
    assert found is not None
    print(found(context.find_root().command, {}, "windlass", _COMPLETE_VARIABLE).source())
