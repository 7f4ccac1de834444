"""History: throughput, failures, waiting and running times, depths."""

from typing import Annotated

from msgspec import Meta, Struct

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


class HistoryPoints(Struct, frozen=True, kw_only=True):
    """The points of a period: `queues` are those that the caller may see."""

    period: str
    queues: tuple[str, ...] | None
    queue: str | None
    type: str | None

    async def read(self, service: Service) -> HistoryDocument:
        """Read them from the store."""
        history = await _read_history(service, self.period, self.queues)
        size = _BYTES_A_BUCKET * len(history.buckets)
        return await off_loop(size, history_document, history, self.queue, self.type)


class HistoryTotals(Struct, frozen=True, kw_only=True):
    """The totals of queues and types in a period: `queues` are those that the caller may see."""

    period: str
    queues: tuple[str, ...] | None

    async def read(self, service: Service) -> HistoryTotalList:
        """Read them from the store."""
        history = await _read_history(service, self.period, self.queues)
        return await off_loop(_BYTES_A_BUCKET * len(history.buckets), totals_document, history)


HistoryRead = HistoryPoints | HistoryTotals


@histories("GET", "/history", Scope.READ, bound=True)
async def get_history(request: ApiRequest[HistoryQuery, None]) -> HistoryDocument:
    """Show what happened in a period: tasks that ended, failed attempts, times, depths.

    A step is there about 10 seconds after it is over. Keys bound to queues see only these. Keys bound to a
    tenant are refused, as history is not kept by tenant.
    """
    queues, query = _visible_queues(request), request.query
    wanted = HistoryPoints(period=query.period, queues=queues, queue=query.queue, type=query.type)
    found: HistoryDocument = await request.service.histories.get(wanted)
    return found


@histories("GET", "/history/types", Scope.READ, bound=True)
async def list_type_history(request: ApiRequest[PeriodQuery, None]) -> HistoryTotalList:
    """Show the same for each queue and type: the whole period, and how many tasks completed when."""
    wanted = HistoryTotals(period=request.query.period, queues=_visible_queues(request))
    found: HistoryTotalList = await request.service.histories.get(wanted)
    return found


def _visible_queues(
    request: "ApiRequest[HistoryQuery, None] | ApiRequest[PeriodQuery, None]",
) -> tuple[str, ...] | None:
    request.caller.require_any_tenant()
    parse_period(request.query.period)  # raises here, so that a refusal is not kept
    return request.caller.queues


async def _read_history(service: Service, period: str, queues: tuple[str, ...] | None) -> History:
    history = await service.operator.history(period)
    return history if queues is None else history.only(queues)
