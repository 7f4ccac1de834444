"""Validate requests at /store beyond their types, so that every store can keep their contents.

Our own clients send only valid requests, but anyone with a key may send others.
"""

import re
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from .._model.filter import MAX_PAGE, By, Page
from .._model.key import ApiKey
from .._model.lease import Claim
from .._model.queue import STRICT_MS, Retention
from .._model.task import MAX_ATTEMPTS, NewTask, is_task_id
from .._policy import api_key
from .._policy.input.options import MAX_DELAY
from .._policy.input.payload import MAX_DEPTH
from .._policy.input.quote import quoted
from .._policy.order.priority import MAX_PRIORITY, parse_priority
from .._store.messages import (
    ApplyRequest,
    PromoteRequest,
    PruneRequest,
    PutRequest,
    RescueRequest,
    decode_record,
)
from ..errors import InvalidOption, InvalidPayload

MAX_AT_ONCE = 100_000
"""Maximum `limit` of one request."""

_MAX_WHY = 2_000
_MAX_NAME = 512  # clients check names more strictly; stores keep any
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LIMITED = (ApplyRequest, Claim, PromoteRequest, PruneRequest, RescueRequest)


def check(request: Any) -> None:
    """Raise InvalidOption or InvalidPayload for a request that our clients would not send."""
    if isinstance(request, PutRequest):
        _check(decode_record(request.kind, request.record))
    _check(request)


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
        case _:
            _check_plain(value)


def _check_plain(value: Any) -> None:
    match value:
        case str() if "\0" in value:
            raise InvalidOption(f"{quoted(value)} contains a NUL character, which some stores cannot keep")
        case bytes():
            _check_json(value)
        case timedelta() if abs(value) > MAX_DELAY:
            raise InvalidOption("a duration exceeds ten years")
        case _:
            pass


def _check_struct(value: Struct) -> None:
    match value:
        case Retention():  # checks itself, and has no upper bound
            return
        case NewTask():
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
            if value.rate is not None:
                api_key.checked_rate(value.rate)
        case _:
            pass
    if isinstance(value, _LIMITED) and not 0 <= value.limit <= MAX_AT_ONCE:
        raise InvalidOption(f"limit must be from 0 to {MAX_AT_ONCE:,}, not {quoted(value.limit)}")
    for field in value.__struct_fields__:
        _check(getattr(value, field))


def _check_task(task: NewTask) -> None:
    for one in (task.id, task.root):  # an invalid id in `after` is simply not found
        if not is_task_id(one):
            raise InvalidOption(f"a task's id must be a lower-case UUID, not {quoted(one)}")
    for what, given in (("type", task.type), ("queue", task.queue), ("tenant", task.tenant or "nobody")):
        if not 1 <= len(given) <= _MAX_NAME:
            raise InvalidOption(f"the {what} {quoted(given)} must have 1 to {_MAX_NAME} characters")
    parse_priority(task.priority)
    if abs(task.boost) > MAX_PRIORITY * STRICT_MS:
        raise InvalidOption(f"boost exceeds {MAX_PRIORITY * STRICT_MS:,} milliseconds")
    if not 1 <= task.max_attempts <= MAX_ATTEMPTS:
        raise InvalidOption(f"max_attempts must be 1 to {MAX_ATTEMPTS:,}, got {quoted(task.max_attempts)}")
    if task.run_at is not None and task.delay is not None:
        raise InvalidOption("give run_at or delay, not both")


def _check_json(data: bytes) -> None:
    """Check payloads, results and steps, which are stored as they are."""
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
