"""Workers: one document for each session that the store knows."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from .._model.record import Session
from .fields import Id, Instant, build_document


class StuckDocument(Struct, kw_only=True):
    """A handler that runs on after its timeout; `overrun` is by how many seconds, at its last heartbeat.

    `place` is the line where it was found, "" if that cannot be seen. If it was `replaced`, its attempt has
    ended as timed out and its slot is used again, but its thread still runs.
    """

    task_id: Id
    type: str
    attempt: int
    overrun: float
    place: str
    replaced: bool


class WorkerDocument(Struct, kw_only=True):
    """A worker's session. If it is not `alive`, its lease has expired and its tasks go to other workers.

    With `all_queues` it serves every queue, and `queues` is empty.
    `types` are the task types that it has handlers for; null if that is not known. `stuck` lists at most 100.
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
    stuck: list[StuckDocument]
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
    stuck = [build_document(StuckDocument, one) for one in session.worker.stuck]
    return build_document(
        WorkerDocument, session.worker, session, session=session.id, alive=alive, stuck=stuck
    )


def last_stuck(
    workers: Iterable[WorkerDocument], task_id: str
) -> tuple[WorkerDocument, StuckDocument] | None:
    """Return a task's last handler that runs on after its timeout, and its worker; None if none is listed."""
    found = ((one, stuck) for one in workers if one.alive for stuck in one.stuck if stuck.task_id == task_id)
    return max(found, key=lambda pair: pair[1].attempt, default=None)
