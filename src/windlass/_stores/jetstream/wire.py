"""Requests and answers as messages: several of one verb together, cut in parts where they are too large."""

from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ..._store.failures import error_of, standing_of
from ..._store.messages import REQUESTS, RecordsRequest, Request
from ...errors import StoreError, StoreUnavailable, WindlassError

MAX_PART_BYTES = 700_000
MAX_PARTS = 100
"""Bounds what an owner or a client gathers for one message."""

PART = "Windlass-Part"


class Failure(Struct, array_like=True, frozen=True):
    """An error that a verb raised."""

    code: str
    detail: str
    standing: str = ""


class Answer(Struct, array_like=True, frozen=True):
    """What became of one request."""

    value: Raw
    failure: Failure | None = None


_encode = msgspec.msgpack.Encoder().encode
_requests = {verb: msgspec.msgpack.Decoder(list[kind]) for verb, kind in REQUESTS.items()}  # type: ignore[valid-type]
_responses = {
    verb: msgspec.msgpack.Decoder(kind.response_type())
    for verb, kind in REQUESTS.items()
    if kind is not RecordsRequest
}
_raws = msgspec.msgpack.Decoder(list[Answer])
_NOTHING = Raw(_encode(None))


def encode_request(request: Request[Any]) -> Raw:
    return Raw(_encode(request))


def encode_requests(requests: Sequence[Raw]) -> bytes:
    """Encode requests of one verb as one message."""
    return _encode(requests)


def decode_requests(verb: str, data: bytes) -> list[Request[Any]]:
    """Decode a message of requests. Raises msgspec.DecodeError."""
    requests: list[Request[Any]] = _requests[verb].decode(data)
    return requests


def answered(value: object) -> Answer:
    return Answer(Raw(_encode(value)))


def failed(error: WindlassError) -> Answer:
    return Answer(_NOTHING, Failure(error.code, str(error), standing_of(error)))


def encode_answers(answers: Sequence[Answer]) -> bytes:
    return _encode(answers)


def decode_answers(data: bytes) -> list[Answer]:
    """Decode a message of answers. Raises StoreUnavailable if it is not one."""
    try:
        return _raws.decode(data)
    except msgspec.DecodeError as error:
        raise StoreUnavailable(f"the owner of the store sent an invalid answer: {error}") from error


def value_of(answer: Answer) -> Raw:
    """Return the value of an answer. Raises what the store raised."""
    failure = answer.failure
    if failure is None:
        return answer.value
    named = error_of(failure.code, failure.detail, failure.standing)
    raise StoreError(failure.detail) if named is None else named


def decode_response(verb: str, value: Raw) -> Any:
    """Decode the response to a request."""
    return _responses[verb].decode(value)


def in_parts(data: bytes) -> Iterator[tuple[bytes, dict[str, str] | None]]:
    """Yield a message as one or several parts, each with its headers."""
    if len(data) <= MAX_PART_BYTES:
        yield data, None
        return
    number, token = -(-len(data) // MAX_PART_BYTES), token_hex(4)
    for at in range(number):
        yield data[at * MAX_PART_BYTES :][:MAX_PART_BYTES], {PART: f"{at + 1}/{number}/{token}"}


class Parts:
    """Gathers the parts of one message; it may be sent again, by another process and cut otherwise."""

    def __init__(self) -> None:
        self._token = ""
        self._parts: dict[int, bytes] = {}

    def add(self, data: bytes, headers: Mapping[str, str] | None) -> bytes | None:
        """Add a part; return the whole message once all are there. Raises ValueError for an invalid one."""
        place = (headers or {}).get(PART)
        if place is None:
            return data
        at, of, token = place.split("/", 2)
        number = int(of)
        if not 1 <= int(at) <= number <= MAX_PARTS:
            raise ValueError(f"invalid part {place[:20]!r} of a message")
        if token != self._token:
            self._token, self._parts = token, {}
        self._parts[int(at)] = data
        if len(self._parts) < number:
            return None
        return b"".join(self._parts[one] for one in sorted(self._parts))
