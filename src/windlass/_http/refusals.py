"""Refused requests: counted by reason, and logged, but not so often that a flood fills the log."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.requests import Request

from .web.refusal import Reason, Refusal

if TYPE_CHECKING:
    from .._observe.metrics import Meter

logger = logging.getLogger("windlass.http")

BURST = 10
"""Lines about one reason that are logged without a pause."""

PAUSE_SECONDS = 10.0
"""Time for one more line about the same reason."""


class Lines(Struct):
    """Lines `left` to log at the time `at`, and the number of refusals `unlogged` since the last line."""

    left: float = BURST
    at: float = 0.0
    unlogged: int = 0


class Refusals:
    """Counts and logs refused requests. `meter` is None if the server exports no metrics."""

    def __init__(self, meter: "Meter | None", clock: Callable[[], float] = monotonic) -> None:
        self._count = meter.refusals(Reason) if meter is not None else None
        self._clock = clock
        self._lines = {reason: Lines(at=clock()) for reason in Reason}

    def add(self, refusal: Refusal, request: Request, path: str, key_id: str) -> None:
        """Count a refusal, and log it if its reason has not been logged too often lately.

        `path` is that of the operation, with the names of its parameters: the request's own may be anything.
        """
        if self._count is not None:
            self._count(refusal.reason)
        lines = self._lines[refusal.reason]
        now = self._clock()
        lines.left = min(lines.left + (now - lines.at) / PAUSE_SECONDS, BURST)
        lines.at = now
        if lines.left < 1:
            lines.unlogged += 1
            return
        address = request.client.host if request.client else "unknown"
        logger.warning(
            "refused %s %s from %s%s: %s%s",
            request.method,
            path,
            address,
            f" with key {key_id}" if key_id else "",
            refusal.reason,
            f"; {lines.unlogged:,} more were not logged" if lines.unlogged else "",
            extra={
                "event": "refused",
                "reason": str(refusal.reason),
                "operation": f"{request.method} {path}",
                "address": address,
                "key_id": key_id or None,
                "unlogged": lines.unlogged,
            },
        )
        lines.left -= 1
        lines.unlogged = 0
