"""Responses that Starlette lacks: conditional GET (ETag and 304), and streams in both directions."""

from collections.abc import AsyncIterator, Mapping
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Connection


def conditional_response(
    request: Request, content: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the content with its ETag, or 304 if `If-None-Match` names it."""
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    sent = {**(headers or {}), "ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, sent)
    return Response(content, 200, sent, media_type=media_type)


class DuplexResponse(Response):
    """A response that is sent while the request body is still being received.

    Starlette's StreamingResponse reads from the connection to notice a disconnect, and so would consume the
    body.
    """

    def __init__(self, parts: AsyncIterator[bytes], media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, _: Connection, __: Receive, send: Send) -> None:
        """Send each part as soon as it is there."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
