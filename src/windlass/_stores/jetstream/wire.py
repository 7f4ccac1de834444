"""Requests and answers as messages: several of one verb together, cut in parts where they are too large."""

from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from ..._model.brief import Brief
from ..._store.failures import error_of, standing_of
from ..._store.messages import REQUESTS, RecordsRequest, Request
from ...errors import InvalidOption, StoreError, StoreUnavailable, WindlassError

T = TypeVar("T")

MAX_PART_BYTES = 700_000
MAX_PARTS = 400
"""Bounds what an owner or a client gathers for one message."""

MAX_BYTES = MAX_PARTS * MAX_PART_BYTES
MAX_GATHERED = 1000
MAX_GATHERED_BYTES = 512 << 20
"""Bound what an owner gathers for all messages."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a message of somebody else."""

PART = "Windlass-Part"


class Failure(Struct, array_like=True, frozen=True):
    """An error that a verb raised."""

    code: str
    detail: str
    standing: str = ""


class Answer(Brief, Struct, array_like=True, frozen=True):
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
    """Encode a request. Raises InvalidOption for one that cannot be sent."""
    try:
        sent = Raw(_encode(request))
    except (OverflowError, TypeError) as error:
        raise InvalidOption(f"cannot be sent to the store: {error}") from error
    if len(sent) > MAX_BYTES:
        raise InvalidOption(
            f"a request of {request.verb} has {len(sent)} bytes, and a store on NATS accepts {MAX_BYTES}: "
            f"send fewer tasks at once"
        )
    return sent


def encode_requests(requests: Sequence[Raw]) -> bytes:
    """Encode requests of one verb as one message."""
    return _encode(requests)


def decode_requests(verb: str, data: bytes) -> list[Request[Any]]:
    """Decode a message of requests. Raises InvalidOption if it is not one."""
    try:
        requests: list[Request[Any]] = _requests[verb].decode(data)
    except UNREADABLE as error:
        raise InvalidOption(f"cannot read a request of {verb}: {error}") from error
    return requests


def answered(value: object) -> Answer:
    return Answer(Raw(_encode(value)))


def failed(error: WindlassError) -> Answer:
    return Answer(_NOTHING, Failure(error.code, str(error), standing_of(error)))


def encode_answers(answers: Sequence[Answer]) -> bytes:
    """Encode answers as one message; failures, if they are too large for one."""
    data = _encode(answers)
    if len(data) <= MAX_BYTES:
        return data
    too_large = StoreError(
        f"the answer has {len(data)} bytes, and {MAX_BYTES} can be sent: ask for less at once"
    )
    return _encode([failed(too_large)] * len(answers))


def decode_answers(data: bytes, number: int) -> list[Answer]:
    """Decode the answers to a number of requests. Raises StoreUnavailable if that is not what it is."""
    try:
        answers = _raws.decode(data)
    except UNREADABLE as error:
        raise _invalid(error) from error
    if len(answers) == 1 and answers[0].failure is not None:
        answers *= number  # The owner could not read the message.
    if len(answers) != number:
        raise _invalid(f"{len(answers)} answers to {number} requests")
    return answers


def value_of(answer: Answer) -> Raw:
    """Return the value of an answer. Raises what the store raised."""
    failure = answer.failure
    if failure is None:
        return answer.value
    named = error_of(failure.code, failure.detail, failure.standing)
    raise StoreError(failure.detail) if named is None else named


def decode_response(verb: str, value: Raw) -> Any:
    """Decode the response to a request. Raises StoreUnavailable if it is none."""
    return decode_as(_responses[verb], value)


def decode_as(decoder: msgspec.msgpack.Decoder[T], value: Raw) -> T:
    """Decode a value of an answer. Raises StoreUnavailable if it is of another type."""
    try:
        return decoder.decode(value)
    except UNREADABLE as error:
        raise _invalid(error) from error


def _invalid(why: object) -> StoreUnavailable:
    return StoreUnavailable(f"the owner of the store sent an invalid answer: {why}")


def in_parts(data: bytes) -> Iterator[tuple[bytes, dict[str, str] | None]]:
    """Yield a message as one or several parts, each with its headers."""
    if len(data) <= MAX_PART_BYTES:
        yield data, None
        return
    starts, token = range(0, len(data), MAX_PART_BYTES), token_hex(4)
    for number, at in enumerate(starts, 1):
        yield data[at : at + MAX_PART_BYTES], {PART: f"{number}/{len(starts)}/{token}"}


class Parts:
    """Gathers the parts of one message; it may be sent again, by another process and cut otherwise."""

    def __init__(self) -> None:
        self._token = ""
        self._parts: dict[int, bytes] = {}

    @property
    def size(self) -> int:
        """Bytes that are gathered so far."""
        return sum(map(len, self._parts.values()))

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


class Gathered:
    """Messages in parts of many senders. The oldest are dropped, and sent again if still wanted."""

    def __init__(self) -> None:
        self._messages: dict[str, Parts] = {}
        self._bytes = 0

    def add(self, sender: str, data: bytes, headers: Mapping[str, str] | None) -> bytes | None:
        """Add a part; return the whole message once all are there. Raises ValueError for an invalid one."""
        parts = self._drop(sender) if sender in self._messages else Parts()
        whole = parts.add(data, headers)
        if whole is None:
            self._messages[sender] = parts
            self._bytes += parts.size
            while len(self._messages) > MAX_GATHERED or self._bytes > MAX_GATHERED_BYTES:
                self._drop(next(iter(self._messages)))
        return whole

    def _drop(self, sender: str) -> Parts:
        parts = self._messages.pop(sender)
        self._bytes -= parts.size
        return parts
