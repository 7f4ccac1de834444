"""The store protocol over HTTP, for `_stores/http`: workers, keepers and operators elsewhere.

POST /store/{verb} takes a request of `_store.messages` as JSON; the key needs the request's scope.
"""

import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..._model.alert import Alert
from ..._model.filter import MAX_PAGE, By, CancelTasks, Discard, Page, Replay
from ..._model.key import ApiKey, Scope
from ..._model.lease import Claim
from ..._model.limit import Limit, Quota
from ..._model.options import DeclaredType
from ..._model.queue import Retention
from ..._model.record import KINDS, Archive
from ..._model.schedule import Schedule
from ..._model.task import MAX_ATTEMPTS, MAX_DELAY, NewTask, is_task_id
from ..._model.verdict import Complete
from ..._policy import api_key
from ..._policy.input import keys
from ..._policy.input.chain import Step, check_number, check_size, decode_steps
from ..._policy.input.fingerprint import is_fingerprint
from ..._policy.input.payload import MAX_DEPTH
from ..._policy.input.quote import quoted
from ..._policy.order.priority import parse_priority
from ..._store import messages
from ..._store.json_codec import Decoder, encode
from ...errors import InvalidOption, InvalidPayload, StoreError
from ..auth import Caller
from ..long_poll import WakeListener
from ..service import Service
from ..web.body import decode_errors, read_body
from ..web.duplicate_names import refuse_duplicate_names
from ..web.ndjson import NDJSON
from ..web.problems import Problem

MAX_AT_ONCE = 100_000
"""Maximum `limit` of one request."""

_MAX_WHY = 2_000
_MAX_NOTES = 65_536  # bytes: workers bound them before secrets are masked
_MAX_NAME = 512  # clients check names more strictly; stores keep any
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LIMITED = (
    messages.ApplyRequest,
    Claim,
    messages.PromoteRequest,
    messages.PruneRequest,
    messages.RescueRequest,
)
PING_SECONDS = 10.0
_MAX_WHO = 200
_SET_BY_PEOPLE = ("queue", *(KINDS[kind] for kind in (ApiKey, Limit, Quota, Schedule, Alert)))
_KEYS = KINDS[ApiKey]
_SET_BY_BOTH = (KINDS[DeclaredType], KINDS[Archive])  # by programs, and removed by people
_decoders = {verb: Decoder[messages.Request[Any]](kind) for verb, kind in messages.REQUESTS.items()}


async def call_verb(service: Service, caller: Caller, request: Request) -> Response:
    """Run one verb of the store."""
    name = request.path_params["verb"]
    kind = messages.REQUESTS.get(name)
    if kind is None:
        raise Problem("not-found", f"there is no such verb; the verbs are {', '.join(messages.REQUESTS)}")
    caller.require_scope(kind.scope)
    caller.require_unbound()
    body = await read_body(request)
    with decode_errors():
        message = _decoders[name].decode(body or b"{}")
    refuse_duplicate_names(body)
    if getattr(message, "kind", None) == _KEYS:
        caller.require_scope(Scope.ADMIN)
    with decode_errors():
        check(message)
        if not caller.has_scope(Scope.OPERATE):
            _check_names(message)
    if caller.key is not None:
        message = attributed(message, caller.name)
    if isinstance(message, messages.EnqueueRequest):
        service.rate_limiter.take_work(caller.key, message.batch)
    return Response(encode(await message.call(service.store)), media_type="application/json")


def attributed(message: Any, key: str) -> Any:
    """Attribute the request to the key in the audit log; the name that the client gives is only added.

    Changes to what people set are audited even if the client gives no name, and the removal of a task type,
    which a program publishes, if it does. Records that programs and keepers keep for themselves are not
    audited.
    """
    match message:
        case messages.ApplyRequest(action=CancelTasks() | Replay() | Discard() as action):
            return replace(message, action=replace(action, by=_on_behalf(key, action.by)))
        case messages.PutRequest() | messages.RemoveRequest():
            by_people = message.kind in _SET_BY_PEOPLE or (
                message.kind in _SET_BY_BOTH and message.by is not None
            )
            return replace(message, by=_on_behalf(key, message.by) if by_people else None)
        case messages.PruneRequest(by=By() as by):
            return replace(message, by=_on_behalf(key, by))
        case _:
            return message


def _on_behalf(key: str, by: By | None) -> By:
    if by is None:
        return By(who=key)
    return By(who=f"{key} for {by.who[:_MAX_WHO]}", why=by.why)


async def wakes(service: Service, caller: Caller, request: Request) -> Response:
    """Stream wakes, one JSON line each, until the client disconnects; empty lines are keep-alives."""
    caller.require_scope(Scope.WORK)
    caller.require_unbound()
    queues = request.query_params.getlist("queue")
    check(queues)
    return StreamingResponse(_wake_lines(service, queues, request), media_type=NDJSON)


async def _wake_lines(service: Service, queues: list[str], request: Request) -> AsyncIterator[bytes]:
    yield b"\n"
    with WakeListener(service.store, queues, service.closing) as listener:
        try:
            while not service.closing.is_set():
                wake = await listener.next(PING_SECONDS)
                await service.authenticator.authenticate(request)
                yield b"\n" if wake is None else encode(wake) + b"\n"
        except (Problem, StoreError, StopAsyncIteration):
            return  # the response has begun and can only end; the client learns why when it reconnects


