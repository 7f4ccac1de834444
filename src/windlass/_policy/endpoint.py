"""Endpoints of webhooks that are disabled: what is stored of one, and how many are kept."""

import hashlib
import re
from collections.abc import Collection
from datetime import datetime

from .._model.record import DisabledEndpoint
from .._model.task import TaskId
from ..errors import InvalidOption
from .alerts import webhook_origin
from .input.foreign_task import check_id
from .input.options import checked_name, checked_text
from .input.quote import printable, quoted

MAX_DISABLED = 10_000
"""Disabled endpoints that a store keeps; those that were disabled longest ago make room."""

_MAX_SHOWN = 300
_DIGEST = re.compile(r"[0-9a-f]{16}", re.ASCII)


def is_url(endpoint: str) -> bool:
    """Whether an endpoint is a URL, and not the name of one in the settings."""
    return endpoint.lower().startswith(("http://", "https://"))


def endpoint_id(endpoint: str, tenant: str) -> str:
    """Return the name under which an endpoint is disabled for a tenant."""
    text = f"{endpoint}\n{tenant}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def disabled_endpoint(endpoint: str, tenant: str, at: datetime, task_id: TaskId) -> DisabledEndpoint:
    """Return the record of an endpoint that wants no more messages. Of a URL it has scheme and host only."""
    shown = webhook_origin(endpoint) if is_url(endpoint) else endpoint
    return DisabledEndpoint(
        name=endpoint_id(endpoint, tenant),
        endpoint=printable(shown)[:_MAX_SHOWN],
        tenant=tenant,
        at=at,
        task_id=task_id,
    )


def to_forget(disabled: Collection[DisabledEndpoint]) -> list[DisabledEndpoint]:
    """Return those that make room for one more, longest disabled first."""
    return sorted(disabled, key=lambda one: (one.at, one.name))[: max(len(disabled) + 1 - MAX_DISABLED, 0)]


def check_endpoint(record: DisabledEndpoint) -> None:
    """Raise InvalidOption for a record that no client makes."""
    if not _DIGEST.fullmatch(record.name):
        raise InvalidOption(f"{quoted(record.name)} is not the id of a disabled endpoint")
    checked_text(record.endpoint, "endpoint", _MAX_SHOWN)
    if record.tenant:
        checked_name(record.tenant, "tenant")
    check_id(record.task_id)
