"""CORS: the origins whose pages may call the API from a browser; none unless they are listed."""

import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from ..._policy.input.quote import quoted
from ...errors import InvalidOption
from .problems import SAFE_HEADERS

_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?", re.ASCII)
_RESPONSE_HEADERS = (
    "Idempotency-Replayed",
    "Link",
    "Location",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
)


def with_cors(app: ASGIApp, origins: Iterable[str]) -> ASGIApp:
    """Let pages of these origins call the app. Cookies are not allowed: pages send a key."""
    allowed = [checked_origin(one) for one in origins]
    if not allowed:
        return app
    return _Cors(
        app,
        allow_origins=allowed,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("Authorization", "Content-Type", "Idempotency-Key"),
        expose_headers=_RESPONSE_HEADERS,
        max_age=600,  # seconds
    )


class _Cors(CORSMiddleware):
    """Starlette's middleware, with our security headers on preflight responses too."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        response.headers.update(SAFE_HEADERS)
        return response


def checked_origin(text: str) -> str:
    """Return an origin as browsers send it: scheme, host and optional port. There is no wildcard."""
    if not _ORIGIN.fullmatch(text):
        raise InvalidOption(
            f"{quoted(text)} is not an origin; write it as browsers send it, such as https://example.com or "
            f"http://localhost:3000: lower case, no path, no wildcard"
        )
    return text
