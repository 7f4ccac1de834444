"""Tasks and dead letters: list, show, wait for, cancel, replay and discard them."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._client.tasks.failures import MAX_FAILURES
from ..._documents.fields import Id, Seconds
from ..._documents.tasks import (
    AttemptList,
    ChainDocument,
    ChainPage,
    FailureList,
    TaskDocument,
    TaskPage,
    attempt_document,
    failure_document,
)
from ..._model.brief import Brief
from ..._model.filter import Dimension, Filter
from ..._model.key import Scope
from ..._model.state import ENDED, State
from ..input_fields import Payload, RevealFlag, Why
from ..long_poll import disconnected, task_ended
from ..operation import AnyRequest, ApiRequest, ApiResponse, NoQuery, Operations
from ..page import size_of
from ..task_query import (
    Cursor,
    TaskFilter,
    TaskListQuery,
    checked_cursor,
    filter_for,
    masked_attempts,
    newest_chains,
    number_of_steps,
    task_documents,
    task_in_path,
    task_page,
    visible_tasks,
)

tasks = Operations("tasks")
dead = Operations("dead letters")

MAX_WAIT = 60
MAX_AT_ONCE = 10_000
MAX_CHAINS = 100

RequiredReason = Annotated[Why, Meta(min_length=1)]


class ShowQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether to show secrets."""

    reveal: RevealFlag = False


class TaskQuery(ShowQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait for the task to end, and whether to show secrets."""

    wait: Annotated[
        float,
        Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for the task to end before responding."),
    ] = 0


class ChainListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page to return."""

    limit: Annotated[int, Meta(ge=1, le=MAX_CHAINS)] = 25
    cursor: Cursor | None = None


class ReasonQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason, for the audit log."""

    why: Why = ""


class DiscardQuery(ReasonQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for deleting it."""

    why: RequiredReason


class FailureQuery(TaskFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dead letters to consider, and how many failures to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_FAILURES)] = MAX_FAILURES


class ReplayInput(Brief, Struct, kw_only=True, forbid_unknown_fields=True):
    """A replay: with the original payload, or with this one."""

    payload: Payload | UnsetType = UNSET
    why: Why = ""


class BulkInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """The tasks to act on: at most `limit`, oldest first. `dry_run` only counts them."""

    where: TaskFilter
    limit: Annotated[int, Meta(ge=1, le=MAX_AT_ONCE)] = 1_000
    dry_run: bool = False
    why: Why = ""


class BulkReplayInput(BulkInput, kw_only=True, forbid_unknown_fields=True):
    """The dead letters to replay: all at once, so many `per_second`, or over `spread` seconds."""

    per_second: Annotated[float, Meta(gt=0, le=10_000)] | None = None
    spread: Seconds | None = None


class BulkDiscardInput(BulkInput, kw_only=True, forbid_unknown_fields=True):
    """The dead letters to delete; `why` is required."""

    why: RequiredReason


class TaskCount(Struct, kw_only=True):
    """The number of tasks acted on; on a dry run, of tasks that match (an estimate unless `exact`)."""

    number: int
    exact: bool = True


class StateCount(Struct, kw_only=True):
    """The number of tasks in a state; an estimate unless `exact`."""

    state: State
    number: int
    exact: bool = True


class StateCounts(Struct, kw_only=True):
    """The number of matching tasks in each state, also in those that have none."""

    items: list[StateCount]


class TaskStateDocument(Struct, kw_only=True):
    """A task and its new state."""

    id: Id
    state: State


@tasks("GET", "/tasks", Scope.READ, bound=True)
async def list_tasks(request: ApiRequest[TaskListQuery, None]) -> ApiResponse[TaskPage]:
    """List matching tasks, oldest first unless `newest_first`."""
    return await task_page(request)


@tasks("GET", "/tasks/counts", Scope.READ, bound=True)
async def count_tasks(request: ApiRequest[TaskFilter, None]) -> StateCounts:
    """Count matching tasks by state. At most a few seconds old; large numbers are estimates."""
    where = filter_for(request.caller, request.query)
    found = {State(one.values[0]): one for one in await request.service.counts.get(where)}
    wanted = where.states if where.states is not None else tuple(State)
    counts = [
        StateCount(state=state, number=found[state].number, exact=found[state].exact)
        if state in found
        else StateCount(state=state, number=0)
        for state in State
        if state in wanted
    ]
    return StateCounts(items=counts)


@tasks("GET", "/tasks/{id}", Scope.READ, bound=True)
async def get_task(request: ApiRequest[TaskQuery, None]) -> TaskDocument:
    """Show a task. With `wait`, respond when it has ended or the time is up."""
    task = await task_in_path(request)
    if request.query.wait and task.state not in ENDED:
        request.begin_stream(size_of(task))
        service, gone = request.service, disconnected(request.http)
        ended = await task_ended(service.store, task.id, request.query.wait, service.closing, gone)
        await request.recheck_key()
        if ended is None:
            task = await task_in_path(request)
        else:  # within the key's bounds, as nobody moves a task to another queue or tenant
            (task,) = await service.client.types.with_result_secrets([ended])
    (document,) = await task_documents(request, [task], reveal=request.query.reveal)
    return document


