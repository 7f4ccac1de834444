"""What programs need to hear of dead-letter alerts: the event, and the signature of webhook messages.

Messages are signed as Standard Webhooks 1.0.0 says, with a secret that both sides know. The headers say
which message it is and when it was sent, and prove by whom:

    webhook-id: raised-20261115T093000125000Z-9a105749cfcbac2e
    webhook-timestamp: 1790000000
    webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=

`v1` is the HMAC-SHA256, in base64, of the id, the timestamp and the body as it came, joined by full stops.
"""

import hmac
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from msgspec import Struct

from ._model.alert import Turn
from .errors import InvalidOption

__all__ = ["AlertEvent", "Turn", "sign", "verify_signature"]

ID_HEADER, TIME_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"
MIN_SECRET, MAX_SECRET = 24, 64  # bytes, as the standard says
_PREFIX = "whsec_"
_ASYMMETRIC = ("whsk_", "whpk_")
_MAX_HEADER = 4_000
# Visible ASCII but the full stop: that is what parts the id from the time, and the time from the body.
_ID = re.compile(r"[!-\-/-~]{1,256}")
_TIME = re.compile(r"[0-9]{1,12}")
_ONE = re.compile(r"[^,\s]+")  # of several secrets


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


def sign(secret: str | Sequence[str], body: bytes, *, message_id: str, at: int) -> dict[str, str]:
    """The three headers of a message sent at this Unix time; signed with each of several secrets."""
    if not _ID.fullmatch(message_id):
        raise InvalidOption("a message's id is 1 to 256 visible ASCII characters, without a full stop")
    macs = [_mac(key, message_id, str(at), body) for key in _keys(secret)]
    return {
        ID_HEADER: message_id,
        TIME_HEADER: str(at),
        SIGNATURE_HEADER: " ".join(f"v1,{mac}" for mac in macs),
    }


def verify_signature(
    secret: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance: timedelta | float = 300.0,
    now: float | None = None,
) -> bool:
    """Whether a message comes from who knows the secret, and was sent within `tolerance` of now.

    Give the request's headers, in any case, and the body as it came, not parsed and written again. Of several
    secrets and several signatures one that fits is enough. `now` is a Unix time, for tests.
    """
    keys = _keys(secret)
    message_id, at = _only(headers, ID_HEADER), _only(headers, TIME_HEADER)
    if not _ID.fullmatch(message_id) or not _TIME.fullmatch(at):
        return False
    seconds = tolerance.total_seconds() if isinstance(tolerance, timedelta) else tolerance
    if not abs((time.time() if now is None else now) - int(at)) <= seconds:  # so that NaN is never near
        return False
    given = [
        mac.encode()
        for version, _, mac in (one.partition(",") for one in _only(headers, SIGNATURE_HEADER).split())
        if version == "v1"
    ]
    expected = [_mac(key, message_id, at, body).encode() for key in keys]
    # Every pair is compared, in constant time: how long it takes tells nothing.
    same = [hmac.compare_digest(mac, one) for mac in given for one in expected]
    return any(same)


def checked_secret(secret: object) -> Secret:
    """One or several secrets that are worth the name; the complaint does not tell them."""
    _keys([secret])
    return Secret(secret)


def _keys(secret: object) -> list[bytes]:
    """The keys that secrets stand for. Commas and spaces part them."""
    texts: Sequence[object] = secret if isinstance(secret, list | tuple) else [secret]
    keys: list[bytes] = []
    for text in texts or [None]:
        found = _ONE.findall(text) if isinstance(text, str) else []
        if not found:
            raise _unfit("is text, and not empty")
        keys += [_key(one) for one in found]
    return keys


def _key(secret: str) -> bytes:
    if secret.startswith(_ASYMMETRIC):
        raise _unfit("is not an ed25519 key (whsk_, whpk_): HMAC alone is supported")
    text = secret.removeprefix(_PREFIX).rstrip("=")
    try:
        if secret.startswith(_PREFIX):
            key = b64decode(text + "=" * (-len(text) % 4), validate=True)
        else:
            key = secret.encode()
    except ValueError:  # it would tell the secret
        raise _unfit(f"is {_PREFIX} and base64, or text in UTF-8") from None
    if not MIN_SECRET <= len(key) <= MAX_SECRET:
        raise _unfit(f"has {MIN_SECRET} to {MAX_SECRET} bytes, not {len(key)}")
    return key


def _unfit(why: str) -> InvalidOption:
    return InvalidOption(
        f"a webhook secret {why}; `echo {_PREFIX}$(openssl rand -base64 32)` makes one; "
        "commas or spaces part several"
    )


def _mac(key: bytes, message_id: str, at: str, body: bytes) -> str:
    return b64encode(hmac.digest(key, f"{message_id}.{at}.".encode() + body, sha256)).decode()


def _only(headers: Mapping[str, str], name: str) -> str:
    """A header that is there once, else nothing. What it says is anybody's: it may be anything."""
    found = [value for key, value in headers.items() if isinstance(key, str) and key.lower() == name]
    fit = len(found) == 1 and isinstance(found[0], str) and found[0].isascii()
    return found[0] if fit and len(found[0]) <= _MAX_HEADER else ""
