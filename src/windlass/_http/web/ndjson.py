"""Request bodies of JSON lines (NDJSON), read as they arrive."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request

from ..._policy.input.payload import MAX_BYTES
from .body import require_media_type
from .problems import Problem

NDJSON = "application/x-ndjson"
MAX_LINE = 2 * MAX_BYTES
MAX_LINES = 1_000
"""Lines yielded at once; all that have arrived form one batch, up to this many."""

SILENCE_SECONDS = 30.0
"""Time without data after which the request is given up."""


class LineReader:
    """Yields the non-blank lines of a request in batches, as they arrive."""

    def __init__(self, request: Request) -> None:
        require_media_type(request, NDJSON, "JSON lines")
        self._stream = request.stream()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        rest = b""
        while (chunk := await self._next()) is not None:
            *lines, rest = (rest + chunk).split(b"\n")
            for batch in _batches(lines):  # complete lines are processed even if the next is too long
                yield batch
            if len(rest) > MAX_LINE:
                raise Problem("too-large", f"a line is longer than {MAX_LINE:,} bytes")
        for batch in _batches([rest]):
            yield batch

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                return await anext(self._stream, None)
        except TimeoutError:
            raise Problem("too-slow", f"no data arrived for {SILENCE_SECONDS:g} seconds") from None


def _batches(lines: list[bytes]) -> list[list[bytes]]:
    filled = [line for line in lines if line.strip()]
    return [filled[start : start + MAX_LINES] for start in range(0, len(filled), MAX_LINES)]
