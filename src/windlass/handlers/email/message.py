"""The message of a send_email task: addresses, parts and headers. The same bytes in every attempt."""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from fnmatch import fnmatchcase
from mimetypes import guess_type
from typing import Annotated

from msgspec import Meta, Struct

from ..._model.brief import Brief
from ...errors import InvalidOption, InvalidPayload

MAX_SUBJECT = 998
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"{_LOCAL}@{_LABEL}(?:\.{_LABEL})*")
_NAMED = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9 '_-]{0,58}[A-Za-z0-9])?")
_QUOTABLE_NAME = re.compile(r"[ !#-\[\]-~]{1,60}")
_POLICY = SMTP.clone(refold_source="none")  # headers that are written here stay as they are
_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,60}")

AddressText = Annotated[str, Meta(max_length=500, description="a@example.org or Ada <a@example.org>")]


class Attachment(Brief, Struct, frozen=True, kw_only=True):
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


class File(Brief, Struct, frozen=True):
    """An attachment at hand."""

    name: str
    media_type: str
    content: bytes

    @property
    def base64(self) -> str:
        return b64encode(self.content).decode()


class Mail(Brief, Struct, frozen=True, kw_only=True):
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
        made = EmailMessage(policy=_POLICY)
        reply_to = () if self.reply_to is None else (self.reply_to,)
        for header, people in {
            "From": (self.sender,),
            "To": self.to,
            "Cc": self.cc,
            "Reply-To": reply_to,
        }.items():
            if people:
                made.set_raw(header, _address_list(people))
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


def _address_list(people: Sequence[Address]) -> str:
    """Return the text of a header, each address on its line.

    Not left to the email package, which loses the quotes of a name that it folds: a comma in it would begin
    another address.
    """
    return ",\r\n ".join(f"{_phrase(one.display_name)}<{one.addr_spec}>" for one in people)


def _phrase(name: str) -> str:
    if not name:
        return ""
    if _PLAIN_NAME.fullmatch(name):
        return f"{name} "
    if _QUOTABLE_NAME.fullmatch(name):
        return f'"{name}" '
    return f"{Header(name, 'utf-8').encode(linesep=SMTP.linesep)} "


def check_lines(name: str, value: object) -> None:
    """Raise InvalidPayload if what becomes headers could begin another header."""
    match value:
        case str() if (wrong := _wrong_in_header(value)) is not None:
            raise InvalidPayload(f"{name} {wrong}", pointer=f"/{name}")
        case list():
            for one in value:
                check_lines(name, one)
        case Attachment():
            check_lines(name, [value.name, value.type])
        case _:
            pass


def _wrong_in_header(text: str) -> str | None:
    """Return what a text has that could begin another header; None if there is nothing.

    Python's email package decodes encoded words (RFC 2047) that are in a header's text, and some versions
    write the line feeds in them as they are (CVE-2024-6923).
    """
    if _CONTROL.search(text):
        return "must not have control characters, such as line feeds"
    _, begin, rest = text.partition("=?")
    if begin and "?=" in rest:
        return "must be plain text, without encoded words such as =?utf-8?q?=C3=A9?=; they are made as needed"
    return None


def parse_address(text: str) -> Address:
    """Parse `a@example.org` or `Ada <a@example.org>`. Raises InvalidOption.

    The local part must be ASCII; a domain may be international.
    """
    named = _NAMED.fullmatch(text.strip())
    name, address = (named["name"].strip(), named["address"]) if named else ("", text.strip())
    if (wrong := _wrong_in_header(text)) is not None:
        raise InvalidOption(f"an e-mail address {wrong}")
    if "=?" in text:  # which could be the beginning of an encoded word that ends in the next address
        raise InvalidOption("an e-mail address must not have =?")
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
    if (wrong := _wrong_in_header(subject)) is not None:
        raise InvalidOption(f"a subject {wrong}")
    if len(subject) > MAX_SUBJECT:
        raise InvalidOption(f"a subject must have at most {MAX_SUBJECT} characters, got {len(subject):,}")
    return subject


def new_file(name: str, content: bytes, media_type: str | None) -> File:
    """Make a file to attach. Raises InvalidOption for a name or type that cannot be in a header."""
    if not name or len(name) > 200 or _wrong_in_header(name) or "/" in name or "\\" in name:
        raise InvalidOption(f"{name[:100]!r} is not the name of an attachment")
    kind = (media_type or guess_type(name)[0] or "application/octet-stream").lower()
    if not _TYPE.fullmatch(kind) or kind.startswith(("multipart/", "message/")):
        raise InvalidOption(f"{kind[:100]!r} is not a media type of an attachment")
    return File(name, kind, content)
