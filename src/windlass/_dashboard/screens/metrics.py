"""Metrics: throughput, failures, waiting and running times, for each queue and type."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ..._documents.history import HistoryTotalDocument
from ..._http.resources.history import get_history, list_type_history
from ..._policy.history.buckets import MAX_STORED_BYTES, RESOLUTIONS
from ..charts import PERIODS, backlog, chosen_period, durations, failed, throughput
from ..page import Pages
from ..view import View

metrics = Pages()

SORTS = ("completed", "failed", "wait", "run")
"""What the types can be sorted by, most first."""


@metrics.screen("/metrics", "metrics.html", "Metrics", bound=True, by_tenant=False)
async def show_metrics(view: View) -> Mapping[str, Any]:
    """Show all types, or the charts of one queue, one type or everything."""
    period, sort = chosen_period(view.query("period")), view.query("sort", "completed")
    queue, type_name = view.query("queue"), view.query("type")
    wanted = (
        {"period": period} | ({"queue": queue} if queue else {}) | ({"type": type_name} if type_name else {})
    )
    history, types = await asyncio.gather(
        view.call(get_history, query=wanted), view.call(list_type_history, query={"period": period})
    )
    rows = [one for one in types.items if queue in ("", one.queue) and type_name in ("", one.type)]
    chosen = sort if sort in SORTS else "completed"
    return {
        "period": period,
        "periods": PERIODS,
        "sort": chosen,
        "queue": queue,
        "type": type_name,
        "total": history.total,
        "failed": failed,
        "throughput": throughput(history),
        "backlog": backlog(history),
        "wait": durations(history, "wait"),
        "run": durations(history, "run"),
        "rows": sorted(rows, key=lambda one: _measure(one, chosen), reverse=True),
        "kept": ", ".join(f"{one.name} for {one.kept.days} d" for one in RESOLUTIONS),
        "most": MAX_STORED_BYTES,
    }


def _measure(row: HistoryTotalDocument, sort: str) -> float:
    total = row.total
    if sort == "failed":
        return failed(total)
    if sort == "completed":
        return total.completed
    quantiles = total.wait if sort == "wait" else total.run
    return 0.0 if quantiles is None else quantiles.p95
