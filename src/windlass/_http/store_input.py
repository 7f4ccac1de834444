"""Requests of the store protocol: check them as the Python client would, and attribute them to their key.

Our own clients send nothing that is refused here, but anyone with a key may.
"""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._handler.failure import MAX_MESSAGE, MAX_TRACEBACK, MAX_TYPE
from .._model.alert import Alert
from .._model.filter import MAX_PAGE, By, Expire, OperatorAction, Page, Replay, TaskDocuments
from .._model.key import ApiKey, Login, Scope
from .._model.lease import Claim, Heartbeat
from .._model.limit import Limit, Quota
from .._model.queue import Retention
from .._model.record import KINDS, MAX_PLACE, MAX_STUCK, Worker
from .._model.schedule import Schedule
from .._model.task import MAX_DELAY, Error, NewTask, Progress
from .._model.verdict import Bury, Complete, Settlement
from .._policy.foreign_record import check_record
from .._policy.input.foreign_task import MAX_STORED_BYTES, check_new_task, check_steps
from .._policy.input.options import checked_text, parse_duration
from .._policy.input.payload import parse, parse_payload
from .._policy.input.quote import printable, quoted
from .._policy.secrets.shown import MAX_PROGRESS
from .._store import messages
from .._store.json_codec import Decoder
from ..errors import InvalidOption
from .auth import Caller
from .web.body import check_utf8, decode_errors
from .web.json_structure import check_structure, listed_places
from .web.off_loop import PART, off_loop
from .web.problems import Problem

MAX_AT_ONCE = 100_000
"""Maximum `limit` of one request."""

LARGE = PART
"""Bytes of a body from which on it is decoded in parts."""

MAX_TASK = 8 << 20
"""Bytes of a task in a large batch: more than a payload and steps that are as large as they may be."""

_SHORT_PART = 2 * PART  # bytes of a part that holds no large task
_SEPARATOR = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_PLACE = re.compile(r"`\$\.batch\[(\d+)\]")
_enqueues: Decoder[messages.EnqueueRequest] = Decoder(messages.EnqueueRequest)
_MAX_WHO = 200
_MAX_WHY = 2_000
_MAX_NOTES = 65_536  # bytes: workers bound them before secrets are masked
_MAX_NAME = 255  # of hosts, workers, sessions
_MAX_CURSOR = 1_000
_MAX_NUMBER = 1 << 53
_MARGIN = 100  # characters: a text that was cut says how much is missing
_SET_BY_PEOPLE = ("queue", *(KINDS[kind] for kind in (ApiKey, Login, Limit, Quota, Schedule, Alert)))
_LIMITED = (
    messages.ApplyRequest,
    Claim,
    messages.PromoteRequest,
    messages.PruneRequest,
    messages.RescueRequest,
)


def check(message: Any, *, reserved: bool = True) -> None:
    """Raise InvalidOption or InvalidPayload for a request that no Python client sends.

    With `reserved`, tasks may have the idempotency keys and fingerprints that keepers give to ticks.
    """
    if isinstance(message, messages.PutRequest):
        check_record(messages.decode_record(message.kind, message.record))
        _Check(reserved=reserved).value(message.by)
    else:
        _Check(reserved=reserved).value(message)


class _Check:
    """Checks a value and everything in it."""

    def __init__(self, *, reserved: bool) -> None:
        self._reserved = reserved

    def value(self, value: Any) -> None:
        match value:
            case NewTask():
                check_new_task(value, reserved=self._reserved)
            case Retention():  # checks itself, and has no upper bound
                return
            case Struct():
                self._struct(value)
            case tuple() | list():
                for one in value:
                    self.value(one)
            case str() if "\0" in value:
                raise InvalidOption(
                    f"{quoted(value)} contains a NUL character, which some stores cannot keep"
                )
            case timedelta() if abs(value) > MAX_DELAY:
                raise InvalidOption("a duration exceeds ten years")

    def _struct(self, value: Struct) -> None:
        own = _CHECKS.get(type(value))
        if own is not None:
            own(value)
        if isinstance(value, _LIMITED) and not 0 <= value.limit <= MAX_AT_ONCE:
            raise InvalidOption(f"limit must be from 0 to {MAX_AT_ONCE:,}, not {quoted(value.limit)}")
        for field in value.__struct_fields__:
            self.value(getattr(value, field))


def _page(page: Page) -> None:
    if not 1 <= page.limit <= MAX_PAGE:
        raise InvalidOption(f"a page has 1 to {MAX_PAGE:,} rows, not {quoted(page.limit)}")
    _bounded(page.cursor or "", "cursor", _MAX_CURSOR)


