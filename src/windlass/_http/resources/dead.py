"""Dead letters: see them, bring them back, or be rid of them. (L1, L2)"""

from typing import Annotated

from msgspec import Meta

from ..._documents.tasks import TaskPage
from ..._model.key import Scope
from ..._model.state import State
from ..input_fields import Why
from ..operation import Answer, Asked, NoQuery, Operations
from ..task_query import Listing, page_of_tasks, sought, the_task
from ..web.problems import Problem
from .tasks import Many, Number, Reason, counted

dead = Operations("dead letters")

_LONGEST = 60  # seconds that a slow replay may take

GoodReason = Annotated[Why, Meta(min_length=1)]


class Replays(Many, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters come back, and how many of them a second at most."""

    per_second: Annotated[float, Meta(gt=0, le=10_000)] | None = None


class Discards(Many, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters are deleted for good, and why: this must be said."""

    why: GoodReason


class Discarding(Reason, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why it is deleted for good."""

    why: GoodReason


@dead("GET", "/dead", scope=Scope.READ, bound=True, query=Listing, answer=TaskPage)
async def list_dead(asked: Asked[Listing, None]) -> Answer:
    """List dead letters, oldest first unless asked otherwise."""
    return await page_of_tasks(asked, State.DEAD)


@dead("POST", "/dead/replay", scope=Scope.OPERATE, bound=True, body=Replays, answer=Number)
async def replay_dead(asked: Asked[NoQuery, Replays]) -> Number:
    """Bring dead letters back. With `per_second` the answer comes when the last one is: within a minute."""
    body = asked.body
    where = sought(asked.caller, body.where, State.DEAD)
    if body.dry_run:
        return await counted(asked, where)
    if body.per_second is not None and body.limit > body.per_second * _LONGEST:
        raise Problem(
            422, "invalid-option", f"that would take longer than {_LONGEST} seconds: ask for fewer at a time"
        )
    done = await asked.service.app.operator.replay(
        where, by=asked.by(body.why), limit=body.limit, per_second=body.per_second
    )
    return Number(number=done)


@dead("POST", "/dead/discard", scope=Scope.OPERATE, bound=True, body=Discards, answer=Number)
async def discard_dead(asked: Asked[NoQuery, Discards]) -> Number:
    """Delete dead letters for good; the audit log keeps why."""
    where = sought(asked.caller, asked.body.where, State.DEAD)
    if asked.body.dry_run:
        return await counted(asked, where)
    by = asked.by(asked.body.why)
    return Number(number=await asked.service.app.operator.discard(where, by=by, limit=asked.body.limit))


@dead(
    "DELETE",
    "/dead/{id}",
    scope=Scope.OPERATE,
    bound=True,
    query=Discarding,
    status=204,
    answers=(404, 409),
)
async def discard_dead_letter(asked: Asked[Discarding, None]) -> None:
    """Delete one dead letter for good; the audit log keeps why."""
    task = await the_task(asked)
    await asked.service.app.operator.discard_one(task.id, by=asked.by(asked.query.why))
