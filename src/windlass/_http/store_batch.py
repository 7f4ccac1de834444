"""Large batches of the store protocol: decode and check them a few tasks at a time.

Decoding in one call would hold the interpreter lock for as long as the whole batch takes. The store gets the
tasks in one call all the same: they are stored as a whole or not at all.
"""

import re
from collections.abc import Iterator

import msgspec

from .._model.task import NewTask
from .._store.json_codec import Decoder
from .._store.messages import EnqueueRequest
from .auth import Caller
from .store_input import MAX_AT_ONCE, attributed, check
from .web.body import check_utf8, decode_errors
from .web.json_structure import check_structure, listed_places
from .web.off_loop import PART, off_loop
from .web.problems import Problem

LARGE = PART
"""Bytes of a body from which on it is decoded in parts."""

MAX_TASK = 8 << 20
"""Bytes of a task in a large batch: more than a payload and steps that are as large as they may be."""

_SHORT = 2 * PART  # bytes of a part that holds no large task
_SEPARATOR = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_PLACE = re.compile(r"`\$\.batch\[(\d+)\]")
_decoder = Decoder[EnqueueRequest](EnqueueRequest)


async def read_enqueue(body: bytes, caller: Caller, *, reserved: bool) -> EnqueueRequest:
    """Decode a request to enqueue many tasks; each is checked and attributed. Raises as `check` does."""
    places = await off_loop(len(body), _places, body)
    batch: list[NewTask] = []
    for start, end, first in _parts(body, places):
        part = b'{"batch":[%b]}' % body[start:end]
        with decode_errors():
            batch += await off_loop(end - start, _read, part, first, caller, reserved)
    return EnqueueRequest(tuple(batch))


def _places(body: bytes) -> list[tuple[int, int]]:
    """Return where the tasks are, after a check of all that is around them."""
    with decode_errors():
        check_utf8(body)
        places = listed_places(body, MAX_AT_ONCE)
        around = body if not places else body[: places[0][0]] + body[places[-1][1] :]
        check_structure(around)
        _decoder.decode(around)
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
        check_structure(part, short=_SHORT)
        message = attributed(_decoder.decode(part), caller)
    except msgspec.DecodeError as error:
        raise msgspec.DecodeError(placed(str(error))) from None
    except Problem as problem:
        raise Problem(problem.code, placed(problem.detail)) from None
    check(message, reserved=reserved)
    batch: tuple[NewTask, ...] = message.batch
    return batch
