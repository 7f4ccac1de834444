"""History: throughput, failures, waiting and running times, depths."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from ..._documents.history import HistoryDocument, HistoryTotalList, history_document, totals_document
from ..._model.key import Scope
from ..._policy.history.points import History, parse_period
from ..operation import ApiRequest, Operations
from ..service import Service
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


class HistoryRead(Struct, frozen=True, kw_only=True):
    """What of the history to read: `queues` are those that the caller may see."""

    period: str
    queues: tuple[str, ...] | None
    queue: str | None = None
    type: str | None = None

    async def points(self, service: Service) -> HistoryDocument:
        """Read the points of the period."""
        history = await self._history(service)
        size = _BYTES_A_BUCKET * len(history.buckets)
        return await off_loop(size, history_document, history, self.queue, self.type)

    async def totals(self, service: Service) -> HistoryTotalList:
        """Read the totals of queues and types."""
        history = await self._history(service)
        return await off_loop(_BYTES_A_BUCKET * len(history.buckets), totals_document, history)

    async def _history(self, service: Service) -> History:
        history = await service.operator.history(self.period)
        return history if self.queues is None else history.only(self.queues)


@histories("GET", "/history", Scope.READ, bound=True)
async def get_history(request: ApiRequest[HistoryQuery, None]) -> HistoryDocument:
    """Show what happened in a period: tasks that ended, failed attempts, times, depths.

    A step is there about 10 seconds after it is over. Keys bound to queues see only these. Keys bound to a
    tenant are refused, as history is not kept by tenant.
    """
    wanted, query = _wanted(request), request.query
    wanted = replace(wanted, queue=query.queue, type=query.type)
    found: HistoryDocument = await request.service.histories.get((HistoryRead.points, wanted))
    return found


@histories("GET", "/history/types", Scope.READ, bound=True)
async def list_type_history(request: ApiRequest[PeriodQuery, None]) -> HistoryTotalList:
    """Show the same for each queue and type: the whole period, and how many tasks completed when."""
    found: HistoryTotalList = await request.service.histories.get((HistoryRead.totals, _wanted(request)))
    return found


def _wanted(request: "ApiRequest[HistoryQuery, None] | ApiRequest[PeriodQuery, None]") -> HistoryRead:
    request.caller.require_any_tenant()
    parse_period(request.query.period)  # raises here, so that a refusal is not kept
    return HistoryRead(period=request.query.period, queues=request.caller.queues)
