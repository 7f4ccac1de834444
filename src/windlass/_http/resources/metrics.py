"""Metrics for Prometheus."""

from starlette.responses import Response

from ..._model.key import Scope
from ...errors import NotSupported
from ..operation import AnyRequest, Operations

metrics = Operations("metrics")

TEXT = "text/plain; version=0.0.4; charset=utf-8"


@metrics("GET", "/metrics", Scope.READ, response=str, response_type=TEXT, statuses=(501,))
async def get_metrics(request: AnyRequest) -> Response:
    """Return metrics in the format of Prometheus: of this server, and of what is in the store."""
    if request.service.metrics is None:
        raise NotSupported("metrics need an extra on the server: pip install 'windlass[metrics]'")
    accept = request.http.headers.get("accept", "")
    body, kind = await request.service.metrics.exposition(accept)
    return Response(body, headers={"Content-Type": kind})
