"""Tasks: look at them, wait for them, stop them, bring them back. (I1, D13)"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ..._documents.fields import Id
from ..._documents.tasks import AttemptList, TaskDocument, TaskPage, attempt_document, task_document
from ..._model.filter import Filter
from ..._model.key import Scope
from ..._model.state import ENDED, State
from ..disconnect import gone
from ..input_fields import Payload, Why
from ..operation import Answer, Asked, NoQuery, Operations
from ..task_query import Criteria, Listing, page_of_tasks, sought, the_task

tasks = Operations("tasks")

MAX_WAIT = 60
MAX_AT_ONCE = 10_000


class Waiting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait."""

    wait: Annotated[
        float,
        Meta(ge=0, le=MAX_WAIT, description="Answer when the task has ended, or after so many seconds."),
    ] = 0


class Reason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why it is done."""

    why: Why = ""


class Edited(Struct, kw_only=True, forbid_unknown_fields=True):
    """How a task comes back: as it was, or with another payload."""

    payload: Payload | UnsetType = UNSET
    why: Why = ""


class Many(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which tasks it is to be done to: at most `limit`, oldest first. `dry_run` only counts them."""

    where: Criteria
    limit: Annotated[int, Meta(ge=1, le=MAX_AT_ONCE)] = 1_000
    dry_run: bool = False
    why: Why = ""


class Number(Struct, kw_only=True):
    """How many tasks it was done to; on a dry run, how many match (`exact`: or about as many)."""

    number: int
    exact: bool = True


class Moved(Struct, kw_only=True):
    """The task, and where it is now."""

    id: Id
    state: State


@tasks("GET", "/tasks", scope=Scope.READ, bound=True, query=Listing, answer=TaskPage)
async def list_tasks(asked: Asked[Listing, None]) -> Answer:
    """List the tasks that match, oldest first unless asked otherwise."""
    return await page_of_tasks(asked)


@tasks("GET", "/tasks/{id}", scope=Scope.READ, bound=True, query=Waiting, answer=TaskDocument, answers=(404,))
async def get_task(asked: Asked[Waiting, None]) -> TaskDocument:
    """Show a task; with `wait`, once it has ended or the time is over, whichever comes first."""
    task = await the_task(asked)
    if asked.query.wait and task.state not in ENDED:
        await asked.service.watch.ended(task.id, asked.query.wait, asked.service.closing, gone(asked.request))
        await asked.still_welcome()
        task = await the_task(asked)
    return task_document(task, asked.caller.may_see)


@tasks("GET", "/tasks/{id}/attempts", scope=Scope.READ, bound=True, answer=AttemptList, answers=(404,))
async def list_attempts(asked: Asked[NoQuery, None]) -> AttemptList:
    """List a task's settled attempts."""
    task = await the_task(asked)
    found = await asked.service.app.operator.attempts(task.id)
    return AttemptList(items=[attempt_document(attempt) for attempt in found])


@tasks(
    "DELETE",
    "/tasks/{id}",
    scope=Scope.OPERATE,
    bound=True,
    query=Reason,
    answer=Moved,
    answers=(202, 404, 409),
)
async def cancel_task(asked: Asked[Reason, None]) -> Answer:
    """Cancel a task: it never starts (200), or it is asked to stop (202, `running`).

    One that has ended is refused (409): an end is final.
    """
    task = await the_task(asked)
    state = await asked.service.app.operator.cancel_one(task.id, by=asked.by(asked.query.why))
    return Answer(value=Moved(id=task.id, state=state), status=200 if state in ENDED else 202)


@tasks(
    "POST",
    "/tasks/{id}/replay",
    scope=Scope.OPERATE,
    bound=True,
    body=Edited,
    needs_body=False,
    answer=Moved,
    answers=(404, 409),
)
async def replay_task(asked: Asked[NoQuery, Edited]) -> Moved:
    """Bring a dead or cancelled task back, perhaps with another payload; its attempts are counted anew."""
    task = await the_task(asked)
    payload = asked.body.payload
    edited = None if payload is UNSET else bytes(payload)
    await asked.service.app.operator.replay_one(task.id, by=asked.by(asked.body.why), payload=edited)
    return Moved(id=task.id, state=State.READY)


@tasks("POST", "/tasks/cancel", scope=Scope.OPERATE, bound=True, body=Many, answer=Number)
async def cancel_tasks(asked: Asked[NoQuery, Many]) -> Number:
    """Cancel the tasks that match and have not ended; running ones are asked to stop."""
    where = sought(asked.caller, asked.body.where, *(state for state in State if state not in ENDED))
    if asked.body.dry_run:
        return await counted(asked, where)
    by = asked.by(asked.body.why)
    return Number(number=await asked.service.app.operator.cancel(where, by=by, limit=asked.body.limit))


async def counted(asked: Asked[Any, Any], where: Filter) -> Number:
    """How many tasks match."""
    counts = await asked.service.app.operator.count(where)
    return Number(number=sum(one.number for one in counts), exact=all(one.exact for one in counts))
