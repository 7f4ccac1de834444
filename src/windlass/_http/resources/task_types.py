"""Task types that apps have published."""

from ..._documents.task_types import TypeList, type_document
from ..._model.key import Scope
from ..operation import AnyRequest, ApiRequest, Operations
from ..store_secrets import require_type_secrets
from .tasks import ReasonQuery

types = Operations("task types")


@types("GET", "/types", Scope.READ)
async def list_types(request: AnyRequest) -> TypeList:
    """List the task types that apps have published, by name: defaults, backoff and retention."""
    return TypeList(items=[type_document(one) for one in await request.operator().types()])


@types("DELETE", "/types/{name}", Scope.OPERATE, status=204)
async def remove_type(request: ApiRequest[ReasonQuery, None]) -> None:
    """Remove a task type that no app declares any more. Its tasks stay, and follow the defaults.

    One that declares secret fields needs the scope `reveal`, too: without it they are not masked any more.
    """
    name = request.path("name")
    await require_type_secrets(request.service, request.caller, name)
    await request.operator(request.query.why).remove_type(name)
