"""`windlass workers`: the sessions of workers and keepers."""

from collections.abc import Sequence
from datetime import datetime

import click

from ..._documents.workers import worker_document
from ..._model.record import Session
from ..command import Cli, Command, on_store
from ..output import Column, Styled
from ..text import ago


@click.command("workers", cls=Command)
@click.argument("verb", required=False, type=click.Choice(["list"]), metavar="[list]", expose_value=False)
@on_store
async def workers(cli: Cli) -> None:
    """List workers with their busy slots and last heartbeats."""
    sessions = await cli.operator.workers()
    now = await cli.operator.now()
    none = "no workers; `windlass worker APP` starts one"
    cli.output.items(
        sessions, _columns(sessions, now), lambda session: worker_document(session, now), none=none
    )


def _columns(sessions: Sequence[Session], now: datetime) -> Sequence[Column[Session]]:
    alive, expired = ("alive", "green"), ("expired", "bold red")
    return (
        Column("name", lambda session: session.worker.name, elastic=True, keeps_end=True),
        Column("state", lambda session: alive if session.expires_at > now else expired),
        Column("busy", _busy, right=True),
        *([Column("stuck", _stuck, right=True)] if any(one.worker.stuck for one in sessions) else []),
        Column("heartbeat", lambda session: ago(session.beat_at, now)),
        Column("started", lambda session: ago(session.started_at, now)),
        Column(
            "queues",
            lambda session: "all" if session.worker.all_queues else ", ".join(session.worker.queues),
            elastic=True,
        ),
        Column("host", lambda session: session.worker.host, elastic=True, optional=True),
        Column("pid", lambda session: str(session.worker.pid or ""), right=True, optional=True),
    )


def _stuck(session: Session) -> Styled:
    """How many of its handlers run on after their timeout."""
    return str(len(session.worker.stuck) or ""), "bold red"


def _busy(session: Session) -> str:
    """The slots in use; a keeper has none."""
    return f"{session.worker.busy}/{session.worker.slots}" if session.worker.slots else ""
