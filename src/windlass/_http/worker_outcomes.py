"""Settle tasks for workers in any language: they report outcomes, the server decides the verdicts.

The policy is the same as for workers in Python.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .._documents.fields import Id, Seconds
from .._documents.tasks import ErrorDocument, ProgressDocument
from .._handler.failure import bounded_error
from .._handler.predecessors import payload_with_results
from .._model import outcome as outcomes
from .._model.brief import Brief
from .._model.lease import Lease
from .._model.task import Error, Progress, Task, TaskId
from .._model.verdict import Receipt, Settlement
from .._policy.input.notes import encode_notes, parse_notes
from .._policy.input.payload import parse
from .._policy.secrets.encrypted import refuse_marked
from .._policy.secrets.mask import Mask, mask_of
from .._policy.secrets.shown import masked_progress
from .._policy.verdict import decide, unhandled_for
from ..app import App
from ..errors import InvalidPayload
from ..signals import Fatal
from .input_fields import Notes, Value
from .operation import AnyRequest
from .task_query import visible_tasks

OutcomeName = Literal["returned", "failed", "snoozed", "timedout", "interrupted", "stopped", "unhandled"]


class OutcomeInput(Brief, Struct, kw_only=True, forbid_unknown_fields=True):
    """The outcome of a claimed task; `id` and `fence` are the lease from the claim.

    `returned`: it completed, with an optional `result`. `failed`: with an `error`, and optionally `fatal` (do
    not retry) or `retry_after`. `snoozed`: run it again after `delay`. `timedout`: it exceeded its timeout.
    `interrupted`: the worker is stopping and gives it back. `stopped`: it stopped because it was cancelled.
    `unhandled`: the worker has no handler for its type. `duration` is the run time in seconds, `progress` the
    last that the handler reported, `notes` facts to keep with the attempt.
    """

    id: Id
    fence: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    outcome: OutcomeName
    result: Value | UnsetType = UNSET
    error: ErrorDocument | UnsetType = UNSET
    fatal: bool = False
    retry_after: Seconds | UnsetType = UNSET
    delay: Seconds = 0
    duration: Seconds = 0
    progress: ProgressDocument | UnsetType = UNSET
    notes: Notes | UnsetType = UNSET


_UNSPECIFIED = ErrorDocument(type="Failed", message="the worker reported no error details")


async def settle_outcomes(request: AnyRequest, ended: Sequence[OutcomeInput]) -> Sequence[Receipt]:
    """Settle each task by its lease; return a receipt for each, LOST for leases that the caller lacks."""
    notes = [{} if one.notes is UNSET else parse_notes(bytes(one.notes)) for one in ended]
    leases = [Lease(one.id, one.fence) for one in ended]
    tasks = await visible_tasks(request, [*dict.fromkeys(one.id for one in ended)])
    refused = await request.service.leases.refused(request.caller, leases, tasks)
    refused |= {lease: Receipt.LOST for lease in leases if lease.task_id not in tasks}
    known = [
        (one, facts) for one, facts, lease in zip(ended, notes, leases, strict=True) if lease not in refused
    ]
    await request.service.app.client.refresh_types()
    batch = []
    for one, facts in known:
        secrets = await _result_secrets(request, tasks[one.id])
        batch.append(
            await request.off_loop(settlement, request.service.app, tasks[one.id], one, facts, secrets)
        )
    receipts = iter((await request.service.store.settle(batch)).receipts if batch else ())
    return [refused.get(lease) or next(receipts) for lease in leases]


async def _result_secrets(request: AnyRequest, task: Task) -> tuple[str, ...]:
    """Return the secret values in the results that a task takes, which its texts may repeat."""
    try:
        types = request.service.app.client.types
        return (await payload_with_results(request.service.store, task, types.with_secrets)).secrets
    except Fatal:  # a result is gone by now: so is what to look for
        return ()


async def masks_of(request: AnyRequest, ids: Iterable[TaskId]) -> dict[TaskId, Mask]:
    """Return what to mask in texts of these tasks, as far as the caller may see them."""
    tasks = await visible_tasks(request, [*dict.fromkeys(ids)])
    return {
        id: mask_of(task.payload, task.secret, await _result_secrets(request, task))
        for id, task in tasks.items()
    }


def settlement(
    app: App,
    task: Task,
    ended: OutcomeInput,
    notes: Mapping[str, Any] | None = None,
    secrets: tuple[str, ...] = (),
) -> Settlement:
    """Decide the verdict on a task, for the lease that it ends. `secrets`: further values to mask."""
    mask = mask_of(task.payload, task.secret, secrets)
    outcome = _outcome(task, ended, mask)
    backoff = app.client.types.backoff(task.type, app.backoff)
    return Settlement(
        lease=Lease(ended.id, ended.fence),
        verdict=decide(task, outcome, backoff, random.random(), secrets),
        outcome=outcomes.name_of(outcome),
        duration=ended.duration,
        progress=None if ended.progress is UNSET else bounded_progress(ended.progress, mask),
        notes=encode_notes(notes, mask) if notes else None,
    )


def bounded_progress(given: ProgressDocument, mask: Mask) -> Progress:
    """Clamp and mask progress: a bad value must not fail a heartbeat or a settlement."""
    fraction = min(max(given.fraction, 0.0), 1.0)
    return masked_progress(Progress(fraction=fraction, message=given.message.replace("\0", "")), mask)


def _outcome(task: Task, ended: OutcomeInput, mask: Mask) -> outcomes.Outcome:
    match ended.outcome:
        case "returned":
            return _returned(ended, mask)
        case "failed":
            after = None if ended.retry_after is UNSET else timedelta(seconds=ended.retry_after)
            error = _UNSPECIFIED if ended.error is UNSET else ended.error
            described = _described(error, mask)
            return outcomes.Failed(error=described, fatal=ended.fatal, retry_after=after)
        case "snoozed":
            return outcomes.Snoozed(timedelta(seconds=ended.delay))
        case "timedout":
            return outcomes.TimedOut(task.timeout or timedelta(seconds=ended.duration))
        case "interrupted":
            return outcomes.Interrupted()
        case "stopped":
            return outcomes.Stopped()
        case "unhandled":
            return outcomes.Unhandled(unhandled_for(task))


def _returned(ended: OutcomeInput, mask: Mask) -> outcomes.Outcome:
    """Check the result. One that cannot be stored buries the task: a retry would not help."""
    try:
        result = None if ended.result is UNSET else parse(bytes(ended.result), "result")
        refuse_marked(result)
    except InvalidPayload as error:
        why = ErrorDocument(type="Fatal", message=f"the handler ran, but {error}")
        return outcomes.Failed(error=_described(why, mask), fatal=True)
    return outcomes.Returned(None if result == b"null" else result)


def _described(error: ErrorDocument, mask: Mask) -> Error:
    """Cut and mask an error before it is stored."""
    given = Error(type=error.type, message=error.message, traceback=error.traceback)
    return bounded_error(given, mask.values)
