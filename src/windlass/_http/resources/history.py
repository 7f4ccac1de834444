"""History: throughput, failures, waiting and running times, depths."""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.history import HistoryDocument, history_document
from ..._model.key import Scope
from ..operation import ApiRequest, Operations
from ..task_query import Text
from ..web.off_loop import off_loop

histories = Operations("history")

_BYTES_A_BUCKET = 2_000  # to add up, about


class HistoryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The period, and whose history."""

    period: Annotated[
        str,
        Meta(
            max_length=50,
            description="A duration up to now, at most 91 days. Up to 4 hours it is in steps of 10 seconds, "
            "up to a day of a minute, else of an hour.",
            examples=["6h"],
        ),
    ] = "1h"
    queue: Annotated[Text, Meta(description="Only of this queue.")] | None = None
    type: Annotated[Text, Meta(description="Only of this task type.")] | None = None


@histories("GET", "/history", Scope.READ, bound=True)
async def get_history(request: ApiRequest[HistoryQuery, None]) -> HistoryDocument:
    """Show what happened in a period: tasks that ended, failed attempts, times, depths.

    A step is there about 6 seconds after it is over. Keys bound to queues see only these. Keys bound to a
    tenant are refused, as history is not kept by tenant.
    """
    request.caller.require_any_tenant()
    query = request.query
    history = await request.operator().history(query.period)
    if request.caller.queues is not None:
        history = history.only(request.caller.queues)
    size = _BYTES_A_BUCKET * len(history.buckets)
    return await off_loop(size, history_document, history, query.queue, query.type)
