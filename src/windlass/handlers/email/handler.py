"""The task type send_email and its settings."""

import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct, field

from ..._fetch import Fetched, Fetcher, FetchError, FetchRefused
from ..._handler.context import INJECTED, Context
from ..._handler.signature import payload_check
from ..._model.brief import Brief
from ..._policy.backoff import Backoff
from ...errors import InvalidOption
from ...signals import Fatal, Retry
from ...tasktype import TaskType
from ..responses import require_success
from ..settings import HandlerSettings, required
from ..storage import DEFAULT_STORAGE, FileMissing, Storage, open_storage
from .apis import MAILGUN_URL, SENDGRID_URL, MailgunProvider, SendGridProvider
from .message import (
    AddressText,
    Attachment,
    File,
    Mail,
    check_lines,
    checked_sender,
    checked_subject,
    new_file,
    parse_address,
    parse_addresses,
)
from .provider import NotSent, Provider, Sent
from .smtp import SmtpProvider, SmtpServer, StartTls

if TYPE_CHECKING:
    from ...app import App

_BACKOFF = Backoff(base=30, factor=3, cap=4 * 3600, jitter=0.2, max_attempts=8)  # over about half a day
_EXAMPLE = {
    "to": ["Ada <ada@example.org>"],
    "subject": "Your order 7731",
    "text": "It is on its way.",
    "html": "<p>It is on its way.</p>",
}


class Email(HandlerSettings, frozen=True):
    """Settings of send_email. One of `smtp`, `sendgrid` and `mailgun` must be given.

    `sender`: the address that messages come from. `senders`: patterns of addresses that payloads may name
    instead. `smtp`: smtp://user:password@host:587, or smtps://… `username`, `password`: instead of those in
    the URL. `starttls`: "required", "offered" (used if it is) or "never". `connections`: to the server at
    once. `sendgrid`, `mailgun`: an API key. `domain`: of Mailgun. `base_url`: of the API. `templates`: a
    directory. `storage`: of the files that attachments name. `when_unsure`: what to do if an earlier attempt
    may have sent the message: "send" or "stop".
    """

    table: ClassVar[str] = "email"
    task: ClassVar[str] = "send_email"

    sender: str
    senders: tuple[str, ...] = ()
    smtp: str | None = None
    username: str | None = None
    password: str | None = None
    starttls: StartTls = "required"
    connections: int = 4
    sendgrid: str | None = None
    mailgun: str | None = None
    domain: str | None = None
    base_url: str | None = None
    templates: str | None = None
    storage: str | Storage = DEFAULT_STORAGE
    when_unsure: Literal["send", "stop"] = "send"
    max_recipients: int = 50
    max_attachment_bytes: int = 10 << 20
    timeout: float = 30.0
    queue: str = "email"
    max_attempts: int = _BACKOFF.max_attempts

    def __post_init__(self) -> None:
        parse_address(self.sender)
        if sum(one is not None for one in (self.smtp, self.sendgrid, self.mailgun)) != 1:
            raise InvalidOption("give one of smtp, sendgrid and mailgun")
        if self.mailgun is not None and self.domain is None:
            raise InvalidOption("mailgun needs a domain")

    def __call__(self, app: "App") -> TaskType[..., Any, "Receipt"]:
        """Declare send_email."""
        sender = _Sender(self, app)
        app.on_close(sender.close)
        declared: TaskType[..., Any, Receipt] = app.task(
            name=self.task,
            queue=self.queue,
            backoff=_BACKOFF,
            max_attempts=self.max_attempts,
            timeout=self.timeout * 4,
            fatal=FetchRefused,
            example=_EXAMPLE,
        )(sender.send_email)
        return declared


class Receipt(Struct, frozen=True, kw_only=True):
    """The result: the Message-ID, how many addresses got the message, and why others were refused."""

    message_id: str
    accepted: int
    refused: dict[str, str] = field(default_factory=dict)


def _check_headers(payload: Any) -> None:
    for name in ("to", "cc", "bcc", "reply_to", "sender", "subject", "attachments"):
        check_lines(name, getattr(payload, name))


