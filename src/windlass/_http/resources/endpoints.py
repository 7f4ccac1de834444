"""Endpoints of webhooks that are disabled, as they responded with 410 Gone."""

from ..._documents.endpoints import EndpointList, endpoint_document
from ..._model.key import Scope
from ..operation import AnyRequest, ApiRequest, Operations
from .tasks import ReasonQuery

endpoints = Operations("endpoints")


@endpoints("GET", "/endpoints", Scope.READ)
async def list_endpoints(request: AnyRequest) -> EndpointList:
    """List the endpoints that `deliver_webhook` sends nothing to, as they responded with 410 Gone."""
    return EndpointList(items=[endpoint_document(one) for one in await request.operator().endpoints.list()])


@endpoints("POST", "/endpoints/{name}/enable", Scope.OPERATE, status=204)
async def enable_endpoint(request: ApiRequest[ReasonQuery, None]) -> None:
    """Enable a disabled endpoint, by its id. Workers heed it within 10 seconds; replay its dead letters."""
    await request.operator(request.query.why).endpoints.enable(request.path("name"))