@tasks("GET", "/tasks/{id}/attempts", Scope.READ, bound=True)
async def list_attempts(request: AnyRequest) -> AttemptList:
    """List a task's settled attempts."""
    task = await task_in_path(request)
    found = await masked_attempts(task, await request.service.store.attempts(task.id))
    return AttemptList(items=[attempt_document(attempt) for attempt in found])


@tasks("DELETE", "/tasks/{id}", Scope.OPERATE, bound=True, statuses=(202, 409))
async def cancel_task(request: ApiRequest[ReasonQuery, None]) -> ApiResponse[TaskStateDocument]:
    """Cancel a task.

    A task that is not running is cancelled at once (200). A running one is asked to stop (202). One that has
    ended is refused (409).
    """
    task = await task_in_path(request)
    state = await request.operator().cancel_one(task.id, by=request.by(request.query.why))
    value = TaskStateDocument(id=task.id, state=state)
    return ApiResponse(value=value, status=200 if state in ENDED else 202)


@tasks("POST", "/tasks/{id}/replay", Scope.OPERATE, bound=True, requires_body=False, statuses=(409,))
async def replay_task(request: ApiRequest[NoQuery, ReplayInput]) -> TaskStateDocument:
    """Replay a dead or cancelled task, optionally with a new payload. Its attempts count from 0 again."""
    task = await task_in_path(request)
    payload = request.body.payload
    edited = None if payload is UNSET else bytes(payload)
    await request.operator().replay_one(task.id, by=request.by(request.body.why), payload=edited)
    request.service.failures.forget()
    return TaskStateDocument(id=task.id, state=State.READY)


@tasks("POST", "/tasks/cancel", Scope.OPERATE, bound=True)
async def cancel_tasks(request: ApiRequest[NoQuery, BulkInput]) -> TaskCount:
    """Cancel matching tasks that have not ended; running ones are asked to stop."""
    return await act_on(request, request.operator().cancel, *(state for state in State if state not in ENDED))


@tasks("GET", "/chains", Scope.READ, bound=True)
async def list_chains(request: ApiRequest[ChainListQuery, None]) -> ChainPage:
    """List chains and groups, the one with the newest task first."""
    chains, cursor = await newest_chains(request, request.query.limit, checked_cursor(request.query.cursor))
    first = await visible_tasks(request, [*chains])
    items = []
    for root, members in chains.items():
        where = request.caller.visible(Filter(root=root))
        counts = await request.service.store.count(where, (Dimension.STATE,))
        document = ChainDocument(
            root=root,
            tasks={State(one.values[0]): one.number for one in counts},
            steps=sum(number_of_steps(request.caller, one) for one in members),
        )
        for name in ("type", "queue", "tenant", "created_at") if root in first else ():
            setattr(document, name, getattr(first[root], name))
        items.append(document)
    return ChainPage(items=items, cursor=cursor)


@dead("GET", "/dead", Scope.READ, bound=True)
async def list_dead(request: ApiRequest[TaskListQuery, None]) -> ApiResponse[TaskPage]:
    """List dead letters, oldest first unless `newest_first`."""
    return await task_page(request, State.DEAD)


@dead("GET", "/dead/failures", Scope.READ, bound=True)
async def list_failures(request: ApiRequest[FailureQuery, None]) -> FailureList:
    """List what dead letters failed with, the most frequent failure first."""
    where = filter_for(request.caller, request.query, State.DEAD)
    found = await request.service.failures.get((where, request.query.limit))
    return FailureList(items=[failure_document(failure) for failure in found])


@dead("POST", "/dead/replay", Scope.OPERATE, bound=True)
async def replay_dead(request: ApiRequest[NoQuery, BulkReplayInput]) -> TaskCount:
    """Replay dead letters. With `per_second` or `spread`, they are scheduled one after another."""
    body = request.body
    replay = partial(request.operator().replay, per_second=body.per_second, spread=body.spread)
    return await act_on(request, replay, State.DEAD)


@dead("POST", "/dead/discard", Scope.OPERATE, bound=True)
async def discard_dead(request: ApiRequest[NoQuery, BulkDiscardInput]) -> TaskCount:
    """Delete dead letters. The audit log records why."""
    return await act_on(request, request.operator().discard, State.DEAD)


@dead("DELETE", "/dead/{id}", Scope.OPERATE, bound=True, status=204, statuses=(409,))
async def discard_dead_letter(request: ApiRequest[DiscardQuery, None]) -> None:
    """Delete a dead letter. The audit log records why."""
    task = await task_in_path(request)
    await request.operator().discard_one(task.id, by=request.by(request.query.why))
    request.service.failures.forget()


async def act_on(
    request: ApiRequest[NoQuery, BulkInput], action: Callable[..., Awaitable[int]], *states: State
) -> TaskCount:
    """Act on the tasks in these states that match; on a dry run, only count them."""
    body = request.body
    where = filter_for(request.caller, body.where, *states)
    if body.dry_run:
        counts = await request.operator().count(where)
        return TaskCount(number=sum(one.number for one in counts), exact=all(one.exact for one in counts))
    number = await action(where, by=request.by(body.why), limit=body.limit)
    request.service.failures.forget()
    return TaskCount(number=number)
