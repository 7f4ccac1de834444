"""Find tasks for a request: filters, pages and single tasks, all within the bounds of the caller's key."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta, Struct
from starlette.datastructures import URL

from .._documents.fields import Id, Instant
from .._documents.tasks import TaskDocument, TaskPage, task_document
from .._model.attempt import Attempt
from .._model.brief import Brief
from .._model.filter import MAX_PAGE, Filter, Page, Slice
from .._model.key import Scope
from .._model.state import State
from .._model.task import Task, TaskId, is_task_id
from .._policy.input.chain import all_ids, readable_steps, visible_steps
from .._policy.input.options import checked_instant
from .._policy.input.quote import quoted
from .._policy.secrets.shown import masked_attempt, task_mask
from ..errors import NotFound
from .auth import Caller
from .input_fields import Limit, RevealFlag
from .operation import AnyRequest, ApiRequest, ApiResponse
from .page import size_of
from .web.load import held_by
from .web.off_loop import each_off_loop, off_loop
from .web.problems import Problem

_CHAINED = 100  # tasks of chains that are read at once
_CHAINED_PAGES = 20
_FIXED_SIZE = 1_024  # bytes of JSON that a small task counts for
Text = Annotated[str, Meta(min_length=1, max_length=500, pattern="^[^\\x00]*$")]
Since = Annotated[Instant, Meta(description="At this instant or later.")]
Until = Annotated[Instant, Meta(description="Before this instant.")]
TenantText = Annotated[str, Meta(max_length=500, pattern="^[^\\x00]*$")]
FailureId = Annotated[str, Meta(pattern="^([0-9a-f]{16})?$", max_length=16)]
Cursor = Annotated[str, Meta(description="The `cursor` of the previous page.")]
Several = Meta(min_length=1, max_length=1_000)  # an empty list must not match everything


class TaskFilter(Brief, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Criteria that tasks must match, all of them; of several values of one criterion, any."""

    id: Annotated[list[Id], Several] = []
    state: Annotated[list[State], Several] = []
    type: Annotated[list[Text], Several] = []
    queue: Annotated[list[Text], Several] = []
    tenant: Annotated[list[TenantText], Several] = []  # "": tasks without a tenant
    root: Id | None = None
    chained: Annotated[bool, Meta(description="Only tasks of chains and groups.")] = False
    idempotency_key: Text | None = None
    error: Annotated[Text, Meta(description="Part of the last error's type or message.")] | None = None
    failure: Annotated[list[FailureId], Several] = []  # "": tasks without one
    created_after: Since | None = None
    created_before: Until | None = None
    finished_after: Since | None = None
    finished_before: Until | None = None
    expires_before: (
        Annotated[Instant, Meta(description="Not started, and expiring before this instant.")] | None
    ) = None


