"""`manage.py windlass`: the command line of windlass, on the project's app and store."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from windlass._cli.command import Cli
from windlass._cli.root import root

_APP = "windlass.integrations.django:app"


class Command(BaseCommand):
    """Passes all arguments on: `manage.py windlass worker --slots 8`."""

    help = "Run a windlass command on this project: worker, keeper, migrate, check, tasks, dead, …"
    requires_system_checks = ()
    requires_migrations_checks = False

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a command line, without what Django has applied: --settings and --pythonpath."""
        applied = ArgumentParser(add_help=False, allow_abbrev=False)
        applied.add_argument("--settings")
        applied.add_argument("--pythonpath")
        _, arguments = applied.parse_known_args(argv[2:])
        self._run(arguments, f"{argv[0]} {argv[1]}")

    def add_arguments(self, parser: CommandParser) -> None:
        """Take any arguments, for `call_command`."""
        parser.add_argument("args", nargs="...")

    def handle(self, *args: str, **_: Any) -> None:
        """Run the command for `call_command`; raises CommandError unless it succeeds."""
        try:
            self._run([str(argument) for argument in args], "windlass")
        except SystemExit as end:
            if end.code:
                raise CommandError(
                    f"windlass {' '.join(args)} failed with exit code {end.code}",
                    returncode=int(end.code),
                ) from None

    def _run(self, arguments: list[str], name: str) -> None:
        cli = Cli()
        cli.flags["app"] = _APP
        sys.stdout.flush()
        root.main(arguments, prog_name=name, obj=cli)
