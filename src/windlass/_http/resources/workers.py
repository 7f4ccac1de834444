"""Workers and their sessions."""

from ..._documents.workers import WorkerList, worker_document
from ..._model.key import Scope
from ..operation import AnyRequest, Operations

workers = Operations("workers")


@workers("GET", "/workers", Scope.READ)
async def list_workers(request: AnyRequest) -> WorkerList:
    """List workers with their slots and how many are busy."""
    operator = request.operator()
    now = await operator.now()
    return WorkerList(items=[worker_document(one, now) for one in await operator.workers()])
