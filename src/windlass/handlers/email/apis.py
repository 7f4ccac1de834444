"""Send by the HTTP APIs of SendGrid and Mailgun."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.headerregistry import Address
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from ..._fetch import Fetched, FetchRefused
from ...signals import Fatal, Retry, Signal
from ..responses import noted_text, require_success
from .message import Mail
from .provider import NotSent, Sent

Fetch = Callable[..., Awaitable[Fetched]]
"""As `Fetcher.fetch`."""

SENDGRID_URL = "https://api.sendgrid.com"
MAILGUN_URL = "https://api.mailgun.net"
_MAX_RESPONSE = 64 * 1024
_MAX_WAIT = timedelta(days=1)


class SendGridProvider:
    """Sends by `POST /v3/mail/send`. SendGrid cannot tell whether it has sent a message."""

    def __init__(self, key: str, base_url: str, fetch: Fetch) -> None:
        self._url = f"{base_url.rstrip('/')}/v3/mail/send"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._fetch = fetch

    async def send(self, mail: Mail, recipients: tuple[str, ...]) -> Sent:
        body = msgspec.json.encode(_sendgrid_document(mail))
        fetched = await _request(self._fetch, self._url, body, self._headers)
        limited = fetched.headers.get("x-ratelimit-reset")
        if fetched.status == 429 and limited is not None and "retry-after" not in fetched.headers:
            raise NotSent(Retry("SendGrid responded with 429 Too Many Requests", after=_until(limited)))
        _require_success(fetched, "SendGrid")
        return Sent(accepted=recipients, response=fetched.headers.get("x-message-id", "")[:300])

    async def was_sent(self, mail: Mail) -> bool | None:  # noqa: ARG002  its API has no such question
        return None

    async def close(self) -> None: ...


class MailgunProvider:
    """Sends by `POST /v3/DOMAIN/messages.mime`; asks its events whether a message was accepted before."""

    def __init__(self, key: str, domain: str, base_url: str, fetch: Fetch) -> None:
        self._base = f"{base_url.rstrip('/')}/v3/{quote(domain, safe='')}"
        self._headers = {"Authorization": "Basic " + b64encode(f"api:{key}".encode()).decode()}
        self._fetch = fetch

    async def send(self, mail: Mail, recipients: tuple[str, ...]) -> Sent:
        boundary = f"windlass-{mail.message_id[:40]}"
        body = _multipart(boundary, [("to", one) for one in recipients], mail.as_bytes())
        headers = {**self._headers, "Content-Type": f"multipart/form-data; boundary={boundary}"}
        fetched = await _request(self._fetch, f"{self._base}/messages.mime", body, headers)
        _require_success(fetched, "Mailgun")
        return Sent(accepted=recipients, response=noted_text(fetched.body, 300))

    async def was_sent(self, mail: Mail) -> bool | None:
        query = urlencode({"event": "accepted", "message-id": mail.message_id, "limit": 1})
        url = f"{self._base}/events?{query}"
        fetched = await self._fetch(url, headers=self._headers, max_bytes=_MAX_RESPONSE)
        require_success(fetched, "Mailgun")
        try:
            return bool(msgspec.json.decode(fetched.body)["items"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise Retry("Mailgun's events cannot be read") from None

    async def close(self) -> None: ...


async def _request(fetch: Fetch, url: str, body: bytes, headers: Mapping[str, str]) -> Fetched:
    try:
        return await fetch(url, "POST", body=body, headers=headers, max_bytes=_MAX_RESPONSE, cut=True)
    except FetchRefused as error:
        raise NotSent(Fatal(str(error))) from None


def _require_success(fetched: Fetched, who: str) -> None:
    """Raise NotSent with the provider's reason unless the status is 2xx. Wrong credentials may be mended."""
    try:
        require_success(fetched, who)
    except Signal as signal:
        detail = f"{signal}: {noted_text(fetched.body, 500)}" if fetched.body else str(signal)
        if isinstance(signal, Retry) or fetched.status in (401, 403):
            after = signal.after if isinstance(signal, Retry) else None
            raise NotSent(Retry(detail, after=after)) from None
        raise NotSent(Fatal(detail)) from None


def _until(reset: str) -> timedelta | None:
    """Return the time until SendGrid's limit is reset, given as Unix seconds."""
    if not reset.isascii() or not reset.isdigit():
        return None
    left = timedelta(seconds=int(reset[:12])) - (datetime.now(UTC) - datetime.fromtimestamp(0, UTC))
    return min(max(left, timedelta(seconds=1)), _MAX_WAIT)


def _sendgrid_document(mail: Mail) -> dict[str, Any]:
    people: dict[str, list[dict[str, str]]] = {}
    left = {*mail.recipients}  # an address may be named once only
    for kind, given in (("to", mail.to), ("cc", mail.cc), ("bcc", mail.bcc)):
        for one in given:
            if one.addr_spec in left:
                left.remove(one.addr_spec)
                people.setdefault(kind, []).append(_person(one))
    document: dict[str, Any] = {
        "personalizations": [people],
        "from": _person(mail.sender),
        "subject": mail.subject,
        "content": [
            {"type": kind, "value": value}
            for kind, value in (("text/plain", mail.text), ("text/html", mail.html))
            if value
        ],
        "headers": {"Message-ID": f"<{mail.message_id}>"},
        "custom_args": {"windlass_message": mail.message_id},
    }
    if mail.reply_to is not None:
        document["reply_to"] = _person(mail.reply_to)
    if mail.files:
        document["attachments"] = [
            {"content": one.base64, "type": one.media_type, "filename": one.name} for one in mail.files
        ]
    return document


def _person(one: Address) -> dict[str, str]:
    named = {"name": one.display_name} if one.display_name else {}
    return {"email": one.addr_spec, **named}


def _multipart(boundary: str, fields: list[tuple[str, str]], message: bytes) -> bytes:
    head = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields
    )
    file = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="message"; filename="message.eml"\r\n'
        f"Content-Type: message/rfc822\r\n\r\n"
    )
    return head + file.encode() + message + f"\r\n--{boundary}--\r\n".encode()
