"""E-mail header injection: what reaches the server has the intended envelope and headers, and no others.

Tasks are enqueued by a client that does not know the type, so that only the worker checks them.
"""

import re
from base64 import b64encode
from email.header import decode_header, make_header
from email.utils import getaddresses
from itertools import product
from typing import Any

import pytest

from tests.handlers.runs import LOOPBACK
from tests.handlers.smtp_server import Accepted, mail_server
from tests.loops.workers import drained
from tests.security.probes import ENOUGH, chosen
from windlass import App, InvalidPayload, State, handlers

EVIL = "evil@example.net"
PLAIN: dict[str, Any] = {"to": "ada@example.org", "subject": "hello", "text": "how are you?"}
HEADERS = ["From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"]
_NAMED = re.compile(r"(.*?)\s*<([^<>\s]+)>", re.DOTALL)

BREAKS = [
    "\r\n", "\n", "\r", "\n\r", "\r\n ", "\n\t", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028",
    "\u2029", "\x7f", "\x1b",
]  # fmt: skip
WORDS = [
    f"=?utf-8?q?a=0d=0aBcc:_{EVIL}?=",
    f"=?utf-8?q?a=0aBcc:_{EVIL}?=",
    f"=?utf-8?Q?a=0DBcc:_{EVIL}?=",
    f"=?UTF-8*en?q?a=0d=0aBcc:_{EVIL}?=",
    f"=?us-ascii?q?a=0d=0aBcc:_{EVIL}?=",
    f"=?utf-16?b?{b64encode(f'a{chr(10)}Bcc: {EVIL}'.encode('utf-16')).decode()}?=",
    f"=?utf-8?b?{b64encode(f'a{chr(13)}{chr(10)}Bcc: {EVIL}'.encode()).decode()}?=",
    f"x =?utf-8?q?=0d=0a=0d=0aBcc:_{EVIL}?= y",
    f'"=?utf-8?q?a=0d=0aBcc:_{EVIL}?="',
    f"=?utf-8?q?a?= =?utf-8?q?=0aBcc:_{EVIL}?=",
    f"=?utf-8?q?=3D=3Futf-8=3Fq=3Fa=3D0aBcc=3A_{EVIL}=3F=3D?=",
    f"=?utf-8?q?a=0aBcc: {EVIL}?=",
    "=?utf-8?q?a=E2=80=A8Bcc:_x?=",
    "=?utf-8?q?plain?=",
]
SHAPES = [
    f"a, {EVIL}", f"a; {EVIL}", f"<{EVIL}>", f'a" <{EVIL}>, "b', f"a) <{EVIL}> (b", "a\\", '"', '""', "a:b;",
    f"undisclosed: {EVIL};", "\u202egro.elpmaxe@live", "\u00e9" * 150, "\u00e9, " * 40, "long name, " * 30,
    "a" * 300, f"{'x ' * 35}, {EVIL}", "%0d%0aBcc: x", "\\r\\nBcc: x", "&#10;Bcc: x", "\u560a\u560dBcc: x",
    "=?", "?=", "=? ?", "=?utf-8?q?open", "\u2424", "\U0001f4a3" * 50, "'; DROP", "\u00a0", "a  b", "a\u0301",
]  # fmt: skip
ADDRESSES = [
    f"a@example.org, {EVIL}", f"a@example.org;{EVIL}", f"a@example.org {EVIL}", f"a@example.org>{EVIL}",
    f"a@example.org><{EVIL}", f"<a@example.org> <{EVIL}>", "a@example.org SIZE=1", "a@example.org> NOTIFY=x",
    "a@[127.0.0.1]", "a@[IPv6:::1]", '"a b"@example.org', '"a\\"b"@example.org', '"a@b"@example.org',
    "@relay:a@example.org", "a@b@example.org", "a%b@example.org", "a!b@example.org", "postmaster", "a@", "@b",
    "a@.org", "a@b..c", "a..b@c.d", ".a@c.d", "a.@c.d", "-a@c.d", "a@-c.d", "a@c-.d", "\uff41@example.org",
    "a\uff20example.org", "a@example\u3002org", "a@ex\u0430mple.org", "a@example.org\u200b", "a@\u2028.org",
    "a(comment)@example.org", "a@example.org(comment)", "a@example.org.", "a @example.org", "a@ example.org",
    f"{'a' * 65}@example.org", f"a@{'b' * 64}.org", f"a@{'b.' * 130}org", "a\u0000b@c.d"[:1] + "@c.d",
    "=?utf-8?q?a?=@example.org", "a@=?utf-8?q?b?=", "a=?b@example.org", "mailto:a@example.org", "<>", "<@>",
    "a@example.org\x00"[:-1], "a@xn--.org", "a@xn--a.org", "MAIL FROM:<x@y>", "RCPT TO:<x@y>",
]  # fmt: skip
PEOPLE = ("to", "cc", "bcc", "reply_to", "sender")


