"""What a worker and its child processes say to each other: length-prefixed JSON. Never pickle."""

import asyncio
from datetime import timedelta
from typing import BinaryIO, TypeAlias

import msgspec
from msgspec import Struct

from .._model.task import Error, Progress, Task

MAX_FRAME = 1 << 26
_HEADER = 4


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """How the child finds the program: its import path and, if it is a script, the script."""

    path: tuple[str, ...]
    script: str | None


class Order(Struct, frozen=True, kw_only=True, tag="order"):
    """Run this task with this payload."""

    module: str
    qualname: str
    task: Task
    payload: bytes


class Told(Struct, frozen=True, kw_only=True, tag="told"):
    """Progress, on the way."""

    progress: Progress


class Result(Struct, frozen=True, kw_only=True, tag="result"):
    """The handler returned."""

    result: bytes | None


class Failure(Struct, frozen=True, kw_only=True, tag="failure"):
    """The handler raised: an error, or a wish to be called later."""

    error: Error | None = None
    fatal: bool = False
    retry_after: timedelta | None = None
    snooze: timedelta | None = None


Message: TypeAlias = Hello | Order | Told | Result | Failure

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def pack(message: Message) -> bytes:
    """A message as it goes through the pipe."""
    data = _encoder.encode(message)
    return len(data).to_bytes(_HEADER, "big") + data


async def receive(stream: asyncio.StreamReader) -> Message:
    """The next message; IncompleteReadError when the other side has gone."""
    size = int.from_bytes(await stream.readexactly(_HEADER), "big")
    return _decoder.decode(await stream.readexactly(size))


def receive_blocking(stream: BinaryIO) -> Message | None:
    """The next message; None when the other side has gone."""
    header = stream.read(_HEADER)
    if len(header) < _HEADER:
        return None
    size = int.from_bytes(header, "big")
    data = stream.read(size)
    return _decoder.decode(data) if len(data) == size else None