class _Sender:
    def __init__(self, settings: Email, app: "App") -> None:
        self._settings = settings
        self._app = app
        self._fetcher = Fetcher(deadline=settings.timeout, redirects=3)
        self._templates = None if settings.templates is None else Templates(settings.templates)
        self._storage, _ = open_storage(settings.storage, settings.task)
        self._provider = self._new_provider(settings)
        self._sender = parse_address(settings.sender)

    @payload_check(_check_headers)
    async def send_email(
        self,
        to: list[AddressText] | AddressText,
        subject: str | None = None,
        text: str | None = None,
        html: str | None = None,
        cc: list[AddressText] | AddressText | None = None,
        bcc: list[AddressText] | AddressText | None = None,
        reply_to: AddressText | None = None,
        sender: AddressText | None = None,
        attachments: list[Attachment] | Attachment | None = None,
        template: str | None = None,
        values: Any = None,
        *,
        ctx: Context = INJECTED,
    ) -> Receipt:
        """Send an e-mail.

        `text`, `html`: either or both. `attachments`: files, in the task or by URL. `template`: the name of
        one, which is rendered with `values` and gives what is left out of subject, text and html.
        """
        ctx.note(sent=[])  # so far nobody got it
        try:
            rendered = self._rendered(template, values)
            people = {"to": to, "cc": cc, "bcc": bcc}
            address = self._address(sender)
            mail = Mail(
                message_id=f"{ctx.idempotency_key('email')}@{address.domain}",
                sender=address,
                **{kind: parse_addresses(given) for kind, given in people.items()},
                reply_to=None if reply_to is None else parse_address(reply_to),
                subject=checked_subject(subject or rendered.subject or ""),
                text=rendered.text if text is None else text,
                html=rendered.html if html is None else html,
                files=await self._files(attachments),
                at=ctx.task.created_at,
            )
            self._check(mail)
        except InvalidOption as error:
            raise Fatal(str(error)) from None
        return await self._sent(mail, ctx)

    async def close(self) -> None:
        await self._provider.close()

    async def _sent(self, mail: Mail, ctx: Context) -> Receipt:
        """Send to all who did not get it in an earlier attempt, and note who did."""
        earlier = await earlier_notes(self._app, ctx)
        got = {one for notes in earlier for one in notes.get("sent") or ()}
        left = tuple(one for one in mail.recipients if _digest(one) not in got)
        if any(notes.get("sent") is None for notes in earlier):  # a crash, a timeout, or a lost reply
            if await self._provider.was_sent(mail):
                return Receipt(message_id=mail.message_id, accepted=len(left))
            if self._settings.when_unsure == "stop":
                raise Fatal(
                    "an earlier attempt ended without a reply and may have sent the message; replay the "
                    "task to send it again"
                )
        ctx.note(sent=None)  # not known until there is a reply
        try:
            sent = await self._provider.send(mail, left) if left else Sent(accepted=())
        except NotSent as error:
            ctx.note(sent=[])
            raise error.signal from None
        ctx.note(sent=[_digest(one) for one in sent.accepted], response=sent.response)
        if sent.deferred:
            reasons = "; ".join(f"{one}: {why}" for one, why in sent.deferred.items())
            raise Retry(f"sent to {len(sent.accepted)} of {len(left)} addresses; {reasons}")
        accepted = len(mail.recipients) - len(sent.refused)
        return Receipt(message_id=mail.message_id, accepted=accepted, refused=sent.refused)

    def _rendered(self, template: str | None, values: Any) -> "Rendered":
        if template is None:
            return Rendered(None, None, None)
        if self._templates is None:
            raise InvalidOption("templates are not set up: the setting `templates` names their directory")
        return self._templates.render(template, values if isinstance(values, dict) else {"values": values})

    def _address(self, sender: str | None) -> Any:
        if sender is None:
            return self._sender
        return checked_sender(sender, (self._sender.addr_spec, *self._settings.senders))

    def _check(self, mail: Mail) -> None:
        if not mail.to:
            raise InvalidOption("a message needs an address in `to`")
        if len(mail.recipients) > self._settings.max_recipients:
            raise InvalidOption(
                f"a message may go to {self._settings.max_recipients} addresses, not {len(mail.recipients)}"
            )
        if not mail.text and not mail.html:
            raise InvalidOption("a message needs `text`, `html` or a `template`")

    async def _files(self, given: list[Attachment] | Attachment | None) -> tuple[File, ...]:
        """Return attachments with their contents, those by URL fetched."""
        attachments = [] if given is None else [given] if isinstance(given, Attachment) else given
        files: list[File] = []
        left = most = self._settings.max_attachment_bytes
        for one in attachments:
            place = one.file or unquote(urlsplit(one.url or "").path)
            name = one.name or place.rpartition("/")[2] or "attachment"
            content, kind = await self._content(one, left)
            left -= len(content)
            if left < 0:
                raise InvalidOption(f"attachments are larger than {most:,} bytes")
            files.append(new_file(name, content, one.type or kind))
        return tuple(files)

    async def _content(self, one: Attachment, left: int) -> tuple[bytes, str | None]:
        """Return the content of an attachment and, if it was fetched, its type."""
        if one.content is not None:
            return one.content, None
        if one.file is not None:
            try:
                return await self._storage.get(one.file, max(left, 1)), None
            except FileMissing:
                raise InvalidOption(f"there is no file {one.file[:200]!r} in the storage") from None
        if one.url is None:
            raise InvalidOption("an attachment needs `content`, `file` or `url`")
        fetched = await self._fetch(one.url, max_bytes=max(left, 1))
        require_success(fetched, "the server of an attachment")
        return fetched.body, fetched.headers.get("content-type", "").partition(";")[0].strip() or None

    async def _fetch(self, url: str, method: str = "GET", **options: Any) -> Fetched:
        self._fetcher.allowed = self._app.allowed_networks
        try:
            return await self._fetcher.fetch(url, method, **options)
        except FetchRefused:
            raise
        except FetchError as error:
            raise Retry(str(error)) from None

    def _new_provider(self, settings: Email) -> Provider:
        if settings.sendgrid is not None:
            return SendGridProvider(settings.sendgrid, settings.base_url or SENDGRID_URL, self._fetch)
        if settings.mailgun is not None and settings.domain is not None:
            base = settings.base_url or MAILGUN_URL
            return MailgunProvider(settings.mailgun, settings.domain, base, self._fetch)
        server = SmtpServer.parse(settings.smtp or "", settings.username, settings.password)
        return SmtpProvider(server, settings.starttls, settings.connections, settings.timeout)


