"""Pages of other origins that may use the API from a browser: none, unless they are named. (I3)"""

import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from ..._policy.input.quoting import quoted
from ...errors import InvalidOption
from .problems import SAFE_HEADERS

_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?", re.ASCII)
_SENT = ("Authorization", "Content-Type", "Idempotency-Key")
_SHOWN = ("Idempotency-Replayed", "Link", "Location", "RateLimit", "RateLimit-Policy", "Retry-After")
_SECONDS = 600  # that a browser need not ask again


def letting_in(served: ASGIApp, origins: Iterable[str]) -> ASGIApp:
    """The API, that pages of these origins may ask and read. They send a key: cookies are nothing to us."""
    named = [origin(one) for one in origins]
    if not named:
        return served
    return _Cors(
        served,
        allow_origins=named,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=_SENT,
        expose_headers=_SHOWN,
        max_age=_SECONDS,
    )


class _Cors(CORSMiddleware):
    """What a browser asks before it asks is answered here, with the headers of every answer."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Whether a page may ask."""
        response = super().preflight_response(request_headers)
        response.headers.update(SAFE_HEADERS)
        return response


def origin(text: str) -> str:
    """An origin as browsers send it: scheme, host and perhaps a port. There is none that stands for all."""
    if not _ORIGIN.fullmatch(text):
        raise InvalidOption(
            f"the origin {quoted(text)} is none: write it as browsers do, https://example.com or "
            f"http://localhost:3000, in small letters and without a path; there is no word for all of them"
        )
    return text
