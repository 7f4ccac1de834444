"""`windlass workers`: the sessions of workers and keepers."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ..._documents.workers import worker_document
from ..._model.record import Session
from ..command import Cli, Command, pass_cli
from ..output import Column, Styled
from ..text import ago

if TYPE_CHECKING:
    from ...app import App


@click.command("workers", cls=Command)
@pass_cli
def workers(cli: Cli) -> None:
    """List workers with their busy slots and last heartbeats."""

    async def work(app: "App") -> None:
        sessions = await app.operator.workers()
        now = await app.operator.now()
        none = "no workers; `windlass worker APP` starts one"
        cli.output.items(sessions, _columns(now), lambda session: worker_document(session, now), none=none)

    cli.run(work)


def _columns(now: datetime) -> Sequence[Column[Session]]:
    def state(session: Session) -> Styled:
        return ("alive", "green") if session.expires_at > now else ("expired", "bold red")

    return (
        Column("name", lambda session: session.worker.name, elastic=True, keeps_end=True),
        Column("state", state),
        Column("busy", _busy, right=True),
        Column("heartbeat", lambda session: ago(session.beat_at, now)),
        Column("started", lambda session: ago(session.started_at, now)),
        Column("queues", lambda session: ", ".join(session.worker.queues), elastic=True),
        Column("host", lambda session: session.worker.host, elastic=True, optional=True),
        Column("pid", lambda session: str(session.worker.pid or ""), right=True, optional=True),
    )


def _busy(session: Session) -> str:
    """The slots in use; a keeper has none."""
    return f"{session.worker.busy}/{session.worker.slots}" if session.worker.slots else ""