def _corpus() -> list[dict[str, Any]]:
    broken = [f"a{one}Bcc: {EVIL}" for one in BREAKS]
    texts = [*broken, *WORDS, *SHAPES]
    return [
        *({"subject": one} for one in texts),
        *({kind: f"{one} <a@example.org>"} for one, kind in product(texts, PEOPLE)),
        *({kind: one} for one, kind in product([*ADDRESSES, *broken], PEOPLE)),
        *({kind: ["b@example.org", one]} for one, kind in product(ADDRESSES, ("to", "cc", "bcc"))),
        *({"attachments": {"name": one, "content": "YQ=="}} for one in texts),
        *({"attachments": {"name": "a", "content": "YQ==", "type": f"text/{one}"}} for one in texts),
        # Encoded words that begin in one text and end in the next.
        *(
            {kind: [f"=?utf-8?q?a=0aBcc:_{EVIL} <a@example.org>", "?= <b@example.org>"]}
            for kind in ("to", "cc")
        ),
        {"to": "=?utf-8?q?a=0a <a@example.org>", "subject": "?="},
    ]


CORPUS = _corpus()


def people(given: Any) -> list[tuple[str, str]]:
    """The names and addresses that a payload intends."""
    texts = [] if given is None else [given] if isinstance(given, str) else given
    found: list[tuple[str, str]] = []
    for text in texts:
        named = _NAMED.fullmatch(text.strip())
        name, address = (named[1], named[2]) if named else ("", text.strip())
        if len(name) > 1 and name[0] == name[-1] == '"':
            name = name[1:-1]
        local, _, domain = address.rpartition("@")
        found.append((_squeezed(name), f"{local}@{domain.encode('idna').decode()}"))
    return found


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)  # where long texts are folded, parsers differ about spaces


def _decoded(raw: str) -> str:
    return _squeezed(str(make_header(decode_header(raw))))


def headers(content: bytes) -> dict[str, str]:
    """The header of a message by the letter of RFC 5322: lines end in CRLF, and no name is there twice."""
    head = content.partition(b"\r\n\r\n")[0]
    lines = re.sub(rb"\r\n[ \t]", b" ", head).split(b"\r\n")
    assert not any(re.search(rb"[\r\n\x00]|[^\x00-\x7f]", line) for line in lines), head
    pairs = [line.decode().partition(":") for line in lines]
    assert len({name for name, _, _ in pairs}) == len(pairs), head
    return {name: value.strip() for name, _, value in pairs}