class TaskListQuery(TaskFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter, and the page to return."""

    id: Annotated[list[Id], Meta(max_length=300)] = []  # more do not fit into the head of a request
    limit: Limit = 100
    cursor: Cursor | None = None
    newest_first: bool = False
    reveal: RevealFlag = False


def filter_for(caller: Caller, criteria: TaskFilter, *states: State) -> Filter:
    """Return the filter for the tasks that match and that the caller may see; only in `states`, if given."""
    wanted = tuple(criteria.state) if criteria.state else None
    if states:
        wanted = tuple(state for state in states if wanted is None or state in wanted)
    return caller.visible(
        Filter(
            ids=tuple(criteria.id) or None,
            states=wanted,
            types=tuple(criteria.type) or None,
            queues=tuple(criteria.queue) or None,
            tenants=tuple(criteria.tenant) or None,
            root=criteria.root,
            chained=criteria.chained,
            idempotency_key=criteria.idempotency_key,
            error=criteria.error,
            failures=tuple(criteria.failure) or None,
            created_after=_utc(criteria.created_after),
            created_before=_utc(criteria.created_before),
            finished_after=_utc(criteria.finished_after),
            finished_before=_utc(criteria.finished_before),
            expires_before=_utc(criteria.expires_before),
        )
    )


async def task_page(request: ApiRequest[TaskListQuery, Any], *states: State) -> ApiResponse[TaskPage]:
    """Return a page of matching tasks, with a link to the next."""
    query = request.query
    page = Page(limit=query.limit, cursor=checked_cursor(query.cursor), newest_first=query.newest_first)
    find = partial(request.operator().find, filter_for(request.caller, query, *states))
    found = await request.service.pages.read(find, page)
    held_by(request.http).hold_response(sum(map(size_of, found.items)))
    items = await task_documents(request, found.items, reveal=query.reveal)
    return ApiResponse(value=TaskPage(items=items, cursor=found.cursor), headers=next_link(request, found))


async def task_documents(request: AnyRequest, tasks: Sequence[Task], *, reveal: bool) -> list[TaskDocument]:
    """Return the documents of tasks within the key's bounds; with secrets only if that is allowed."""
    if reveal:
        await audit_reveal(request, [task.id for task in tasks])
    build = partial(task_document, may_see=request.caller.may_see, reveal=reveal)
    return await each_off_loop(tasks, shown_size, build)


def shown_size(task: Task) -> int:
    """Return about how many bytes of JSON must be searched for secrets to show a task."""
    return _FIXED_SIZE + size_of(task)


async def masked_attempts(task: Task, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts of a task without its secrets."""
    mask = await off_loop(shown_size(task), task_mask, task)
    return await each_off_loop(attempts, _attempt_size, partial(masked_attempt, mask=mask))


def _attempt_size(attempt: Attempt) -> int:
    error = attempt.error
    text = 0 if error is None else len(error.message) + len(error.traceback or "")
    return _FIXED_SIZE + text + len(attempt.notes or b"")


async def audit_reveal(request: AnyRequest, ids: Sequence[TaskId]) -> None:
    """Record in the audit log that the secrets of these tasks are shown; raise 403 if they may not be."""
    request.caller.require_scope(Scope.REVEAL)
    await request.operator().reveal(ids)


def checked_cursor(cursor: str | None) -> str | None:
    """Return the cursor; raise 422 if it cannot be one."""
    if cursor is not None and not is_task_id(cursor):
        raise Problem("invalid-option", "invalid cursor; take it from the previous page")
    return cursor


async def newest_chains(
    request: AnyRequest, number: int, cursor: str | None
) -> tuple[dict[TaskId, list[Task]], str | None]:
    """Return the tasks of the newest chains and groups by root, and the cursor of the next ones.

    The tasks of a chain or group get their ids when it is enqueued, so they are beside each other. Fewer
    chains are returned if there are very large groups among them. The first task of a group may be missing.
    """
    where = request.caller.visible(Filter(chained=True))
    chains: dict[TaskId, list[Task]] = {}
    for _ in range(_CHAINED_PAGES):
        page = Page(limit=_CHAINED, cursor=cursor, newest_first=True)
        found = await request.service.pages.read(partial(request.operator().find, where), page)
        for task in found.items:
            if task.root not in chains and len(chains) == number:
                return chains, cursor
            chains.setdefault(task.root, []).append(task)
            cursor = task.id
        cursor = found.cursor
        if cursor is None:
            break
    return chains, cursor


def following_ids(caller: Caller, task: Task) -> tuple[TaskId, ...]:
    """Return the ids of the steps that follow a task if nothing fails; of those that the caller may see."""
    return all_ids(visible_steps(readable_steps(task.next), task.tenant, caller.may_see))


def number_of_steps(caller: Caller, task: Task) -> int:
    """Return how many steps that the caller may see are yet to become tasks after this one."""
    return 0 if task.state in (State.COMPLETED, State.CANCELLED) else len(following_ids(caller, task))


def next_link(request: AnyRequest, found: Slice[Any]) -> dict[str, str]:
    """Return the Link header to the next page (RFC 8288); none on the last."""
    if found.cursor is None:
        return {}
    url: URL = request.http.url.include_query_params(cursor=found.cursor)
    return {"Link": f'<{quote(url.path)}?{url.query}>; rel="next"'}


async def task_in_path(request: AnyRequest) -> Task:
    """Return the task whose id is in the path; raise NotFound also if it is outside the key's bounds."""
    task_id = request.path("id")
    found = await visible_tasks(request, [task_id]) if is_task_id(task_id) else {}
    if task_id not in found:
        raise NotFound(f"there is no task {quoted(task_id)}: it was never enqueued, or its record was pruned")
    return found[task_id]


async def visible_tasks(request: AnyRequest, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
    """Return those of the tasks that exist within the key's bounds."""
    operator = request.service.operator
    found: dict[TaskId, Task] = {}
    for start in range(0, len(ids), MAX_PAGE):
        part = tuple(ids[start : start + MAX_PAGE])
        where = request.caller.visible(Filter(ids=part))
        page = await operator.find(where, Page(limit=len(part)))
        found |= {task.id: task for task in page.items}
    return found


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else checked_instant(value, "instant")
