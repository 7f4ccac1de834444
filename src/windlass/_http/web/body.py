"""Request bodies: read them within bounds of size and time, and decode them without stalling the server."""

import asyncio
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from ..._store.messages import MAX_REQUEST_BYTES
from .json_structure import check_structure
from .load import SMALL_BODY, held_by
from .off_loop import SMALL, off_loop
from .problems import Problem

MAX_BODY = 2 << 20
"""Bytes of a request body: enough for one task."""

MAX_BATCH_BODY = MAX_REQUEST_BYTES
"""Bytes of the body of a batch."""

MAX_SECONDS = 15.0
"""Time for a body to arrive, so that slow senders do not occupy connections."""

_PART = 1 << 20


async def read_body(request: Request, *, batch: bool = False, optional: bool = False) -> bytes:
    """Read a JSON body; raise a Problem if it is too large or too slow. `batch`: the larger limit applies."""
    if optional and _is_empty(request):
        return b""
    require_media_type(request, "application/json", "JSON")
    return await _read(request, MAX_BATCH_BODY if batch else MAX_BODY)


async def read_form(request: Request, most: int = MAX_BODY) -> bytes:
    """Read the body of a form of at most this many bytes; raise a Problem if it is too large or too slow."""
    require_media_type(request, "application/x-www-form-urlencoded", "a form")
    return await _read(request, most)


async def _read(request: Request, most: int) -> bytes:
    length = header(request, b"content-length")
    if length.isdigit() and int(length) > most:
        raise _too_large(most)
    if _has_arrived(request):
        return await _chunks(request, most)
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return await _chunks(request, most)
    except TimeoutError:
        raise Problem("too-slow", f"the body did not arrive within {MAX_SECONDS:g} seconds") from None


async def decode_body(raw: bytes, decode: Callable[[bytes], Any]) -> Any:
    """Decode a body; raise 422 with the place of what is wrong. Large ones are decoded in a thread."""
    if len(raw) <= SMALL:
        return decode_json(raw, decode)
    return await off_loop(len(raw), decode_json, raw, decode)


def decode_json(raw: bytes, decode: Callable[[bytes], Any]) -> Any:
    """Check the encoding and structure of JSON, then decode it. Raises a Problem."""
    try:
        check_utf8(raw)
        check_structure(raw)
        return decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(error) from None


def check_utf8(body: bytes) -> None:
    """Raise a Problem unless the body is UTF-8: msgspec does not look into raw JSON such as payloads.

    Decodes in parts: as a whole it could take four times the memory, and all of the time at once.
    """
    if body.isascii():
        return
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(body), _PART):
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(body[start : start + _PART], final=start + _PART >= len(body))
        except UnicodeDecodeError as error:
            at = start - pending + error.start
            raise Problem("invalid-request", f"the body is not UTF-8 at byte {at}") from None


def require_media_type(request: Request, kind: str, name: str) -> None:
    """Raise 415 unless the body is of this type, and not compressed."""
    sent = header(request, b"content-type")
    if sent != kind and sent.partition(";")[0].strip().lower() != kind:
        raise Problem("unsupported-media-type", f"send {name}, with Content-Type: {kind}")
    if header(request, b"content-encoding", "identity").strip().lower() != "identity":
        raise Problem("unsupported-media-type", "compressed bodies are not supported")


def header(request: Request, name: bytes, default: str = "") -> str:
    """Return a header by its name in lower case. Starlette's lookup takes five times as long to find none."""
    for key, value in request.scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return default


async def _chunks(request: Request, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > most:
            raise _too_large(most)
        if size > SMALL_BODY:
            held_by(request).hold_body(size)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _has_arrived(request: Request) -> bool:
    """Tell whether the whole body has arrived with the head, as short ones do: then no timer is needed.

    Only uvicorn tells; under other servers the timer runs.
    """
    cycle = getattr(request.receive, "__self__", None)
    return getattr(cycle, "more_body", True) is False


def has_disconnected(request: Request) -> bool:
    """Tell whether the client has gone, without reading its body. Only uvicorn tells."""
    cycle = getattr(request.receive, "__self__", None)
    return getattr(cycle, "disconnected", False) is True


def _is_empty(request: Request) -> bool:
    headers = request.headers
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


@contextmanager
def decode_errors() -> Iterator[None]:
    """Raise decoding errors as 422 problems."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> Problem:
    """Return the problem for a body that cannot be decoded."""
    match error:
        case UnicodeDecodeError():
            return Problem("invalid-request", f"the body is not UTF-8 at byte {error.start}")
        case RecursionError():
            return Problem("invalid-request", "the body is nested too deeply")
        case _:
            return Problem("invalid-request", str(error))


def _too_large(most: int) -> Problem:
    hint = "" if most == MAX_BATCH_BODY else "; larger chains can be sent as a batch"
    return Problem("too-large", f"the body is larger than {most:,} bytes{hint}")
