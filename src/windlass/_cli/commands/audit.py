"""`windlass audit`: the audit log."""

from collections.abc import Sequence
from datetime import datetime

import click

from ..._documents.audit import audit_document, summary
from ..._model.filter import MAX_PAGE, Page
from ..._model.record import Audit, AuditFilter
from ..command import Cli, Command, on_store
from ..options import number_option
from ..output import Column
from ..text import ago


@click.command("audit", cls=Command)
@number_option("--limit", most=MAX_PAGE, default=50, help="At most N entries")
@click.option("--cursor", metavar="ID", help="Start after this entry, the last one listed")
@click.option("--by", "who", metavar="NAME", help="Only by people and keys with this in their name")
@click.option("--action", metavar="ACTION", help="Only this action, such as replay")
@click.option("--subject", metavar="TEXT", help="Only about this task id, or what has this in its name")
@on_store
async def audit(cli: Cli, /, limit: int, cursor: str | None, **parts: str | None) -> None:
    """List the audit log, newest first.

    It records who changed which task, queue, limit, schedule, alert or key, and why. With --json, a
    discarded task's entry has its payload, with secrets masked, and its error.
    """
    where = AuditFilter(**{name: part or "" for name, part in parts.items()})
    found = await cli.operator.audit(Page(limit=limit, cursor=cursor, newest_first=True), where)
    now = await cli.operator.now()
    none = "the audit log is empty" if where == AuditFilter() else "no entry matches"
    cli.output.items(found.items, _columns(now), audit_document, none=none)
    if found.cursor is not None:
        cli.output.note(f"there are more entries; --cursor {found.cursor} lists the next ones")


def _columns(now: datetime) -> Sequence[Column[Audit]]:
    return (
        Column("when", lambda entry: ago(entry.at, now)),
        Column("who", lambda entry: entry.who, elastic=True),
        Column("what", _what, elastic=True, wraps=True),
    )


def _what(entry: Audit) -> str:
    return f"{summary(entry)} ({entry.why})" if entry.why else summary(entry)
