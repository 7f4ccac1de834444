"""Queues: how full they are, whether they flow, whose turn it is in them. (F2, F3, F6)"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._model.filter import Filter
from ..._model.key import Scope
from ..._model.queue import MAX_STRIPES, MAX_WEIGHT, Fairness, Level, QueueSettings, Retention
from ..._observe.overview import COUNTED, Overview
from ..._policy.order.queue_options import QueueChanges
from ...errors import NotFound
from ..documents import Seconds, Why, like
from ..operation import Asked, NoQuery, Operations
from .tasks import Reason

queues = Operations("queues")

Weight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]
Share = Annotated[int, Meta(ge=1, le=99)]


class RetentionDocument(Struct, kw_only=True, forbid_unknown_fields=True):
    """How many seconds the record of an ended task is kept; null is for ever."""

    completed: Seconds | None
    cancelled: Seconds | None
    dead: Seconds | None


class SettingsDocument(Struct, kw_only=True):
    """How a queue is set. `retention` null follows the keeper's own, `ageing` null is strict priority."""

    fairness: Fairness
    weights: dict[str, int]
    shares: dict[Level, int]
    ageing: float | None
    retention: RetentionDocument | None
    stripes: int


class QueueDocument(Struct, kw_only=True):
    """A queue. Counts are a few seconds old at most, and estimates unless they are `exact`.

    `oldest_ready` is for how many seconds the longest waiting task has been due. To a key that is bound,
    `counts` are of what it may see; `workers` and, of a tenant's, `settings` are null.
    """

    queue: str
    paused: bool
    counts: dict[Literal["waiting", "scheduled", "ready", "running", "dead"], int]
    exact: bool
    oldest_ready: float
    workers: int | None
    settings: SettingsDocument | None


class QueueList(Struct, kw_only=True):
    """Every queue that tasks, settings or workers name."""

    items: list[QueueDocument]


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
    overview = await asked.service.overviews.get(asked.caller.sees(Filter()))
    return QueueList(items=queue_documents(asked, overview, await _settings(asked)))


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


def queue_documents(
    asked: Asked[Any, Any], overview: Overview, settings: Iterable[QueueSettings]
) -> list[QueueDocument]:
    """Every queue that the caller may see, by name."""
    known = {one.name: one for one in settings}
    counts = {name: dict.fromkeys(map(str, COUNTED), 0) for name in _names(asked, overview, known)}
    estimated = set()
    for depth in overview.depths:
        counts[depth.queue][str(depth.state)] += depth.number
        if not depth.exact:
            estimated.add(depth.queue)
    ages, serving = overview.oldest_ready(), overview.serving()
    return [
        QueueDocument(
            queue=name,
            paused=name in known and known[name].paused,
            counts=counts[name],  # type: ignore[arg-type]  # the states that are counted
            exact=name not in estimated,
            oldest_ready=ages.get(name, 0.0),
            workers=None if asked.caller.is_bound else serving.get(name, 0),
            settings=None
            if asked.caller.tenant is not None
            else _set(known.get(name) or QueueSettings(name=name)),
        )
        for name in sorted(counts)
    ]


def _names(asked: Asked[Any, Any], overview: Overview, known: Iterable[str]) -> set[str]:
    """The queues that there are for the caller: for a tenant, where it has tasks."""
    return {*overview.queues, *(known if asked.caller.tenant is None else ())}


def _own(asked: Asked[Any, Any]) -> str:
    """The queue of the path, to be changed: it is shared by all tenants, and no one of them may."""
    queue = asked.path("queue")
    asked.caller.needs_to_steer(queue)
    return queue


async def _shown(asked: Asked[Any, Any]) -> QueueDocument:
    """The queue of the path: its counts are a few seconds old, its settings are as they stand."""
    queue = asked.path("queue")
    overview = await asked.service.overviews.get(asked.caller.sees(Filter()))
    for one in queue_documents(asked, overview, await _settings(asked)):
        if one.queue == queue:
            return one
    raise NotFound(f"nothing is known of a queue {queue[:200]!r}: no task, no setting, no worker")


async def _settings(asked: Asked[Any, Any]) -> list[QueueSettings]:
    seen = asked.caller.queues
    found = await asked.service.app.operator.queues()
    return [one for one in found if seen is None or one.name in seen]


def _set(settings: QueueSettings) -> SettingsDocument:
    kept = settings.retention
    retention = None if kept is None else like(RetentionDocument, kept)
    return like(SettingsDocument, settings, settings.ordering, retention=retention)


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
