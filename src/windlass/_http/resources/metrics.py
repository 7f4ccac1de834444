"""Metrics, for Prometheus. (O3, I4)"""

from starlette.responses import Response

from ..._model.key import Scope
from ...errors import NotSupported
from ..operation import Asked, NoQuery, Operations

metrics = Operations("metrics")

TEXT = "text/plain; version=0.0.4; charset=utf-8"


@metrics("GET", "/metrics", scope=Scope.READ, answer=str, gives=TEXT, answers=(501,))
async def get_metrics(asked: Asked[NoQuery, None]) -> Response:
    """Scrape metrics, as Prometheus does: what this server counted, and what is in the store."""
    if asked.service.metrics is None:
        raise NotSupported("this server has no metrics: pip install 'windlass[metrics]' beside it")
    accept = asked.request.headers.get("accept", "")
    body, kind = await asked.service.metrics.exposition(accept)
    return Response(body, headers={"Content-Type": kind})
