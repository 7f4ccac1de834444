"""`windlass prune`: delete ended tasks by retention now, without waiting for the keeper."""

from datetime import timedelta

import click

from ..._model.queue import Retention
from ..._policy.input.quote import counted
from ...errors import InvalidOption
from ..command import Cli, Command, pass_cli
from ..operator_actions import audit_options
from ..options import duration


@click.command("prune", cls=Command)
@click.option("--completed", type=duration, help="Delete completed tasks that ended this long ago")
@click.option("--cancelled", type=duration, help="Delete cancelled tasks that ended this long ago")
@click.option("--dead", type=duration, help="Delete dead tasks that ended this long ago")
@audit_options
@pass_cli
def prune(cli: Cli, completed: timedelta | None, cancelled: timedelta | None, dead: timedelta | None) -> None:
    """Delete the records of ended tasks.

    Queues, and types whose app has declared a retention, follow their own. Ages apply to all other tasks;
    states without an age are kept. Without any age: 7 days, dead tasks 14.
    """
    given = Retention(completed=completed, cancelled=cancelled, dead=dead)
    keep_all = Retention(completed=None, cancelled=None, dead=None)

    async def work() -> None:
        await cli.app.open()
        if given == keep_all and not await cli.operator.types():
            # The default may be shorter than the retention that an app will declare, and deletion is final.
            raise InvalidOption(
                "the retention is unknown: no app has published its task types to this store; name the app "
                "with --app, or give ages, as in --completed 7d --dead 30d"
            )
        number = await cli.operator.prune(None if given == keep_all else given)
        cli.output.say(f"pruned {counted(number, 'record')}", {"pruned": number})

    cli.run(work)
