"""What an HTTP response means for a task: done, try again, or never again."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import msgspec

from .._fetch import Fetched
from ..signals import Fatal, Retry

_TRANSIENT = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
_LONGEST = timedelta(days=1)  # that a server may ask to wait
_NOTED = 3_000  # bytes of a response's text, as JSON, that fit an attempt's notes


def require_success(fetched: Fetched, who: str) -> None:
    """Raise unless the status is 2xx: Retry for 408, 425, 429 and 5xx, else Fatal.

    Retry-After is heeded. `who` names the server in the error.
    """
    status = fetched.status
    if 200 <= status < 300:
        return
    answered = f"{who} responded with {phrase(status)}"
    if status in _TRANSIENT or status >= 500:
        raise Retry(answered, after=retry_after(fetched.headers.get("retry-after"), datetime.now(UTC)))
    if 300 <= status < 400:
        raise Fatal(f"{answered}; redirects are not followed")
    raise Fatal(answered)


def phrase(status: int) -> str:
    """Return a status with its usual name: "503 Service Unavailable"."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def retry_after(value: str | None, now: datetime) -> timedelta | None:
    """Parse the header Retry-After, seconds or a date; None if there is none to heed. At most a day."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:9])), _LONGEST)
    try:
        instant = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    at = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return min(max(at - now, timedelta()), _LONGEST)


def noted_text(body: bytes, limit: int = _NOTED) -> str:
    """Return the start of a response as text that fits the notes of an attempt."""
    text = body[:limit].decode("utf-8", "replace").replace("\0", "\ufffd")
    while len(msgspec.json.encode(text)) > limit:
        text = text[: len(text) * 3 // 4]
    return text
