"""`windlass prune`: delete what retention no longer covers, now instead of soon."""

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from ..._model.queue import Retention
from ...errors import InvalidOption
from ..command import Asked, Command, pass_asked
from ..operator_actions import audited
from ..options import duration

if TYPE_CHECKING:
    from ...app import App


@click.command("prune", cls=Command)
@click.option("--completed", type=duration, help="Delete completed tasks older than this.")
@click.option("--cancelled", type=duration, help="Delete cancelled tasks older than this.")
@click.option("--dead", type=duration, help="Delete dead tasks older than this.")
@audited
@pass_asked
def prune(
    asked: Asked, completed: timedelta | None, cancelled: timedelta | None, dead: timedelta | None
) -> None:
    """Delete the records of ended tasks by the app's retention, or by these ages.

    A state without an age here is kept. Queues with a retention of their own follow that.
    """
    given = Retention(completed=completed, cancelled=cancelled, dead=dead)
    nothing = Retention(completed=None, cancelled=None, dead=None)
    if given == nothing and asked.settings.app is None:
        # The default retention may not be what the app has declared, and deleting is for ever. (L3)
        raise InvalidOption(
            "prune needs to know the retention: name the app with --app, or give ages, "
            "as in --completed 7d --dead 30d"
        )

    async def work(app: "App") -> None:
        await app.open()
        number = await app.operator.prune(app.retention if given == nothing else given)
        asked.output.say(f"pruned {number:,} {'record' if number == 1 else 'records'}", {"pruned": number})

    asked.run(work)
