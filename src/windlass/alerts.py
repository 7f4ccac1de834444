"""What programs need to hear of dead-letter alerts: the event, and the signature of webhook messages.

A message is signed with a secret that both sides know. The header says when, and proves by whom:

    Windlass-Signature: t=1790000000,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd

`v1` is the HMAC-SHA256, in hex, of the bytes of `t`, a full stop, and the body as it came.
"""

import hmac
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from msgspec import Struct

from ._model.alert import Turn
from .errors import InvalidOption

__all__ = ["SIGNATURE_HEADER", "AlertEvent", "Turn", "sign", "verify_signature"]

SIGNATURE_HEADER = "Windlass-Signature"
MIN_SECRET = 16
_MAX_HEADER = 1_000


class Secret(str):
    """Text that does not show itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(…)"


class AlertEvent(Struct, frozen=True, kw_only=True):
    """An alert was raised, reminded of or cleared."""

    turn: Turn
    alert: str
    number: int
    count: int
    window: timedelta | None
    type: str | None
    queue: str | None
    raised_at: datetime
    at: datetime


def sign(secret: str, body: bytes, *, at: int) -> str:
    """The signature header's value for a body sent at this Unix time."""
    return f"t={at},v1={_mac(secret, str(at), body)}"


def verify_signature(
    secret: str | Sequence[str],
    header: str | None,
    body: bytes,
    *,
    tolerance: timedelta | float = 300.0,
    now: float | None = None,
) -> bool:
    """Whether a message comes from who knows the secret, and was sent within `tolerance` of now.

    Give the body as it came, not parsed and written again. While a secret is being changed give the
    old and the new one. `now` is a Unix time, for tests.
    """
    secrets = [checked_secret(one) for one in (secret if isinstance(secret, list | tuple) else [secret])]
    if not secrets:
        raise InvalidOption("a signature is checked against a secret, and none was given")
    at, macs = _parts(header)
    if at is None:
        return False
    seconds = tolerance.total_seconds() if isinstance(tolerance, timedelta) else tolerance
    if abs((time.time() if now is None else now) - int(at)) > seconds:
        return False
    expected = [_mac(one, at, body).encode() for one in secrets]
    # Every pair is compared, in constant time: how long it takes tells nothing.
    same = [hmac.compare_digest(mac.encode(), one) for mac in macs for one in expected]
    return any(same)


def checked_secret(secret: object) -> Secret:
    """A secret that is worth the name; the complaint does not tell it."""
    if not isinstance(secret, str) or len(secret) < MIN_SECRET:
        raise InvalidOption(
            f"a webhook secret is text of at least {MIN_SECRET} characters; `openssl rand -hex 32` makes one"
        )
    return Secret(secret)


def _mac(secret: str, at: str, body: bytes) -> str:
    return hmac.new(secret.encode(), at.encode() + b"." + body, sha256).hexdigest()


def _parts(header: str | None) -> tuple[str | None, list[str]]:
    """The time and the signatures that a header names. What it says is anybody's: it may be anything."""
    if not isinstance(header, str) or not header.isascii() or len(header) > _MAX_HEADER:
        return None, []
    pairs = [part.strip().partition("=") for part in header.split(",")]
    times = [value for key, _, value in pairs if key == "t"]
    if len(times) != 1 or not times[0].isdigit() or len(times[0]) > 12:
        return None, []
    return times[0], [value for key, _, value in pairs if key == "v1"]
