"""Dead letters: list, replay and discard them."""

from functools import partial
from typing import Annotated

from msgspec import Meta

from ..._documents.tasks import TaskPage
from ..._model.key import Scope
from ..._model.state import State
from ..input_fields import Why
from ..operation import ApiRequest, ApiResponse, NoQuery, Operations
from ..task_query import TaskListQuery, task_in_path, task_page
from ..web.problems import Problem
from .tasks import BulkInput, ReasonQuery, TaskCount, act_on

dead = Operations("dead letters")

_MAX_SECONDS = 60  # of a replay with a rate

RequiredReason = Annotated[Why, Meta(min_length=1)]


class BulkReplayInput(BulkInput, kw_only=True, forbid_unknown_fields=True):
    """The dead letters to replay; `per_second` limits the rate."""

    per_second: Annotated[float, Meta(gt=0, le=10_000)] | None = None


class BulkDiscardInput(BulkInput, kw_only=True, forbid_unknown_fields=True):
    """The dead letters to delete; `why` is required."""

    why: RequiredReason


class DiscardQuery(ReasonQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for deleting it."""

    why: RequiredReason


@dead("GET", "/dead", Scope.READ, bound=True)
async def list_dead(request: ApiRequest[TaskListQuery, None]) -> ApiResponse[TaskPage]:
    """List dead letters, oldest first unless `newest_first`."""
    return await task_page(request, State.DEAD)


@dead("POST", "/dead/replay", Scope.OPERATE, bound=True)
async def replay_dead(request: ApiRequest[NoQuery, BulkReplayInput]) -> TaskCount:
    """Replay dead letters. With `per_second`, the response is sent after the last one, within 60 seconds."""
    body = request.body
    if not body.dry_run and body.per_second is not None and body.limit > body.per_second * _MAX_SECONDS:
        raise Problem(
            "invalid-option",
            f"limit / per_second exceeds {_MAX_SECONDS} seconds; lower limit or raise per_second",
        )
    replay = partial(request.operator().replay, per_second=body.per_second)
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
