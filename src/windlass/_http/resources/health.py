"""The server itself: health, readiness, API documentation, metrics, and the check of its store."""

import asyncio
import platform
from collections.abc import Awaitable, Sequence
from importlib import metadata
from time import monotonic
from typing import Any, Literal

from msgspec import Struct
from starlette.responses import Response

from ..._documents.check import CheckDocument
from ..._documents.fields import Instant
from ..._model.filter import Page
from ..._model.key import Scope
from ..._model.queue import QueueSettings
from ..._model.record import Session
from ..._observe.damage import damaged_tasks
from ..._observe.health import check_durability, check_queues, check_quotas, check_signatures
from ..._store.protocol import Durability, Finding, Severity, all_records
from ...errors import NotSupported, StoreError
from ..bounds.quotas import StoredUse
from ..docs import openapi, page
from ..operation import AnyRequest, Operations
from ..service import Service
from ..web.problems import Problem
from ..web.shared_response import SharedResponse

health = Operations("this server")
metrics = Operations("metrics")
checks = Operations("check")

TIMEOUT_SECONDS = 2.0
PART_SECONDS = 5.0
"""Time for one part of a check."""

_METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_CONDITIONAL: dict[str, Any] = {
    "statuses": (304,),
    "request_headers": ("If-None-Match",),
    "response_headers": ("ETag",),
}


class HealthDocument(Struct, kw_only=True):
    """The process responds. `durability` is what an acknowledged write survives, and `why`."""

    status: Literal["ok"] = "ok"
    durability: Durability
    why: str


class ReadinessDocument(Struct, kw_only=True):
    """The store responds; `now` is its time. `keeper`: whether one runs (it fires schedules and rescues)."""

    status: Literal["ready"] = "ready"
    durability: Durability
    keeper: bool
    now: Instant


@health("GET", "/healthz", scope=None, bound=True, urgent=True)
async def healthz(request: AnyRequest) -> HealthDocument:
    """Check that the process responds, and how durable its store is."""
    promise = request.service.store.promise
    return HealthDocument(durability=promise.durability, why=promise.why)


@health("GET", "/readyz", scope=None, bound=True, urgent=True)
async def readyz(request: AnyRequest) -> ReadinessDocument:
    """Check that the server can serve: the store responds and has the expected schema.

    A missing keeper is reported but does not make the server unready: tasks can still be enqueued.
    """
    store = request.service.store
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await store.open()
            await store.records(QueueSettings, Page(limit=1))  # some stores know the time without a query
            now = await store.now()
            sessions = await all_records(store, Session)
    except (StoreError, TimeoutError) as error:  # its message may name hosts and files
        code = error.code if isinstance(error, StoreError) else "store-unavailable"
        raise Problem(code, "the store is not usable; see the server's log", status=503) from None
    keeper = any(one.worker.keeper and one.expires_at > now for one in sessions)
    return ReadinessDocument(durability=store.promise.durability, keeper=keeper, now=now)


@checks("GET", "/check", Scope.READ)
async def get_check(request: AnyRequest) -> CheckDocument:
    """Check the store, as `windlass check` does: settings, schema, damage, what no worker serves.

    At most a minute old, as a check costs the store some work. What cannot be checked within seconds is
    reported as a finding.
    """
    return await request.service.checks.get(check_service)


@health("GET", "/openapi.json", scope=None, bound=True, response=dict[str, Any], **_CONDITIONAL)
async def openapi_document(request: AnyRequest) -> Response:
    """Return this document: OpenAPI 3.1."""
    return openapi.response(request.service.operations, request.service.app.types.values(), request.http)


@health("GET", "/docs", scope=None, bound=True, response=str, response_type="text/html", **_CONDITIONAL)
async def docs_page(request: AnyRequest) -> Response:
    """Return this document as a self-contained HTML page."""
    return page.response(request.service.operations, request.http)


@metrics("GET", "/metrics", Scope.READ, response=str, response_type=_METRICS_TEXT, statuses=(501,))
async def get_metrics(request: AnyRequest) -> Response:
    """Return metrics in the format of Prometheus: of this server, and of what is in the store."""
    if request.service.metrics is None:
        raise NotSupported("metrics need an extra on the server: pip install 'windlass[metrics]'")
    accept = request.http.headers.get("accept", "")
    use = request.service.store.use
    quotas = use.known if await _is_counted(use) else None
    body, kind = await request.service.metrics.exposition(accept, quotas)
    return SharedResponse(body, headers={"Content-Type": kind})


async def _is_counted(use: StoredUse) -> bool:
    """Whether what tenants have stored could be counted now."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await use.refresh()
    except (StoreError, TimeoutError):
        return False
    return True


async def check_service(service: Service) -> CheckDocument:
    """Check the store of a server; what cannot be checked in time is a finding."""
    began = monotonic()
    store, operator = service.store, service.operator
    await store.open()
    parts = {
        "store": operator.check(),
        "encryption": operator.encryption.check(),
        "tasks": damaged_tasks(store),
        "queues": _queues(service),
        "quotas": _nearly_full(service),
        "alerts": _signatures(service),
    }
    found = await asyncio.gather(*(_in_time(subject, part) for subject, part in parts.items()))
    return CheckDocument(
        at=await store.now(),
        seconds=monotonic() - began,
        durability=store.promise.durability,
        why=store.promise.why,
        version=metadata.version("windlass"),
        python=platform.python_version(),
        findings=[*check_durability(store.promise, (finding for part in found for finding in part))],
        migrations=[*await operator.migrations()],
    )


async def _in_time(subject: str, part: Awaitable[Sequence[Finding]]) -> Sequence[Finding]:
    """Return the findings of a part; or one that tells why there are none."""
    try:
        async with asyncio.timeout(PART_SECONDS):
            return await part
    except TimeoutError:
        message = f"could not be checked within {PART_SECONDS:g} s; run `windlass check`"
        return [Finding(severity=Severity.WARNING, subject=subject, message=message)]
    except StoreError as error:
        message = f"could not be checked: {error}"
        return [Finding(severity=Severity.ERROR, subject=subject, message=message)]


async def _queues(service: Service) -> Sequence[Finding]:
    return check_queues(await service.overviews.get())


async def _nearly_full(service: Service) -> Sequence[Finding]:
    use = service.store.use
    await use.refresh()
    return check_quotas(use.quotas, use.all())


async def _signatures(service: Service) -> Sequence[Finding]:
    if service.app.alert_notifier.secret is not None:
        return ()
    return check_signatures([status.alert for status in await service.operator.alerts.list()])
