"""Health: what a check of the store finds, its schema and durability, the keeper, what is kept how long."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ...._documents.fields import build_document
from ...._documents.queues import MAX_QUEUES, RetentionDocument
from ...._documents.workers import WorkerDocument
from ...._http.resources.health import get_check
from ...._http.resources.queues import list_queues
from ...._http.resources.task_types import list_types
from ...._http.resources.work import list_workers
from ...._model.queue import Retention
from ...._policy.history.buckets import RESOLUTIONS
from ...._store.protocol import Finding, Severity
from ...page import Pages
from ...view import View

health = Pages()

MAX_NAMED = 50
"""Queues and types with a retention of their own that are listed."""

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.OK)


@health.screen("/health", "health.html", "Health", live=False)
async def show_health(view: View) -> Mapping[str, Any]:
    """Show the newest check, which is at most a minute old."""
    check, workers, queues, types = await asyncio.gather(
        view.call(get_check),
        view.call(list_workers),
        view.call(list_queues, query={"limit": MAX_QUEUES}),
        view.call(list_types),
    )
    kept = [(f"queue {one.queue}", one.settings.retention) for one in queues.items if one.settings]
    kept += [(f"type {one.name}", one.retention) for one in types.items]
    return {
        "check": check,
        "findings": sorted(check.findings, key=lambda finding: _ORDER.index(finding.severity)),
        "errors": _number(check.findings, Severity.ERROR),
        "warnings": _number(check.findings, Severity.WARNING),
        "schema": max((one.number for one in check.migrations if one.applied), default=None),
        "pending": [one for one in check.migrations if not one.applied],
        "size": next((one.message for one in check.findings if one.subject == "size"), None),
        "keeper": _keeper(workers.items),
        "default": build_document(RetentionDocument, Retention()),
        "kept": [(name, retention) for name, retention in kept if retention is not None][:MAX_NAMED],
        "history": [(one.length.total_seconds(), one.kept.total_seconds()) for one in RESOLUTIONS],
    }


def _number(findings: Sequence[Finding], severity: Severity) -> int:
    return sum(finding.severity is severity for finding in findings)


def _keeper(workers: Sequence[WorkerDocument]) -> WorkerDocument | None:
    return next((one for one in workers if one.keeper and one.alive), None)
