"""Alert events, and the signatures of webhook messages.

Messages are signed as Standard Webhooks 1.0.0 specifies, with a secret that both sides know:

    webhook-id: raised-20261115T093000125000Z-9a105749cfcbac2e
    webhook-timestamp: 1790000000
    webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=

`v1` is the HMAC-SHA256, in base64, of the id, the timestamp and the body as received, joined by full stops.
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
from ._model.brief import Secret
from .errors import InvalidOption

__all__ = ["AlertEvent", "Turn", "sign", "verify_signature"]

ID_HEADER, TIME_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"
MIN_SECRET, MAX_SECRET = 24, 64  # bytes, by the standard
_PREFIX = "whsec_"
_ASYMMETRIC = ("whsk_", "whpk_")
_MAX_HEADER = 4_000
# Visible ASCII without the full stop, which separates id, time and body.
_ID = re.compile(r"[!-\-/-~]{1,256}")
_TIME = re.compile(r"[0-9]{1,12}")
_ONE = re.compile(r"[^,\s]+")  # one of several secrets


class AlertEvent(Struct, frozen=True, kw_only=True):
    """An alert was raised, repeated or cleared. Passed to `app.on_alert` functions.

    `number` dead letters were counted where `count` are enough, in all or within `window`; `type` and `queue`
    are None if any count.
    """

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
    """Return headers that sign a message sent at this Unix time with each secret. Raises InvalidOption."""
    if not _ID.fullmatch(message_id):
        raise InvalidOption("message_id must be 1 to 256 visible ASCII characters without a full stop")
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
    """Return whether a message was signed with the secret, and sent within `tolerance` of now.

        if not verify_signature(SECRET, request.headers, await request.body()):
            return Response(status_code=401)

    `headers`: of the request. `body`: as received, not parsed and encoded again. `secret`: one or
    several; one match is enough. `tolerance`: a timedelta or seconds [default: 300]. `now`: a Unix time, for
    tests. Raises InvalidOption for an unusable secret.
    """
    keys = _keys(secret)
    message_id, at = _only(headers, ID_HEADER), _only(headers, TIME_HEADER)
    if not _ID.fullmatch(message_id) or not _TIME.fullmatch(at):
        return False
    seconds = tolerance.total_seconds() if isinstance(tolerance, timedelta) else tolerance
    if not abs((time.time() if now is None else now) - int(at)) <= seconds:  # written so that NaN fails
        return False
    given = [
        mac.encode()
        for version, _, mac in (one.partition(",") for one in _only(headers, SIGNATURE_HEADER).split())
        if version == "v1"
    ]
    expected = [_mac(key, message_id, at, body).encode() for key in keys]
    # Every pair is compared in constant time, so the duration reveals nothing.
    same = [hmac.compare_digest(mac, one) for mac in given for one in expected]
    return any(same)


def checked_secret(secret: object) -> Secret:
    """Return one or several secrets, checked. Raises InvalidOption, without showing them."""
    _keys([secret])
    return Secret(secret)


def _keys(secret: object) -> list[bytes]:
    """Return the keys of secrets, which commas or spaces separate."""
    texts: Sequence[object] = secret if isinstance(secret, list | tuple) else [secret]
    keys: list[bytes] = []
    for text in texts or [None]:
        found = _ONE.findall(text) if isinstance(text, str) else []
        if not found:
            raise _unusable("must be text, and not empty")
        keys += [_key(one) for one in found]
    return keys


def _key(secret: str) -> bytes:
    if secret.startswith(_ASYMMETRIC):
        raise _unusable("must not be an ed25519 key (whsk_, whpk_): only HMAC is supported")
    text = secret.removeprefix(_PREFIX).rstrip("=")
    try:
        if secret.startswith(_PREFIX):
            key = b64decode(text + "=" * (-len(text) % 4), validate=True)
        else:
            key = secret.encode()
    except ValueError:  # its message would show the secret
        raise _unusable(f"must be {_PREFIX} and base64, or text in UTF-8") from None
    if not MIN_SECRET <= len(key) <= MAX_SECRET:
        raise _unusable(f"must have {MIN_SECRET} to {MAX_SECRET} bytes, not {len(key)}")
    return key


def _unusable(why: str) -> InvalidOption:
    return InvalidOption(
        f"a webhook secret {why}; create one with `echo {_PREFIX}$(openssl rand -base64 32)`; "
        "separate several by commas or spaces"
    )


def _mac(key: bytes, message_id: str, at: str, body: bytes) -> str:
    # Not hmac.digest, which lets other threads run first, even for a few bytes.
    return b64encode(hmac.new(key, f"{message_id}.{at}.".encode() + body, sha256).digest()).decode()


def _only(headers: Mapping[str, str], name: str) -> str:
    """Return a header that is there exactly once, else "". Its value is not trusted."""
    found = [value for key, value in headers.items() if isinstance(key, str) and key.lower() == name]
    fit = len(found) == 1 and isinstance(found[0], str) and found[0].isascii()
    return found[0] if fit and len(found[0]) <= _MAX_HEADER else ""
