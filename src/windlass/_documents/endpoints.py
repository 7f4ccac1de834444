"""Endpoints of webhooks that are disabled."""

from datetime import datetime

from msgspec import Struct

from .._model.record import DisabledEndpoint
from .fields import build_document


class EndpointDocument(Struct, kw_only=True):
    """An endpoint that responded with 410 Gone to this task: nothing more is sent to it for this tenant.

    Of a URL only scheme and host are shown.
    """

    id: str
    endpoint: str
    tenant: str
    disabled_at: datetime
    task_id: str


class EndpointList(Struct, kw_only=True):
    """Every disabled endpoint, longest disabled first."""

    items: list[EndpointDocument]


def endpoint_document(disabled: DisabledEndpoint) -> EndpointDocument:
    """Build the document of a disabled endpoint."""
    return build_document(EndpointDocument, disabled, id=disabled.name, disabled_at=disabled.at)
