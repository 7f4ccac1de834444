"""What a message from afar must be beyond its types, so that every store can keep what it says.

The clients of the seam made it so themselves; over HTTP anybody may be at the other end.
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
from .._policy.input.quoting import quoted
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
from .web.duplicate_names import repeats

MAX_AT_ONCE = 100_000
"""The most that one request asks to be done; what is left is for the next one."""

_MAX_WHY = 2_000
_MAX_NAME = 512  # Stores keep any name; what is a good one, clients know.
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LIMITED = (ApplyRequest, Claim, PromoteRequest, PruneRequest, RescueRequest)


def check(asked: Any) -> None:
    """Refuse a message that no client of ours would send; nothing has been done with it."""
    if isinstance(asked, PutRequest):
        _check(decode_record(asked.kind, asked.record))
    _check(asked)


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
            raise InvalidOption(f"the text {quoted(value)} holds a NUL character, which stores cannot keep")
        case bytes():
            _check_json(value)
        case timedelta() if abs(value) > MAX_DELAY:
            raise InvalidOption("a duration is longer than ten years")
        case _:
            pass


def _check_struct(value: Struct) -> None:
    match value:
        case Retention():  # which may be as long as can be said, and has looked for itself
            return
        case NewTask():
            _check_task(value)
        case Page():
            if not 1 <= value.limit <= MAX_PAGE:
                raise InvalidOption(f"a page has 1 to {MAX_PAGE:,} rows, not {quoted(value.limit)}")
        case By():
            if len(value.why) > _MAX_WHY:
                raise InvalidOption(f"why it is done is said in {_MAX_WHY:,} characters")
        case ApiKey():
            if not _HASH.fullmatch(value.hash):
                raise InvalidOption("a key's hash is 64 digits of hex, in small letters")
            if value.rate is not None:
                api_key.checked_rate(value.rate)
        case _:
            pass
    if isinstance(value, _LIMITED) and not 0 <= value.limit <= MAX_AT_ONCE:
        raise InvalidOption(f"a limit is 0 to {MAX_AT_ONCE:,}, not {quoted(value.limit)}")
    for field in value.__struct_fields__:
        _check(getattr(value, field))


def _check_task(task: NewTask) -> None:
    for one in (task.id, task.root):  # One to wait for that is no id at all is simply not there.
        if not is_task_id(one):
            raise InvalidOption(f"a task's id is a UUID in small letters, not {quoted(one)}")
    for what, given in (("type", task.type), ("queue", task.queue), ("tenant", task.tenant or "nobody")):
        if not 1 <= len(given) <= _MAX_NAME:
            raise InvalidOption(f"the {what} {quoted(given)} is not a name of 1 to {_MAX_NAME} characters")
    parse_priority(task.priority)
    if abs(task.boost) > MAX_PRIORITY * STRICT_MS:
        raise InvalidOption(f"a boost is at most {MAX_PRIORITY * STRICT_MS:,} milliseconds")
    if not 1 <= task.max_attempts <= MAX_ATTEMPTS:
        raise InvalidOption(f"a task has 1 to {MAX_ATTEMPTS:,} attempts, not {quoted(task.max_attempts)}")
    if task.run_at is not None and task.delay is not None:
        raise InvalidOption("run_at and delay exclude each other; give one of them")


def _check_json(data: bytes) -> None:
    """Payloads, results and steps are kept as they came: they must be JSON that everybody can read."""
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"the payload is not JSON: {error}") from None
    _check_value(value, MAX_DEPTH)
    if repeats(data, value):
        raise InvalidPayload("the payload gives one name twice in one object; say it once")


def _check_value(value: Any, depth: int) -> None:
    match value:
        case str() if "\0" in value:
            raise InvalidPayload(
                "the payload holds a NUL character, which some stores cannot keep; remove it"
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
    return InvalidPayload(f"the payload is nested deeper than {MAX_DEPTH} levels; flatten it")
