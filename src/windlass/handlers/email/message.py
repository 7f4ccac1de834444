"""The message of a send_email task: addresses, parts and headers. The same bytes in every attempt."""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from fnmatch import fnmatchcase
from mimetypes import guess_type
from typing import Annotated

from msgspec import Meta, Struct

from ...errors import InvalidOption, InvalidPayload

MAX_SUBJECT = 998
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"{_LOCAL}@{_LABEL}(?:\.{_LABEL})*")
_NAMED = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,60}")

AddressText = Annotated[str, Meta(max_length=500, description="a@example.org or Ada <a@example.org>")]


class Attachment(Struct, frozen=True, kw_only=True):
    """A file that goes with a message: its `content` in base64, a `file` in the storage, or a `url`.

    Of several the first counts, so that a result of resize_image or generate_report can be given as it is.
    `name`: shown to the recipient [default: the last part of the file's name or URL]. `type`: its media type
    [default: by its name].
    """

    name: str | None = None
    content: bytes | None = None
    file: str | None = None
    url: str | None = None
    type: str | None = None


class File(Struct, frozen=True):
    """An attachment at hand."""

    name: str
    media_type: str
    content: bytes

    @property
    def base64(self) -> str:
        return b64encode(self.content).decode()


class Mail(Struct, frozen=True, kw_only=True):
    """A message as a provider gets it."""

    message_id: str  # without angle brackets; the same in every attempt
    sender: Address
    to: tuple[Address, ...]
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    reply_to: Address | None = None
    subject: str
    text: str | None = None
    html: str | None = None
    files: tuple[File, ...] = ()
    at: datetime

    @property
    def recipients(self) -> tuple[str, ...]:
        """Every address that gets it, once."""
        return tuple(dict.fromkeys(one.addr_spec for one in (*self.to, *self.cc, *self.bcc)))

    def as_bytes(self) -> bytes:
        """Return it in the format of the internet (RFC 5322), with lines that end in CRLF; without bcc."""
        made = EmailMessage(policy=SMTP)
        made["From"], made["To"] = self.sender, self.to
        if self.cc:
            made["Cc"] = self.cc
        if self.reply_to is not None:
            made["Reply-To"] = self.reply_to
        made["Subject"] = self.subject
        made["Date"] = format_datetime(self.at)
        made["Message-ID"] = f"<{self.message_id}>"
        made.set_content(self.text or "")
        if self.html is not None:
            if self.text is None:
                made.set_content(self.html, subtype="html")
            else:
                made.add_alternative(self.html, subtype="html")
        for file in self.files:
            main, _, sub = file.media_type.partition("/")
            made.add_attachment(file.content, maintype=main, subtype=sub, filename=file.name)
        for number, part in enumerate(part for part in made.walk() if part.is_multipart()):
            part.set_boundary(f"={self.message_id[:40]}={number}")  # by default random
        return made.as_bytes()


def check_lines(name: str, value: object) -> None:
    """Raise InvalidPayload if what becomes headers has a line feed, which would begin another header."""
    match value:
        case str() if _CONTROL.search(value):
            message = f"{name} must not have control characters, such as line feeds"
            raise InvalidPayload(message, pointer=f"/{name}")
        case list():
            for one in value:
                check_lines(name, one)
        case Attachment():
            check_lines(name, [value.name, value.type])
        case _:
            pass


def parse_address(text: str) -> Address:
    """Parse `a@example.org` or `Ada <a@example.org>`. Raises InvalidOption.

    The local part must be ASCII; a domain may be international.
    """
    named = _NAMED.fullmatch(text.strip())
    name, address = (named["name"].strip(), named["address"]) if named else ("", text.strip())
    if _CONTROL.search(text):
        raise InvalidOption("an e-mail address must not have control characters")
    local, _, domain = address.rpartition("@")
    try:
        ascii_domain = domain if domain.isascii() else domain.encode("idna").decode()
    except UnicodeError:
        ascii_domain = ""
    plain = f"{local}@{ascii_domain}"
    if not _ADDRESS.fullmatch(plain) or len(local) > 64 or len(plain) > 254:
        raise InvalidOption(f"{text[:100]!r} is not an e-mail address")
    if len(name) >= 2 and name[0] == name[-1] == '"':
        name = name[1:-1]
    return Address(display_name=name, addr_spec=plain)


def parse_addresses(given: str | Sequence[str] | None) -> tuple[Address, ...]:
    """Parse one address, several, or none. Raises InvalidOption."""
    texts = [] if given is None else [given] if isinstance(given, str) else given
    return tuple(parse_address(text) for text in texts)


def checked_sender(text: str, allowed: Iterable[str]) -> Address:
    """Parse the address of a sender that must match one of the patterns, as *@example.org."""
    sender = parse_address(text)
    if not any(fnmatchcase(sender.addr_spec.lower(), pattern.lower()) for pattern in allowed):
        raise InvalidOption(f"{sender.addr_spec} may not send: it is not in `senders`")
    return sender


def checked_subject(subject: str) -> str:
    """Check that a subject is one line. Raises InvalidOption."""
    if _CONTROL.search(subject) or len(subject) > MAX_SUBJECT:
        raise InvalidOption(
            f"a subject must be one line of at most {MAX_SUBJECT} characters, without control characters"
        )
    return subject


def new_file(name: str, content: bytes, media_type: str | None) -> File:
    """Make a file to attach. Raises InvalidOption for a name or type that cannot be in a header."""
    if not name or len(name) > 200 or _CONTROL.search(name) or "/" in name or "\\" in name:
        raise InvalidOption(f"{name[:100]!r} is not the name of an attachment")
    kind = (media_type or guess_type(name)[0] or "application/octet-stream").lower()
    if not _TYPE.fullmatch(kind) or kind.startswith(("multipart/", "message/")):
        raise InvalidOption(f"{kind[:100]!r} is not a media type of an attachment")
    return File(name, kind, content)
