"""`windlass workers`: who is at work."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ..._model.record import Session
from ..command import Asked, Command, pass_asked
from ..documents import session_document
from ..output import Column, Styled
from ..time_text import ago

if TYPE_CHECKING:
    from ...app import App


@click.command("workers", cls=Command)
@pass_asked
def workers(asked: Asked) -> None:
    """List workers: where they run, how busy they are, when they were last heard of."""

    async def work(app: "App") -> None:
        sessions = await app.operator.workers()
        now = await app.operator.now()
        asked.output.items(
            sessions,
            _columns(now),
            lambda session: session_document(session, now),
            none="no worker is known; start one with `windlass worker APP`",
        )

    asked.run(work)


def _columns(now: datetime) -> Sequence[Column[Session]]:
    def life(session: Session) -> Styled:
        return ("alive", "green") if session.expires_at > now else ("expired", "bold red")

    return (
        Column("name", lambda session: session.worker.name, elastic=True, keeps_end=True),
        Column("state", life),
        Column("busy", _busy, right=True),
        Column("beat", lambda session: ago(session.beat_at, now)),
        Column("started", lambda session: ago(session.started_at, now)),
        Column("queues", lambda session: ", ".join(session.worker.queues), elastic=True),
        Column("host", lambda session: session.worker.host, elastic=True, optional=True),
        Column("pid", lambda session: str(session.worker.pid or ""), right=True, optional=True),
    )


def _busy(session: Session) -> str:
    """How many slots are taken; a keeper has none."""
    return f"{session.worker.busy}/{session.worker.slots}" if session.worker.slots else ""
