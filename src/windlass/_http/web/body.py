"""Request bodies: read them within bounds of size and time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from starlette.requests import ClientDisconnect, Request

from .problems import Problem

MAX_BODY = 64 * 1024 * 1024
"""Bytes of a request body, enough for the largest batch; a single payload has a limit of its own."""

MAX_SECONDS = 15.0
"""Time for a body to arrive, so that slow senders do not occupy connections."""


async def read_body(request: Request, *, optional: bool = False) -> bytes:
    """Read a JSON body; raise a Problem if it is too large, too slow, or not JSON in UTF-8."""
    if optional and _is_empty(request):
        return b""
    require_media_type(request, "application/json", "JSON")
    length = header(request, b"content-length")
    if length.isdigit() and int(length) > MAX_BODY:
        raise _too_large()
    if _has_arrived(request):
        return _utf8(await _chunks(request))
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return _utf8(await _chunks(request))
    except TimeoutError:
        raise Problem("too-slow", f"the body did not arrive within {MAX_SECONDS:g} seconds") from None


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


async def _chunks(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_BODY:
            raise _too_large()
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


def _too_large() -> Problem:
    return Problem("too-large", f"the body is larger than {MAX_BODY:,} bytes")


def _utf8(body: bytes) -> bytes:
    """Check the encoding here: msgspec does not look into raw JSON such as payloads."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise unreadable(error) from None
    return body