def _by(by: By) -> None:
    checked_text(by.who, "who", 2 * _MAX_WHO)
    _bounded(by.why, "why", _MAX_WHY)


def _replay(action: Replay) -> None:
    if action.payload is not None:
        parse_payload(action.payload, max_bytes=MAX_STORED_BYTES)
    _bounded(action.fingerprint or "", "fingerprint", MAX_TRACEBACK)
    parse_duration(action.interval, "interval")


def _documents(documents: TaskDocuments) -> None:
    parse_payload(documents.payload, max_bytes=MAX_STORED_BYTES)
    check_steps(documents.next)
    if documents.result is not None:
        parse(documents.result, "result", max_bytes=MAX_STORED_BYTES)


def _error(error: Error) -> None:
    _bounded(error.type, "the type of an error", MAX_TYPE + _MARGIN)
    _bounded(error.message, "the message of an error", MAX_MESSAGE + _MARGIN)
    _bounded(error.traceback or "", "the traceback of an error", MAX_TRACEBACK + _MARGIN)


def _progress(progress: Progress) -> None:
    if not 0 <= progress.fraction <= 1:
        raise InvalidOption(f"progress must be a fraction from 0 to 1, got {progress.fraction!r}")
    _bounded(progress.message, "the message of a progress", MAX_PROGRESS)


def _settlement(settlement: Settlement) -> None:
    checked_text(settlement.outcome, "the outcome", _MAX_NAME)
    parse_duration(settlement.duration, "duration")
    if settlement.notes is not None:
        if len(settlement.notes) > _MAX_NOTES:
            raise InvalidOption(f"the notes of an attempt are longer than {_MAX_NOTES:,} bytes")
        parse_payload(settlement.notes)
    delay = getattr(settlement.verdict, "delay", None)
    if delay is not None:
        parse_duration(delay, "delay")


def _complete(verdict: Complete) -> None:
    if verdict.result is not None:
        parse(verdict.result, "result", max_bytes=MAX_STORED_BYTES)
    _successors(verdict)


def _successors(verdict: Complete | Bury) -> None:
    if len(verdict.successors) > MAX_AT_ONCE:
        raise InvalidOption(f"a task has at most {MAX_AT_ONCE:,} successors")


def _claim(claim: Claim) -> None:
    checked_text(claim.session, "the session", _MAX_NAME)
    _number(claim.number, "number")
    for name in claim.types or ():
        checked_text(name, "the name of a type", _MAX_NAME)


def _heartbeat(beat: Heartbeat) -> None:
    checked_text(beat.session, "the session", _MAX_NAME)
    parse_duration(beat.lease_for, "lease_for")


def _worker(worker: Worker) -> None:
    for what in ("name", "host", "version"):
        checked_text(getattr(worker, what), f"the {what} of a worker", _MAX_NAME)
    for what in ("pid", "slots", "busy"):
        _number(getattr(worker, what), what)
    for name in (*worker.queues, *(worker.types or ()), *(one.type for one in worker.stuck)):
        checked_text(name, "the name of a queue or type", _MAX_NAME)
    if len(worker.stuck) > MAX_STUCK:
        raise InvalidOption(f"a worker lists at most {MAX_STUCK} stuck handlers")
    for one in worker.stuck:
        checked_text(one.task_id, "the id of a task", _MAX_NAME)
        _number(one.attempt, "attempt")
        parse_duration(one.overrun, "overrun")
        _bounded(one.place, "the place of a stuck handler", MAX_PLACE)


def _lead(request: messages.LeadRequest) -> None:
    checked_text(request.holder, "holder", _MAX_NAME)
    parse_duration(request.lease_for, "lease_for")


def _ended(request: messages.EndedRequest) -> None:
    if len(request.ids) > MAX_PAGE:
        raise InvalidOption(f"at most {MAX_PAGE:,} ids are asked for at once, not {len(request.ids):,}")


def _once(request: messages.OnceRequest) -> None:
    _bounded(request.key, "key", _MAX_NAME)


def _number(value: int, what: str) -> None:
    if not 0 <= value <= _MAX_NUMBER:
        raise InvalidOption(f"{what} must be from 0 to {_MAX_NUMBER:,}, got {quoted(value)}")


def _bounded(text: str, what: str, longest: int) -> None:
    if len(text) > longest:
        raise InvalidOption(f"{what} is longer than {longest:,} characters")


_CHECKS: dict[Any, Callable[[Any], None]] = {
    Page: _page,
    By: _by,
    Replay: _replay,
    TaskDocuments: _documents,
    Error: _error,
    Progress: _progress,
    Settlement: _settlement,
    Complete: _complete,
    Bury: _successors,
    Claim: _claim,
    Heartbeat: _heartbeat,
    Worker: _worker,
    messages.LeadRequest: _lead,
    messages.OnceRequest: _once,
    messages.EndedRequest: _ended,
}


