"""Workers and their sessions."""

from ..._documents.workers import WorkerList, worker_document
from ..._model.key import Scope
from ..operation import ApiRequest, NoQuery, Operations

workers = Operations("workers")


@workers("GET", "/workers", scope=Scope.READ, response=WorkerList)
async def list_workers(request: ApiRequest[NoQuery, None]) -> WorkerList:
    """List workers with their slots and how many are busy."""
    operator = request.service.app.operator
    now = await operator.now()
    return WorkerList(items=[worker_document(one, now) for one in await operator.workers()])
