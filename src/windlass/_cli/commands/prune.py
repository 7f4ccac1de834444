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

    Without ages the app's retention applies. With ages, states without one are kept. Queues with a retention
    of their own follow that.
    """
    given = Retention(completed=completed, cancelled=cancelled, dead=dead)
    keep_all = Retention(completed=None, cancelled=None, dead=None)
    if given == keep_all and cli.settings.app is None:
        # The default may be shorter than the retention that the app declares, and deletion is final.
        raise InvalidOption(
            "the retention is unknown; name the app with --app, or give ages, as in --completed 7d --dead 30d"
        )

    async def work() -> None:
        await cli.app.open()
        number = await cli.operator.prune(cli.app.retention if given == keep_all else given)
        cli.output.say(f"pruned {counted(number, 'record')}", {"pruned": number})

    cli.run(work)
