"""A large response that many requests share, sent in parts so that no connection keeps a copy of it."""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PART = 64 << 10


class SharedResponse(Response):
    """Sends its body in parts: each once the client has read most of the last, and others had their turn."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        for start in range(0, max(len(body), 1), PART):
            end = start + PART
            more = end < len(body)
            await send({"type": "http.response.body", "body": body[start:end], "more_body": more})
            await asyncio.sleep(0)
