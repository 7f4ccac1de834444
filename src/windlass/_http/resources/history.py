"""History: throughput, failures, waiting and running times, depths."""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.history import HistoryDocument, HistoryTotalList, history_document, totals_document
from ..._model.key import Scope
from ..._policy.history.points import History
from ..operation import ApiRequest, Operations
from ..task_query import Text
from ..web.off_loop import off_loop

histories = Operations("history")

_BYTES_A_BUCKET = 2_000  # to add up, about


class PeriodQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The period."""

    period: Annotated[
        str,
        Meta(
            max_length=50,
            description="A duration up to now, at most 91 days. Up to 4 hours it is in steps of 10 seconds, "
            "up to a day of a minute, else of an hour.",
            examples=["6h"],
        ),
    ] = "1h"


class HistoryQuery(PeriodQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The period, and whose history."""

    queue: Annotated[Text, Meta(description="Only of this queue.")] | None = None
    type: Annotated[Text, Meta(description="Only of this task type.")] | None = None


@histories("GET", "/history", Scope.READ, bound=True)
async def get_history(request: ApiRequest[HistoryQuery, None]) -> HistoryDocument:
    """Show what happened in a period: tasks that ended, failed attempts, times, depths.

    A step is there about 6 seconds after it is over. Keys bound to queues see only these. Keys bound to a
    tenant are refused, as history is not kept by tenant.
    """
    history, query = await _read(request), request.query
    size = _BYTES_A_BUCKET * len(history.buckets)
    return await off_loop(size, history_document, history, query.queue, query.type)


@histories("GET", "/history/types", Scope.READ, bound=True)
async def list_type_history(request: ApiRequest[PeriodQuery, None]) -> HistoryTotalList:
    """Show the same for each queue and type: the whole period, and how many tasks completed when."""
    history = await _read(request)
    return await off_loop(_BYTES_A_BUCKET * len(history.buckets), totals_document, history)


async def _read(request: "ApiRequest[HistoryQuery, None] | ApiRequest[PeriodQuery, None]") -> History:
    """Return the history that the caller may see."""
    request.caller.require_any_tenant()
    history = await request.operator().history(request.query.period)
    return history if request.caller.queues is None else history.only(request.caller.queues)
