"""Pages of other origins that may use the API from a browser: none, unless they are named. (I3)"""

import re
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware

from .._policy.shown import shown
from ..errors import InvalidOption

_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?", re.ASCII)
_SENT = ("Authorization", "Content-Type", "Idempotency-Key")
_SHOWN = ("Idempotency-Replayed", "Link", "Location", "RateLimit", "RateLimit-Policy", "Retry-After")
_SECONDS = 600  # that a browser need not ask again


def let_in(served: Starlette, origins: Iterable[str]) -> None:
    """Let pages of these origins ask and read the answers. They send a key: cookies are nothing to us."""
    named = [origin(one) for one in origins]
    if named:
        served.add_middleware(
            CORSMiddleware,
            allow_origins=named,
            allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
            allow_headers=_SENT,
            expose_headers=_SHOWN,
            max_age=_SECONDS,
        )


def origin(text: str) -> str:
    """An origin as browsers send it: scheme, host and perhaps a port. There is none that stands for all."""
    if not _ORIGIN.fullmatch(text):
        raise InvalidOption(
            f"the origin {shown(text)} is none: write it as browsers do, https://example.com or "
            f"http://localhost:3000, in small letters and without a path; there is no word for all of them"
        )
    return text