# -- attribution -------------------------------------------------------------------------------------


def attributed(message: Any, caller: Caller) -> Any:
    """Attribute a request to its key, in the audit log and on its tasks; the client's own claim is added.

    Changes to what people set are audited even if the client gives no name, and so is every change by a key
    that is not a worker's. What workers and keepers keep for themselves is not audited.
    """
    has_key = caller.key is not None
    is_person = has_key and not caller.has_scope(Scope.WORK)
    match message:
        case messages.EnqueueRequest(batch=batch):
            return replace(message, batch=tuple([_enqueued(task, caller) for task in batch]))
        case messages.ApplyRequest(action=action) if isinstance(action, OperatorAction):
            return replace(message, action=replace(action, by=_on_behalf(caller, action.by)))
        case messages.ApplyRequest(action=Expire()) if is_person:
            raise Problem("forbidden", "this key lacks the scope work, which expiring tasks needs")
        case messages.PutRequest() | messages.RemoveRequest():
            signed = is_person or message.by is not None or (has_key and message.kind in _SET_BY_PEOPLE)
            return replace(message, by=_on_behalf(caller, message.by)) if signed else message
        case messages.PruneRequest(by=by) if is_person or by is not None:
            return replace(message, by=_on_behalf(caller, by))
        case _:
            return message


def _enqueued(task: NewTask, caller: Caller) -> NewTask:
    claimed = _claimed(task.enqueued_by)
    if caller.key is not None:
        claimed = f"{caller.name} for {claimed}" if claimed else caller.name
    return task if claimed == task.enqueued_by else replace(task, enqueued_by=claimed)


def _on_behalf(caller: Caller, by: By | None) -> By:
    if by is None:
        return By(who=caller.name)
    who = _claimed(by.who)
    return By(who=who if caller.key is None else f"{caller.name} for {who}", why=by.why)


def _claimed(who: str) -> str:
    return printable(who)[:_MAX_WHO]


# -- large batches -----------------------------------------------------------------------------------


async def read_enqueue(body: bytes, caller: Caller, *, reserved: bool) -> messages.EnqueueRequest:
    """Decode a request to enqueue many tasks; each is checked and attributed. Raises as `check` does.

    Decoding in one call would hold the interpreter lock for as long as the whole batch takes. The store gets
    the tasks in one call all the same: they are stored as a whole or not at all.
    """
    places = await off_loop(len(body), _places, body)
    batch: list[NewTask] = []
    for start, end, first in _parts(body, places):
        part = b'{"batch":[%b]}' % body[start:end]
        with decode_errors():
            batch += await off_loop(end - start, _read, part, first, caller, reserved)
    return messages.EnqueueRequest(tuple(batch))


def _places(body: bytes) -> list[tuple[int, int]]:
    """Return where the tasks are, after a check of all that is around them."""
    with decode_errors():
        check_utf8(body)
        places = listed_places(body, MAX_AT_ONCE)
        around = body if not places else body[: places[0][0]] + body[places[-1][1] :]
        check_structure(around)
        _enqueues.decode(around)
    return places


def _parts(body: bytes, places: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Divide the tasks into parts of about `PART` bytes: where one begins and ends, and its first number."""
    first = 0
    for number, (start, end) in enumerate(places, 1):
        if end - start > MAX_TASK:
            raise Problem(
                "too-large", f"a task is larger than {MAX_TASK:,} bytes - at `$.batch[{number - 1}]`"
            )
        if number < len(places):
            if _SEPARATOR.fullmatch(body, end, places[number][0]) is None:
                raise Problem("invalid-request", f"expected a comma and an object - at `$.batch[{number}]`")
            if end - places[first][0] < PART:
                continue
        yield places[first][0], end, first
        first = number


def _read(part: bytes, first: int, caller: Caller, reserved: bool) -> tuple[NewTask, ...]:  # noqa: FBT001  passed on
    """Decode, attribute and check the tasks from number `first` on; errors name that of the whole batch."""

    def placed(text: str) -> str:
        return _PLACE.sub(lambda found: f"`$.batch[{first + int(found[1])}]", text)

    try:
        check_structure(part, short=_SHORT_PART)
        message = attributed(_enqueues.decode(part), caller)
    except msgspec.DecodeError as error:
        raise msgspec.DecodeError(placed(str(error))) from None
    except Problem as problem:
        raise Problem(problem.code, placed(problem.detail)) from None
    check(message, reserved=reserved)
    batch: tuple[NewTask, ...] = message.batch
    return batch