def assert_intended(given: dict[str, Any], got: Accepted) -> None:
    """Envelope and headers are those of the payload, and there are no others."""
    found = headers(got.content)
    extra = "Content-Transfer-Encoding"  # unless there are several parts
    assert found.keys() <= {*HEADERS, extra}
    assert ("Cc" in found, "Reply-To" in found) == (bool(given.get("cc")), bool(given.get("reply_to")))
    sender = people(given.get("sender", "Shop <shop@example.org>"))
    assert got.sender == sender[0][1]
    to, cc, bcc = (people(given.get(kind)) for kind in ("to", "cc", "bcc"))
    assert got.recipients == tuple(dict.fromkeys(one for _, one in (*to, *cc, *bcc)))
    for name, intended in (
        ("From", sender),
        ("To", to),
        ("Cc", cc),
        ("Reply-To", people(given.get("reply_to"))),
    ):
        shown = getaddresses([found[name]]) if name in found else []
        assert [(_decoded(who), where) for who, where in shown] == intended
    assert _decoded(found["Subject"]) == _squeezed(given["subject"])
    names = [one["Content-Disposition"].params["filename"] for one in got.message.iter_attachments()]
    assert names == ([given["attachments"]["name"]] if "attachments" in given else [])


async def sent(payloads: list[dict[str, Any]]) -> list[Accepted | None]:
    """Send each message; return what the server accepted of it, None if its task is dead."""
    app = App("memory://", allow_addresses=LOOPBACK)
    with mail_server() as server:
        app.include(
            handlers.Email(
                sender="Shop <shop@example.org>",
                senders=("*",),
                smtp=server.url,
                starttls="never",
                templates=None,
            )
        )
        other = App(app.store)
        found: list[Accepted | None] = []
        for start in range(0, len(payloads), 100):
            before = len(server.accepted)
            some = payloads[start : start + 100]
            tasks = [await other.client.send("send_email", PLAIN | one, queue="email") for one in some]
            await drained(app)
            accepted = server.accepted[before:]
            for task in tasks:
                state = await task.state()
                assert state in (State.COMPLETED, State.DEAD), await app.operator.task(task.id)
                if state is State.DEAD:
                    found.append(None)
                    continue
                name = (await task.result())["message_id"].encode()
                (got,) = [one for one in accepted if name in one.content]
                accepted.remove(got)
                found.append(got)
            assert not accepted  # a dead task has sent nothing
        await app.close()
    return found


def test_the_corpus_is_large() -> None:
    assert len({repr(one) for one in CORPUS}) >= ENOUGH


@pytest.mark.more
async def test_only_the_intended_headers_arrive() -> None:
    probes = chosen(CORPUS, 60)
    arrived = await sent(probes)
    for given, got in zip(probes, arrived, strict=True):
        if got is not None:
            try:
                assert_intended(PLAIN | given, got)
            except AssertionError as error:
                raise AssertionError(f"{given}: {got}") from error
    assert any(arrived)
    assert None in arrived


@pytest.mark.more
@pytest.mark.parametrize("word", chosen(WORDS, 4))
@pytest.mark.parametrize("kind", [*PEOPLE, "subject", "attachments"])
async def test_an_encoded_word_is_refused_at_enqueue(word: str, kind: str) -> None:
    app = App("memory://")
    send = app.include(handlers.Email(sender="a@example.org", smtp="smtp://localhost"))
    value: Any = {
        "subject": word,
        "attachments": {"name": word, "content": "YQ=="},
    }.get(kind, f"{word} <a@example.org>")
    with pytest.raises(InvalidPayload, match="encoded words"):
        await send.aenqueue(**PLAIN | {kind: value})
    await app.close()


async def test_the_judge_finds_what_gets_through() -> None:
    """The control: headers that were injected, an address too many, another subject."""
    (got,) = await sent([{"cc": "carl@example.org"}])
    assert got is not None
    given = PLAIN | {"cc": "carl@example.org"}
    assert_intended(given, got)
    injected = [
        got.content.replace(b"hello", b"hello\r\nBcc: x@example.net"),
        got.content.replace(b"hello", b"hello\nBcc: x@example.net"),
        got.content.replace(b"carl@", b"x@example.net, carl@"),
        got.content.replace(b"hello", b"other"),
    ]
    for content in injected:
        with pytest.raises(AssertionError):
            assert_intended(given, Accepted(got.sender, got.recipients, content))
    with pytest.raises(AssertionError):
        assert_intended(given, Accepted(got.sender, (*got.recipients, EVIL), got.content))
