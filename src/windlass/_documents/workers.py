"""Workers: one document for each session that the store knows."""

from datetime import datetime

from msgspec import Struct

from .._model.record import Session
from .fields import Instant, build_document


class WorkerDocument(Struct, kw_only=True):
    """A worker's session. If it is not `alive`, its lease has expired and its tasks go to other workers.

    With `all_queues` it serves every queue, and `queues` is empty.
    `types` are the task types that it has handlers for; null if that is not known.
    """

    session: str
    name: str
    host: str
    pid: int
    queues: list[str]
    all_queues: bool
    slots: int
    busy: int
    version: str
    types: list[str] | None
    alive: bool
    keeper: bool
    started_at: Instant
    beat_at: Instant
    expires_at: Instant


class WorkerList(Struct, kw_only=True):
    """Every session that the store knows."""

    items: list[WorkerDocument]


def worker_document(session: Session, now: datetime) -> WorkerDocument:
    """Build a session's document; `now` is the store's time."""
    alive = session.expires_at > now
    return build_document(WorkerDocument, session.worker, session, session=session.id, alive=alive)
