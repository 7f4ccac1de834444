"""Workers: who works, and how busy each is."""

from ..._documents.workers import WorkerList, worker_document
from ..._model.key import Scope
from ..operation import Asked, NoQuery, Operations

workers = Operations("workers")


@workers("GET", "/workers", scope=Scope.READ, answer=WorkerList)
async def list_workers(asked: Asked[NoQuery, None]) -> WorkerList:
    """List the workers, and how busy each is."""
    operator = asked.service.app.operator
    now = await operator.now()
    return WorkerList(items=[worker_document(one, now) for one in await operator.workers()])
