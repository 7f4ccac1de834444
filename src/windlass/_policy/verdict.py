"""The verdict on a task, given the outcome of running it."""

from collections.abc import Container
from datetime import timedelta
from typing import assert_never

from .._model.outcome import (
    Crashed,
    Failed,
    Interrupted,
    Locked,
    Outcome,
    Returned,
    Snoozed,
    Stopped,
    TimedOut,
    Unhandled,
)
from .._model.task import DAMAGED, MAX_DELAY, Error, Task
from .._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Verdict
from ..errors import InvalidOption
from .backoff import Delay
from .input.chain import successors, successors_on_failure
from .secrets.encrypted import HINT, MARKER, key_ids

UNHANDLED_FOR = timedelta(hours=24)
UNHANDLED_DELAY = timedelta(seconds=15)
UNHANDLED_GAP = timedelta(hours=1)  # a task that no worker claims for longer starts the count again
_UNKNOWN = "UnknownTaskType"
_LOCKED_DELAY = timedelta(seconds=15)


def decide(
    task: Task, outcome: Outcome, backoff: Delay, draw: float, secrets: tuple[str, ...] = ()
) -> Verdict:
    """Return the verdict. `draw` is uniform in [0, 1). `secrets` are values in results that the task took."""
    if isinstance(outcome, Returned):  # nearly every outcome, and a pattern takes several times as long
        return _completed(task, outcome.result, secrets)
    match outcome:
        case Failed(error=error, fatal=True):
            return _buried(task, error)
        case Failed(error=error, retry_after=after):
            return _retry(task, error, after, backoff, draw)
        case TimedOut() | Crashed():
            return _retry(task, error_of(outcome), None, backoff, draw)
        case Snoozed(delay):
            return Postpone(delay=_bounded(delay), reason=Reason.SNOOZE)
        case Interrupted():
            return Postpone(delay=timedelta(0), reason=Reason.RELEASE)
        case Stopped():
            return Cancel()
        case Unhandled(age):
            return _unhandled(task, age)
        case Locked(keys):  # for as long as it takes: the keys are somewhere
            error = Error(type="MissingKey", message=f"a worker lacked encryption key {', '.join(keys)}")
            return Postpone(delay=_LOCKED_DELAY, reason=Reason.SNOOZE, error=error)
        case _:
            assert_never(outcome)


def error_of(outcome: Failed | TimedOut | Crashed) -> Error:
    """Return the error that the outcome of a failed attempt is recorded with."""
    if isinstance(outcome, TimedOut):
        after = outcome.after.total_seconds()
        return Error(type="TimedOut", message=f"exceeded its timeout of {after:g} s")
    return outcome.error


def has_encrypted(task: Task) -> bool:
    """Whether the payload of a task, or the steps that follow it, have encrypted values."""
    if HINT not in task.payload and task.next is None:  # nearly always
        return False
    return MARKER in task.payload or (task.next is not None and MARKER in task.next)


def undecrypted(known: Container[str], *documents: bytes | None) -> Locked | Failed:
    """Return the outcome of a task with encrypted values that a worker with these keys could not decrypt."""
    missing = tuple(key for key in key_ids(*documents) if key not in known)
    if missing:
        return Locked(missing)
    message = (
        "an encrypted value cannot be decrypted: it was changed, or copied from another field, or from a "
        "task of another type or tenant"
    )
    return Failed(error=Error(type="DecryptionFailed", message=message), fatal=True)


def completion(task: Task, result: bytes | None, secrets: tuple[str, ...] = ()) -> Complete:
    """Return the verdict on a task whose handler returned, with its successors."""
    return Complete(result=result, successors=successors(task, result, secrets) if task.next else ())


def _completed(task: Task, result: bytes | None, secrets: tuple[str, ...]) -> Verdict:
    """Complete a task or, if the steps that follow it cannot be read, bury it: a retry would not help."""
    try:
        return completion(task, result, secrets)
    except (InvalidOption, ValueError) as error:
        message = f"the handler ran, but what follows the task cannot be enqueued: {error}"
        return Bury(error=Error(type=DAMAGED, message=message))


def _buried(task: Task, error: Error) -> Bury:
    """Bury a task and enqueue what follows its failure, if that can be read."""
    if task.next is None:
        return Bury(error=error)
    try:
        return Bury(error=error, successors=successors_on_failure(task, error))
    except (InvalidOption, ValueError):
        return Bury(error=error)


def unhandled_for(task: Task) -> timedelta:
    """Return for how long workers without a handler have claimed a task, up to its present claim.

    Counting from the task's creation would bury a task scheduled for next week at its first claim by a
    worker that a rolling deploy has not reached. So the task records when the first of these claims was.
    """
    if task.unhandled_since is None:
        return timedelta(0)
    now = task.claimed_at or task.created_at
    if now - task.run_at > UNHANDLED_GAP:
        return timedelta(0)
    return max(now - task.unhandled_since, timedelta(0))


def handed_back(task: Task) -> Postpone:
    """Return the verdict of a worker without a handler: the task is ready again, where it was in its queue.

    Whether any worker has a handler is for the keeper to find out, so the count of `unhandled_for` goes on.
    """
    return Postpone(delay=timedelta(0), reason=Reason.RELEASE, unhandled_since=task.unhandled_since)


def _retry(task: Task, error: Error, after: timedelta | None, backoff: Delay, draw: float) -> Verdict:
    if task.cancel_requested:
        return Cancel(error=error)
    if task.attempt >= task.max_attempts:
        return _buried(task, error)
    delay = backoff(task.attempt, draw) if after is None else after
    return Postpone(delay=_bounded(delay), reason=Reason.RETRY, error=error)


def _bounded(delay: timedelta) -> timedelta:
    """Limit a delay that a handler or a backoff asks for to what every store accepts."""
    return min(max(delay, timedelta(0)), MAX_DELAY)


def _unhandled(task: Task, age: timedelta) -> Verdict:
    """A deploy may be under way: wait for a worker with a handler, at most `UNHANDLED_FOR`."""
    if age < UNHANDLED_FOR:
        since = (task.claimed_at or task.created_at) - age
        error = Error(type=_UNKNOWN, message=f"no worker has had a handler since {since:%Y-%m-%dT%H:%M:%SZ}")
        return Postpone(delay=UNHANDLED_DELAY, reason=Reason.SNOOZE, error=error, unhandled_since=since)
    message = f"no worker had a handler for {task.type!r} in {UNHANDLED_FOR}; deploy one, then replay"
    return _buried(task, Error(type=_UNKNOWN, message=message))
