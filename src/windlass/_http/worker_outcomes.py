"""From what a worker in any language says has happened to what becomes of the task.

The worker tells the outcome; the verdict is ours, by the same policy as for workers in Python.
"""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .._documents.fields import Id, Seconds
from .._documents.tasks import ErrorDocument
from .._handler.failure import bounded_error
from .._model.lease import Lease
from .._model.outcome import (
    Failed,
    Interrupted,
    Outcome,
    Returned,
    Snoozed,
    Stopped,
    TimedOut,
    Unhandled,
    name_of,
)
from .._model.task import Error, Task
from .._model.verdict import Receipt, Settlement
from .._policy.input.payload import decode, parse
from .._policy.input.redact import secret_values
from .._policy.verdict import decide, unhandled_for
from ..app import App
from ..errors import InvalidPayload
from .held_tasks import own_tasks
from .input_fields import Value
from .operation import Asked

Told = Literal["returned", "failed", "snoozed", "timedout", "interrupted", "stopped", "unhandled"]


class Ended(Struct, kw_only=True, forbid_unknown_fields=True):
    """What happened to a leased task: `id` and `fence` are the lease, as the claim gave them.

    `returned` has a `result`, if any. `failed` has an `error`, and perhaps `fatal` (do not try again) or
    `retry_after`. `snoozed` has a `delay`. `timedout`: it ran longer than its timeout. `interrupted`: the
    worker stops and gives it back. `stopped`: it was asked to stop. `unhandled`: the worker does not know the
    type. `duration` is how long it ran.
    """

    id: Id
    fence: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    outcome: Told
    result: Value | UnsetType = UNSET
    error: ErrorDocument | UnsetType = UNSET
    fatal: bool = False
    retry_after: Seconds | UnsetType = UNSET
    delay: Seconds = 0
    duration: Seconds = 0


_NOTHING_SAID = ErrorDocument(type="Failed", message="the worker said no more")


async def settled(asked: Asked[Any, Any], ended: Sequence[Ended]) -> Sequence[Receipt]:
    """Settle them, each by its lease; a receipt for each. One that is not the caller's is lost to him."""
    tasks = await own_tasks(asked, [one.id for one in ended])
    known = [one for one in ended if one.id in tasks]
    batch = [settlement(asked.service.app, tasks[one.id], one) for one in known]
    receipts = iter((await asked.service.store.settle(batch)).receipts if batch else ())
    return [next(receipts) if one.id in tasks else Receipt.LOST for one in ended]


def settlement(app: App, task: Task, ended: Ended) -> Settlement:
    """The verdict on a task, and the lease that it ends."""
    outcome = _outcome(task, ended)
    return Settlement(
        lease=Lease(ended.id, ended.fence),
        verdict=decide(task, outcome, app.backoff_of(task.type), random.random()),
        outcome=name_of(outcome),
        duration=ended.duration,
    )


def _outcome(task: Task, ended: Ended) -> Outcome:
    match ended.outcome:
        case "returned":
            return _returned(task, ended)
        case "failed":
            after = None if ended.retry_after is UNSET else timedelta(seconds=ended.retry_after)
            error = _NOTHING_SAID if ended.error is UNSET else ended.error
            return Failed(error=_described(task, error), fatal=ended.fatal, retry_after=after)
        case "snoozed":
            return Snoozed(timedelta(seconds=ended.delay))
        case "timedout":
            return TimedOut(task.timeout or timedelta(seconds=ended.duration))
        case "interrupted":
            return Interrupted()
        case "stopped":
            return Stopped()
        case "unhandled":
            return Unhandled(unhandled_for(task))


def _returned(task: Task, ended: Ended) -> Outcome:
    """Its result; if that cannot be kept, as in a worker of ours: doing it again would not make it better."""
    try:
        said = None if ended.result is UNSET else parse(bytes(ended.result), "result")
    except InvalidPayload as error:
        why = ErrorDocument(type="Fatal", message=f"the handler ran, but {error}")
        return Failed(error=_described(task, why), fatal=True)
    return Returned(None if said == b"null" else said)


def _described(task: Task, error: ErrorDocument) -> Error:
    """The error as it may be kept: bounded, printable, and without the payload's secrets."""
    secrets = tuple(secret_values(decode(task.payload), task.secret))
    return bounded_error(Error(type=error.type, message=error.message, traceback=error.traceback), secrets)
