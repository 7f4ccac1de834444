"""Answers that are worth keeping: who has one already is told that it is the same."""

from collections.abc import Mapping
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response


def unless_unchanged(
    request: Request, content: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The content, or 304 to who says by `If-None-Match` that he has it."""
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    said = {**(headers or {}), "ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, said)
    return Response(content, 200, said, media_type=media_type)
