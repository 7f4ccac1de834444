"""Which tasks are meant: filters, pages, and one task by its id, all within the bounds of who asks."""

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta, Struct
from starlette.datastructures import URL

from .._documents.fields import Id, Instant
from .._documents.tasks import TaskPage, task_document
from .._model.filter import Filter, Page, Slice
from .._model.state import State
from .._model.task import Task, TaskId, is_task_id
from .._policy.input.options import checked_instant
from .._policy.input.quoting import quoted
from ..errors import NotFound
from .auth import Caller
from .input_fields import Limit
from .operation import Answer, Asked
from .web.problems import Problem

Text = Annotated[str, Meta(min_length=1, max_length=500, pattern="^[^\\x00]*$")]
Since = Annotated[Instant, Meta(description="At this instant or later.")]
Until = Annotated[Instant, Meta(description="Before this instant.")]
MaybeText = Annotated[str, Meta(max_length=500, pattern="^[^\\x00]*$")]
Several = Meta(min_length=1, max_length=1_000)  # A list that turned out empty must not mean everything.


class Criteria(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks: all that is said must match, and of several values of one kind any."""

    id: Annotated[list[Id], Several] = []
    state: Annotated[list[State], Several] = []
    type: Annotated[list[Text], Several] = []
    queue: Annotated[list[Text], Several] = []
    tenant: Annotated[list[MaybeText], Several] = []  # "": of tasks without one
    root: Id | None = None
    idempotency_key: Text | None = None
    error: Annotated[Text, Meta(description="A part of the last error's type or message.")] | None = None
    created_after: Since | None = None
    created_before: Until | None = None
    finished_after: Since | None = None
    finished_before: Until | None = None


class Listing(Criteria, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks, and how many at a time."""

    id: Annotated[list[Id], Meta(max_length=300)] = []  # More do not fit into the head of a request.
    limit: Limit = 100
    cursor: Annotated[str, Meta(description="The `cursor` of the page before.")] | None = None
    newest_first: bool = False


def sought(caller: Caller, asked: Criteria, *states: State) -> Filter:
    """The tasks that are meant and that the caller may see; if states are named, of these alone."""
    found = tuple(asked.state) if asked.state else None
    if states:
        found = tuple(state for state in states if found is None or state in found)
    return caller.sees(
        Filter(
            ids=tuple(asked.id) or None,
            states=found,
            types=tuple(asked.type) or None,
            queues=tuple(asked.queue) or None,
            tenants=tuple(asked.tenant) or None,
            root=asked.root,
            idempotency_key=asked.idempotency_key,
            error=asked.error,
            created_after=_utc(asked.created_after),
            created_before=_utc(asked.created_before),
            finished_after=_utc(asked.finished_after),
            finished_before=_utc(asked.finished_before),
        )
    )


async def page_of_tasks(asked: Asked[Listing, Any], *states: State) -> Answer:
    """A page of the tasks that are meant, with a link to the next."""
    query = asked.query
    page = Page(limit=query.limit, cursor=checked_cursor(query.cursor), newest_first=query.newest_first)
    found = await asked.service.app.operator.find(sought(asked.caller, query, *states), page)
    value = TaskPage(
        items=[task_document(task, asked.caller.may_see) for task in found.items], cursor=found.cursor
    )
    return Answer(value=value, headers=next_page(asked, found))


def checked_cursor(cursor: str | None) -> str | None:
    """The cursor of a page, if it can be one."""
    if cursor is not None and not is_task_id(cursor):
        raise Problem(422, "invalid-option", "this is no cursor of a page; take it from an answer")
    return cursor


def next_page(asked: Asked[Any, Any], found: Slice[Any]) -> dict[str, str]:
    """The header that leads on (RFC 8288); none after the last page."""
    if found.cursor is None:
        return {}
    url: URL = asked.request.url.include_query_params(cursor=found.cursor)
    return {"Link": f'<{quote(url.path)}?{url.query}>; rel="next"'}


async def the_task(asked: Asked[Any, Any]) -> Task:
    """The task of the path, within the caller's bounds; NotFound tells nothing of what lies beyond them."""
    return await task_by(asked, asked.path("id"))


async def task_by(asked: Asked[Any, Any], task_id: TaskId) -> Task:
    """A task by its id, within the caller's bounds."""
    if is_task_id(task_id):
        where = asked.caller.sees(Filter(ids=(task_id,)))
        found = await asked.service.app.operator.find(where, Page(limit=1))
        if found.items:
            return found.items[0]
    raise NotFound(
        f"there is no task {quoted(task_id)}: it was never enqueued here, or its record was pruned"
    )


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else checked_instant(value, "instant")
