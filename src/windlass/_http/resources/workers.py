"""Workers: who works, and how busy each is."""

from msgspec import Struct

from ..._model.key import Scope
from ..._model.record import Session
from ..documents import Instant, like
from ..operation import Asked, NoQuery, Operations

workers = Operations("workers")


class WorkerDocument(Struct, kw_only=True):
    """A worker's session. Not `alive`, it has been silent for too long: its tasks go to others."""

    session: str
    name: str
    host: str
    pid: int
    queues: list[str]
    slots: int
    busy: int
    version: str
    alive: bool
    keeper: bool
    started_at: Instant
    beat_at: Instant
    expires_at: Instant


class WorkerList(Struct, kw_only=True):
    """The sessions that the store knows."""

    items: list[WorkerDocument]


@workers("GET", "/workers", scope=Scope.READ, answer=WorkerList)
async def list_workers(asked: Asked[NoQuery, None]) -> WorkerList:
    """List the workers, and how busy each is."""
    operator = asked.service.app.operator
    now = await operator.now()
    return WorkerList(items=[_worker(one, alive=one.expires_at > now) for one in await operator.workers()])


def _worker(session: Session, *, alive: bool) -> WorkerDocument:
    return like(
        WorkerDocument, session.worker, session, session=session.id, alive=alive, keeper=session.is_keeper
    )
