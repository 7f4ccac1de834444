"""A body of lines, taken in as it comes."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from ..._policy.input.payload import MAX_BYTES
from .problems import Problem

NDJSON = "application/x-ndjson"
MAX_LINE = 2 * MAX_BYTES
MAX_PART = 1_000
"""Lines handed on at once, at most: what has come by then, so that batches form by themselves."""

SILENCE_SECONDS = 30.0
"""Who sends nothing for so long has gone."""


class Lines:
    """The lines of a request that are not blank, in parts as they come."""

    def __init__(self, request: Request) -> None:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != NDJSON:
            raise Problem(415, "unsupported-media-type", f"send lines of JSON: Content-Type: {NDJSON}")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise Problem(415, "unsupported-media-type", "send it as it is, not compressed")
        self._stream = request.stream()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        rest = b""
        while (chunk := await self._next()) is not None:
            *lines, rest = (rest + chunk).split(b"\n")
            for part in _parts(lines):  # These came before it, and stand whatever it is.
                yield part
            if len(rest) > MAX_LINE:
                raise Problem(413, "too-large", f"a line has at most {MAX_LINE:,} bytes")
        for part in _parts([rest]):
            yield part

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                return await anext(self._stream, None)
        except TimeoutError:
            raise Problem(408, "too-slow", f"nothing came for {SILENCE_SECONDS:g} seconds") from None


class Streamed(Response):
    """An answer that goes out while the question still comes in.

    Starlette's own listens for the end of the connection meanwhile, and so would swallow the question.
    """

    def __init__(self, parts: AsyncIterator[bytes], media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, _: Connection, __: Receive, send: Send) -> None:
        """Send the parts as they come."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _parts(lines: list[bytes]) -> list[list[bytes]]:
    said = [line for line in lines if line.strip()]
    return [said[start : start + MAX_PART] for start in range(0, len(said), MAX_PART)]