def _digest(address: str) -> str:
    return sha256(address.encode()).hexdigest()[:10]


# -- notes of earlier attempts -------------------------------------------------------------------------


_NOT_COUNTED = ("released", "snoozed", "stopped")  # after these the next attempt has the same number


async def earlier_notes(app: "App", ctx: Context) -> list[dict[str, Any]]:
    """Return the notes of each earlier attempt, the newest first; {} for one that noted nothing.

    Attempts before a replay are left out: who replays a task wants it to run again.
    """
    if ctx.fence == 1:
        return []
    notes: list[dict[str, Any]] = []
    expected = ctx.attempt
    for one in reversed(await app.operator.attempts(ctx.task_id)):
        repeats = one.number == expected and one.outcome in _NOT_COUNTED
        if not repeats and one.number != expected - 1:
            break
        expected = one.number
        notes.append({} if one.notes is None else msgspec.json.decode(one.notes))
    return notes


# -- templates -----------------------------------------------------------------------------------------


_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Rendered(Brief, Struct, frozen=True):
    """What the files of a template give; None where there is no file."""

    subject: str | None
    text: str | None
    html: str | None


class Templates:
    """The templates in a directory: NAME.subject.txt, NAME.txt and NAME.html, of which HTML is escaped."""

    def __init__(self, directory: str) -> None:
        if not Path(directory).is_dir():
            raise InvalidOption(f"templates: there is no directory {directory}")
        jinja = required("jinja2", "email", "a template of send_email")
        sandbox = required("jinja2.sandbox", "email", "a template of send_email")
        self._failure: type[Exception] = jinja.TemplateError
        self._missing: type[Exception] = jinja.TemplateNotFound
        self._environment = sandbox.ImmutableSandboxedEnvironment(
            loader=jinja.FileSystemLoader(directory),
            autoescape=lambda name: name is not None and name.endswith(".html"),
            undefined=jinja.StrictUndefined,
        )

    def render(self, name: str, values: dict[str, Any]) -> Rendered:
        """Render a template's files. Raises InvalidOption if it does not exist or a value is missing."""
        if not _NAME.fullmatch(name):
            raise InvalidOption(f"{name[:100]!r} is not the name of a template")
        subject = self._part(f"{name}.subject.txt", values)
        text, html = self._part(f"{name}.txt", values), self._part(f"{name}.html", values)
        if text is None and html is None:
            raise InvalidOption(f"there is no template {name!r}: neither {name}.txt nor {name}.html")
        return Rendered(None if subject is None else " ".join(subject.split()), text, html)

    def _part(self, file: str, values: dict[str, Any]) -> str | None:
        try:
            return str(self._environment.get_template(file).render(values))
        except self._missing as missing:
            name = getattr(missing, "name", None)
            if name != file:  # one that it includes
                raise InvalidOption(f"template {file} includes {name}, which does not exist") from None
            return None
        except (self._failure, TypeError, ValueError, ArithmeticError, OverflowError) as error:
            raise InvalidOption(f"template {file} failed: {error}") from None
