"""--archive of the commands that run a keeper; and `windlass archive`, which shows it and turns it off."""

import click

from ..._documents.archive import archive_document
from ..command import Cli, Commands, on_store, setting_option
from ..operator_actions import audit_options
from ..text import stamp

archive_option = setting_option(
    "--archive",
    metavar="DIR",
    help="Write each day of history to DIR before it is pruned  [default: no archive]",
)
"""The option of commands that run a keeper: where it archives history."""


@click.group(cls=Commands)
def archive() -> None:
    """Show how far history is archived, or turn archiving off.

    Keepers archive if they are started with --archive DIR: each day goes to a file before it is pruned.
    """


@archive.command("show")
@on_store
async def show(cli: Cli) -> None:
    """Show up to when ended tasks were archived."""
    found = await cli.operator.archive()
    if found is None:
        cli.output.say("archiving is off", {"until": None, "directory": None})
    elif cli.as_json:
        cli.output.document(archive_document(found))
    else:
        until = stamp(found.until, await cli.operator.now())
        cli.output.fields([("until", until), ("directory", found.directory)])


@archive.command("stop")
@audit_options
@on_store
async def stop(cli: Cli) -> None:
    """Turn archiving off, so that pruning waits for it no longer.

    First restart workers and keepers without --archive: one that has it turns archiving on again.
    """
    await cli.operator.stop_archiving()
    cli.output.say("archiving is off", {"until": None, "directory": None})
