"""Taking a request in, within bounds of size and time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from starlette.requests import ClientDisconnect, Request

from .problems import Problem

MAX_BODY = 64 * 1024 * 1024
"""Bytes: the largest batch of tasks; a single payload has a bound of its own."""

MAX_SECONDS = 15.0
"""Who sends slower than that ties up a connection on purpose, or might as well."""


async def body_of(request: Request, *, optional: bool = False) -> bytes:
    """The body of a request; a Problem if it is too large, too slow, or not JSON in UTF-8."""
    if optional and _has_none(request):
        return b""
    kind = header(request, b"content-type")
    if kind != "application/json" and kind.partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "unsupported-media-type", "send JSON, and say so: Content-Type: application/json")
    if header(request, b"content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, "unsupported-media-type", "send it as it is, not compressed")
    said = header(request, b"content-length")
    if said.isdigit() and int(said) > MAX_BODY:
        raise _too_large()
    if _is_here(request):
        return _utf8(await _chunks(request))
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return _utf8(await _chunks(request))
    except TimeoutError:
        raise Problem(408, "too-slow", f"a request is sent within {MAX_SECONDS:g} seconds") from None


def header(request: Request, name: bytes, otherwise: str = "") -> str:
    """A header, by its name in small letters. Starlette's own way takes five times as long to find none."""
    for key, value in request.scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return otherwise


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


def _is_here(request: Request) -> bool:
    """Whether the whole body has come with the head, as short ones do: then no clock need run.

    uvicorn knows. Of another server nothing is known, and the clock runs.
    """
    cycle = getattr(request.receive, "__self__", None)
    return getattr(cycle, "more_body", True) is False


def _has_none(request: Request) -> bool:
    headers = request.headers
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


@contextmanager
def understood() -> Iterator[None]:
    """What cannot be read is a problem of who sent it."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_understood(error) from None


def not_understood(error: Exception) -> Problem:
    """The problem with what could not be read."""
    match error:
        case UnicodeDecodeError():
            return Problem(422, "invalid-request", f"the body is not UTF-8 at byte {error.start}")
        case RecursionError():
            return Problem(422, "invalid-request", "the body is nested too deeply; flatten it")
        case _:
            return Problem(422, "invalid-request", str(error))


def _too_large() -> Problem:
    return Problem(413, "too-large", f"a request has at most {MAX_BODY:,} bytes")


def _utf8(body: bytes) -> bytes:
    """JSON within JSON is not looked into when it is read: what is no text must not get that far."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise Problem(422, "invalid-request", f"the body is not UTF-8 at byte {error.start}") from None
    return body