def check(request: Any) -> None:
    """Raise InvalidOption or InvalidPayload for a request that some store could not keep.

    Our own clients send none, but anyone with a key may.
    """
    if isinstance(request, messages.PutRequest):
        _check(messages.decode_record(request.kind, request.record))
    _check(request)


def _check_names(message: Any) -> None:
    """Raise InvalidOption for a key or fingerprint that only keepers and operators may give a task."""
    match message:
        case messages.EnqueueRequest(batch=batch):
            new = batch
        case messages.SettleRequest(batch=settlements):
            verdicts = [one.verdict for one in settlements]
            new = tuple(new for one in verdicts if isinstance(one, Complete) for new in one.successors)
        case _:
            return
    for task in new:
        if task.idempotency_key is not None:
            keys.checked_key(task.idempotency_key)
        if task.fingerprint is not None and not is_fingerprint(task.fingerprint):
            raise InvalidOption(f"{quoted(task.fingerprint)} is not a fingerprint; leave it out")


def _check(value: Any) -> None:
    match value:
        case Struct():
            _check_struct(value)
        case tuple() | list():
            for one in value:
                _check(one)
        case dict():
            for key, one in value.items():
                _check(key)
                _check(one)
        case str() if "\0" in value:
            raise InvalidOption(f"{quoted(value)} contains a NUL character, which some stores cannot keep")
        case bytes() | Raw():
            _check_json(bytes(value))
        case timedelta() if abs(value) > MAX_DELAY:
            raise InvalidOption("a duration exceeds ten years")


def _check_struct(value: Struct) -> None:
    match value:
        case Retention():  # checks itself, and has no upper bound
            return
        case NewTask() | Step():
            _check_task(value)
        case Page():
            if not 1 <= value.limit <= MAX_PAGE:
                raise InvalidOption(f"a page has 1 to {MAX_PAGE:,} rows, not {quoted(value.limit)}")
        case By():
            if len(value.why) > _MAX_WHY:
                raise InvalidOption(f"why is longer than {_MAX_WHY:,} characters")
        case ApiKey():
            if not _HASH.fullmatch(value.hash):
                raise InvalidOption("a key's hash must be 64 lower-case hex digits")
            api_key.checked_rates({name: getattr(value, name) for name in api_key.RATES})
        case _:
            pass
    if isinstance(value, _LIMITED) and not 0 <= value.limit <= MAX_AT_ONCE:
        raise InvalidOption(f"limit must be from 0 to {MAX_AT_ONCE:,}, not {quoted(value.limit)}")
    for field in value.__struct_fields__:
        _FIELD_CHECKS.get(field, _check)(getattr(value, field))


def _check_notes(data: bytes | None) -> None:
    if data is not None and len(data) > _MAX_NOTES:
        raise InvalidOption(f"the notes of an attempt are longer than {_MAX_NOTES:,} bytes")
    _check(data)


def _check_steps(data: bytes | None) -> None:
    """Check the steps that follow a task, one by one: they nest deeper than a payload may."""
    if not data:
        return
    check_size(data)
    try:
        steps = decode_steps(data)
    except RecursionError:
        raise InvalidOption("the steps that follow a task are nested too deeply") from None
    except msgspec.DecodeError as error:
        raise InvalidOption(f"invalid steps in `next`: {error}") from None
    check_number(steps)
    while steps:
        for step in steps:
            _check(replace(step, next=()))
        steps = tuple(below for step in steps for below in step.next)


_FIELD_CHECKS: dict[str, Callable[[Any], None]] = {"next": _check_steps, "notes": _check_notes}
"""The checks of fields that have their own."""


def _check_task(task: NewTask | Step) -> None:
    if isinstance(task, NewTask):
        _check_new(task)
    if not is_task_id(task.id):
        raise InvalidOption(f"a task's id must be a lower-case UUID, not {quoted(task.id)}")
    for what, given in (("type", task.type), ("queue", task.queue), ("tenant", task.tenant or "nobody")):
        if not 1 <= len(given) <= _MAX_NAME:
            raise InvalidOption(f"the {what} {quoted(given)} must have 1 to {_MAX_NAME} characters")
    parse_priority(task.priority)
    if not 1 <= task.max_attempts <= MAX_ATTEMPTS:
        raise InvalidOption(f"max_attempts must be 1 to {MAX_ATTEMPTS:,}, got {quoted(task.max_attempts)}")


def _check_new(task: NewTask) -> None:
    if not is_task_id(task.root):  # an invalid id in `after` is simply not found
        raise InvalidOption(f"a task's root must be a lower-case UUID, not {quoted(task.root)}")
    if task.run_at is not None and task.delay is not None:
        raise InvalidOption("give run_at or delay, not both")
    if task.after and task.before:  # tasks could wait for each other
        raise InvalidOption("give after or before, not both")


def _check_json(data: bytes) -> None:
    """Check payloads and results, which are stored as they are."""
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"the payload is not JSON: {error}") from None
    _check_value(value, MAX_DEPTH)


def _check_value(value: Any, depth: int) -> None:
    match value:
        case str() if "\0" in value:
            raise InvalidPayload(
                "the payload contains a NUL character, which some stores cannot keep; remove it"
            )
        case dict() | list() if depth == 0:
            raise _too_deep()
        case dict():
            for key, one in value.items():
                _check_value(key, depth)
                _check_value(one, depth - 1)
        case list():
            for one in value:
                _check_value(one, depth - 1)
        case _:
            pass


def _too_deep() -> InvalidPayload:
    return InvalidPayload(f"the payload is nested deeper than {MAX_DEPTH} levels")
