"""JSON lines (NDJSON): request bodies read as they arrive, and responses sent meanwhile."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from ..._policy.input.payload import MAX_BYTES
from .load import held_by
from .problems import Problem

NDJSON = "application/x-ndjson"
MAX_LINE = 2 * MAX_BYTES
MAX_LINES = 1_000
"""Lines yielded at once; all that have arrived form one batch, up to this many."""

SILENCE_SECONDS = 30.0
"""Time without data after which the request is given up."""


async def read_lines(request: Request) -> AsyncIterator[list[bytes]]:
    """Yield the non-blank lines of a body in batches, as they arrive."""
    stream, rest, held = request.stream(), bytearray(), held_by(request)
    while (chunk := await _next_chunk(stream)) is not None:
        unseen = len(rest)
        rest += chunk
        end = rest.rfind(b"\n", unseen) + 1
        if end:
            lines = bytes(rest[:end]).split(b"\n")
            del rest[:end]
            for batch in _batches(lines):  # complete lines are processed even if the next is too long
                yield batch
            held.release_body()
        if len(rest) > MAX_LINE:
            raise Problem("too-large", f"a line is longer than {MAX_LINE:,} bytes")
        held.hold_body(len(rest))
    for batch in _batches([bytes(rest)]):
        yield batch


async def _next_chunk(stream: AsyncIterator[bytes]) -> bytes | None:
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            return await anext(stream, None)
    except TimeoutError:
        raise Problem("too-slow", f"no data arrived for {SILENCE_SECONDS:g} seconds") from None


def _batches(lines: list[bytes]) -> list[list[bytes]]:
    filled = [line for line in lines if line.strip()]
    return [filled[start : start + MAX_LINES] for start in range(0, len(filled), MAX_LINES)]


class DuplexResponse(Response):
    """A response that is sent while the request body is still being received.

    Starlette's StreamingResponse reads from the connection to notice a disconnect, and so would consume the
    body.
    """

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        super().__init__(media_type=NDJSON)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, _: Connection, __: Receive, send: Send) -> None:
        """Send each part as soon as it is there."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
