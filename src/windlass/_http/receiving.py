"""Taking a request in, within bounds of size and time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from starlette.requests import Request

from .problems import Problem

MAX_BODY = 64 * 1024 * 1024
"""Bytes: the largest batch of tasks; a single payload has a bound of its own."""

MAX_SECONDS = 15.0
"""Who sends slower than that ties up a connection on purpose, or might as well."""


async def body_of(request: Request, *, optional: bool = False) -> bytes:
    """The body of a request; a Problem if it is too large, too slow, or not JSON in UTF-8."""
    if optional and _has_none(request):
        return b""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "unsupported-media-type", "send JSON, and say so: Content-Type: application/json")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, "unsupported-media-type", "send it as it is, not compressed")
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > MAX_BODY:
        raise _too_large()
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(MAX_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY:
                    raise _too_large()
                chunks.append(chunk)
    except TimeoutError:
        raise Problem(408, "too-slow", f"a request is sent within {MAX_SECONDS:g} seconds") from None
    return _utf8(b"".join(chunks))


def _has_none(request: Request) -> bool:
    headers = request.headers
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


@contextmanager
def understood() -> Iterator[None]:
    """What cannot be read is a problem of who sent it."""
    try:
        yield
    except msgspec.DecodeError as error:
        raise Problem(422, "invalid-request", str(error)) from None
    except UnicodeDecodeError as error:
        raise Problem(422, "invalid-request", f"the body is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise Problem(422, "invalid-request", "the body is nested too deeply; flatten it") from None


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
