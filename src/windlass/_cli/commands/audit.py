"""`windlass audit`: who did what to which task, queue, limit, schedule, alert or key, and why."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ..._model.filter import MAX_PAGE, Page
from ..._model.record import Audit
from ..command import Asked, Command, pass_asked
from ..documents import audit_document
from ..output import Column
from ..time_text import ago

if TYPE_CHECKING:
    from ...app import App


@click.command("audit", cls=Command)
@click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True, help="At most so many."
)
@click.option("--cursor", metavar="ID", help="Go on after this entry, the last of the page before.")
@pass_asked
def audit(asked: Asked, limit: int, cursor: str | None) -> None:
    """List what people did to tasks, queues, limits, schedules, alerts and keys, newest first."""

    async def work(app: "App") -> None:
        found = await app.operator.audit(Page(limit=limit, cursor=cursor, newest_first=True))
        now = await app.operator.now()
        asked.output.items(found.items, _columns(now), audit_document, none="nobody has done anything yet")
        if found.cursor is not None:
            asked.output.note(f"there are more: --cursor {found.cursor}")

    asked.run(work)


def _columns(now: datetime) -> Sequence[Column[Audit]]:
    return (
        Column("when", lambda entry: ago(entry.at, now)),
        Column("action", lambda entry: entry.action),
        Column("about", lambda entry: entry.task_id or entry.subject),
        Column("who", lambda entry: entry.who, elastic=True),
        Column("why", lambda entry: entry.why, elastic=True),
        Column("detail", lambda entry: entry.detail, elastic=True, optional=True),
    )
