"""Queues: how full they are, whether they flow, whose turn it is in them. (F2, F3, F6)"""

from datetime import timedelta
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._documents.fields import Seconds
from ..._documents.queues import QueueDocument, QueueList, RetentionDocument, queue_documents
from ..._model.filter import Filter
from ..._model.key import Scope
from ..._model.queue import MAX_STRIPES, MAX_WEIGHT, Fairness, Level, QueueSettings, Retention
from ..._policy.order.queue_options import QueueChanges
from ...errors import NotFound
from ..input_fields import Why
from ..operation import Asked, NoQuery, Operations
from .tasks import Reason

queues = Operations("queues")

Weight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]
Share = Annotated[int, Meta(ge=1, le=99)]


class QueueSet(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is to change; null is the default. Of `weights` and `shares`, null takes one away."""

    paused: bool | UnsetType = UNSET
    fairness: Fairness | UnsetType | None = UNSET
    weights: Annotated[dict[str, Weight | None], Meta(max_length=10_000)] | UnsetType | None = UNSET
    shares: dict[Level, Share | None] | UnsetType | None = UNSET
    ageing: Seconds | UnsetType | None = UNSET
    retention: RetentionDocument | UnsetType | None = UNSET
    stripes: Annotated[int, Meta(ge=1, le=MAX_STRIPES)] | UnsetType | None = UNSET
    why: Why = ""


@queues("GET", "/queues", scope=Scope.READ, bound=True, answer=QueueList)
async def list_queues(asked: Asked[NoQuery, None]) -> QueueList:
    """List queues, with how many tasks of each are in which state."""
    return QueueList(items=await _documents(asked))


@queues("GET", "/queues/{queue}", scope=Scope.READ, bound=True, answer=QueueDocument, answers=(404,))
async def get_queue(asked: Asked[NoQuery, None]) -> QueueDocument:
    """Show a queue."""
    return await _shown(asked)


@queues(
    "PATCH",
    "/queues/{queue}",
    scope=Scope.OPERATE,
    bound=True,
    body=QueueSet,
    answer=QueueDocument,
    answers=(404,),
)
async def set_queue(asked: Asked[NoQuery, QueueSet]) -> QueueDocument:
    """Change how a queue is set. What is not named stays; programs notice within seconds."""
    body, queue = asked.body, _own(asked)
    changes, paused = _changes(body), None if body.paused is UNSET else body.paused
    if changes or paused is not None:
        await asked.operator(body.why).set_queue(queue, paused=paused, **changes)
    return await _shown(asked)


@queues(
    "POST",
    "/queues/{queue}/pause",
    scope=Scope.OPERATE,
    bound=True,
    query=Reason,
    answer=QueueDocument,
    answers=(404,),
)
async def pause_queue(asked: Asked[Reason, None]) -> QueueDocument:
    """Let no task of a queue start until it is resumed; running ones go on."""
    await asked.operator(asked.query.why).pause(_own(asked))
    return await _shown(asked)


@queues(
    "POST",
    "/queues/{queue}/resume",
    scope=Scope.OPERATE,
    bound=True,
    query=Reason,
    answer=QueueDocument,
    answers=(404,),
)
async def resume_queue(asked: Asked[Reason, None]) -> QueueDocument:
    """Let a queue flow again."""
    await asked.operator(asked.query.why).resume(_own(asked))
    return await _shown(asked)


def _own(asked: Asked[Any, Any]) -> str:
    """The queue of the path, to be changed: it is shared by all tenants, and no one of them may."""
    queue = asked.path("queue")
    asked.caller.needs_to_steer(queue)
    return queue


async def _shown(asked: Asked[Any, Any]) -> QueueDocument:
    """The queue of the path: its counts are a few seconds old, its settings are as they stand."""
    queue = asked.path("queue")
    for one in await _documents(asked):
        if one.queue == queue:
            return one
    raise NotFound(f"nothing is known of a queue {queue[:200]!r}: no task, no setting, no worker")


async def _documents(asked: Asked[Any, Any]) -> list[QueueDocument]:
    overview = await asked.service.overviews.get(asked.caller.sees(Filter()))
    return queue_documents(
        overview,
        await _settings(asked),
        with_workers=not asked.caller.is_bound,
        with_settings=asked.caller.tenant is None,
    )


async def _settings(asked: Asked[Any, Any]) -> list[QueueSettings]:
    seen = asked.caller.queues
    found = await asked.service.app.operator.queues()
    return [one for one in found if seen is None or one.name in seen]


def _changes(body: QueueSet) -> QueueChanges:
    said: Any = {
        name: value for name in QueueChanges.__annotations__ if (value := getattr(body, name)) is not UNSET
    }
    if isinstance(body.retention, RetentionDocument):
        said["retention"] = _retention(body.retention)
    changes: QueueChanges = said
    return changes


def _retention(said: RetentionDocument) -> Retention:
    return Retention(completed=_term(said.completed), cancelled=_term(said.cancelled), dead=_term(said.dead))


def _term(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
