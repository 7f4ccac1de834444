"""send_email over SMTP against a server on the loopback: what arrives, and what becomes of the task."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.handlers.http_sink import Answer, http_sink
from tests.handlers.runs import attempts, new_app, run
from tests.handlers.smtp_server import mail_server
from tests.loops.test_fetch import certificate
from tests.loops.workers import drained
from windlass import App, By, InvalidOption, InvalidPayload, State, Task, handlers
from windlass.handlers.email.message import parse_address
from windlass.testing.harness import harness

LARGE = b64encode(b"x" * 200).decode()
PLAIN: dict[str, Any] = {"to": "ada@example.org", "subject": "hello", "text": "how are you?"}


@pytest.fixture
async def app() -> AsyncIterator[App]:
    app = new_app()
    yield app
    await app.close()


def email(url: str, **settings: Any) -> handlers.Email:
    return handlers.Email(
        **{"sender": "Shop <shop@example.org>", "smtp": url, "starttls": "never"} | settings
    )


def result(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(task.result or b"null")
    return found


def message(task: Task) -> str:
    return task.error.message if task.error else ""


async def test_a_message_arrives_whole(app: App) -> None:
    with (
        mail_server() as server,
        http_sink(Answer(200, b"%PDF", {"Content-Type": "application/pdf"})) as files,
    ):
        send = app.include(email(server.url))
        task = await run(
            send,
            app,
            to=["Ada Lovelace <ada@example.org>", "bob@xn--bcher-kva.example"],
            cc="carl@b\u00fccher.example",
            bcc=["dora@example.org", "ada@example.org"],
            reply_to="help@example.org",
            subject="Gr\u00fc\u00dfe \u2693",
            text="a line\n.\nanother \u2693",
            html="<p>\u2693</p>",
            attachments=[
                {"name": "a.txt", "content": b64encode(b"rope\n").decode()},
                {"url": f"{files.url}/report%202.pdf?x=1"},
            ],
        )
        await app.close()

    assert task.state is State.COMPLETED, message(task)
    (accepted,) = server.accepted
    assert accepted.sender == "shop@example.org"
    assert accepted.recipients == (
        "ada@example.org",
        "bob@xn--bcher-kva.example",
        "carl@xn--bcher-kva.example",
        "dora@example.org",
    )
    got = accepted.message
    assert (got["From"], got["Subject"]) == ("Shop <shop@example.org>", "Gr\u00fc\u00dfe \u2693")
    assert got["To"] == "Ada Lovelace <ada@example.org>, bob@xn--bcher-kva.example"
    assert (got["Cc"], got["Bcc"], got["Reply-To"]) == (
        "carl@xn--bcher-kva.example",
        None,
        "help@example.org",
    )
    assert got["Message-ID"] == f"<{result(task)['message_id']}>"
    text, html = got.get_body(("plain",)), got.get_body(("html",))
    assert text is not None
    assert html is not None
    assert text.get_content().replace("\r\n", "\n") == "a line\n.\nanother \u2693\n"
    assert html.get_content().strip() == "<p>\u2693</p>"
    parts = [(one.get_filename(), one.get_content_type()) for one in got.iter_attachments()]
    assert parts == [("a.txt", "text/plain"), ("report 2.pdf", "application/pdf")]
    assert result(task) == {"message_id": result(task)["message_id"], "accepted": 4, "refused": {}}


async def test_every_attempt_sends_the_same_bytes(app: App) -> None:
    with mail_server() as server, harness(app) as world:
        send = app.include(email(server.url))
        server.cut = 2
        handle = await send.aenqueue(**PLAIN, html="<p>hi</p>")
        for _ in range(3):
            await world.arun_until_idle(raise_errors=False)
            world.clock.advance(timedelta(days=1))
        task = await app.operator.task(handle.id)
        await app.close()

    assert (task.state, task.attempt) == (State.COMPLETED, 3)
    assert len(server.accepted) == 3
    assert len({one.content for one in server.accepted}) == 1


async def test_stop_when_unsure_sends_at_most_once(app: App) -> None:
    with mail_server() as server, harness(app) as world:
        send = app.include(email(server.url, when_unsure="stop"))
        server.mail, server.cut = ["451 later"], 1  # certainly not sent, then not known
        handle = await send.aenqueue(**PLAIN)
        for _ in range(4):
            await world.arun_until_idle(raise_errors=False)
            world.clock.advance(timedelta(days=1))
        task = await app.operator.task(handle.id)
        assert (task.state, task.attempt) == (State.DEAD, 3)
        assert "may have sent the message" in message(task)
        assert len(server.accepted) == 1
        await app.operator.replay_one(handle.id, by=By(who="a person"))  # a person decides to send it again
        await world.arun_until_idle()
        assert (await app.operator.task(handle.id)).state is State.COMPLETED
        assert len(server.accepted) == 2
        await app.close()


@pytest.mark.parametrize(
    ("where", "reply", "state"),
    [
        ("mail", "421 too busy", State.SCHEDULED),
        ("mail", "451 local error", State.SCHEDULED),
        ("mail", "550 no such sender", State.DEAD),
        ("data", "452 disk full", State.SCHEDULED),
        ("data", "554 looks like spam", State.DEAD),
        ("mail", "530 authentication required", State.SCHEDULED),
    ],
)
async def test_replies_decide(app: App, where: str, reply: str, state: State) -> None:
    with mail_server() as server:
        send = app.include(email(server.url))
        setattr(server, where, [reply])
        task = await run(send, app, **PLAIN)
        await app.close()

    assert (task.state, server.accepted) == (state, [])
    assert reply in message(task)


async def test_a_hard_bounce_dies_at_once(app: App) -> None:
    with mail_server() as server:
        send = app.include(email(server.url))
        server.rcpt = {"ada@example.org": ["550 no such user"]}
        task = await run(send, app, **PLAIN)
        await app.close()

    assert (task.state, message(task)) == (State.DEAD, "ada@example.org: 550 no such user")
    assert server.accepted == []


async def test_recipients_are_judged_apart(app: App) -> None:
    with mail_server() as server, harness(app) as world:
        send = app.include(email(server.url))
        server.rcpt = {"b@example.org": ["550 unknown"] * 2, "c@example.org": ["450 greylisted"]}
        handle = await send.aenqueue(**PLAIN | {"to": ["a@example.org", "b@example.org", "c@example.org"]})
        for _ in range(2):
            await world.arun_until_idle(raise_errors=False)
            world.clock.advance(timedelta(days=1))
        task = await app.operator.task(handle.id)
        await app.close()

    assert [one.recipients for one in server.accepted] == [("a@example.org",), ("c@example.org",)]
    assert (task.state, result(task)["refused"]) == (State.COMPLETED, {"b@example.org": "550 unknown"})


async def test_a_server_that_is_down_is_tried_again(app: App) -> None:
    with mail_server() as server:
        url = server.url
    task = await run(app.include(email(url)), app, **PLAIN)

    assert task.state is State.SCHEDULED
    assert "no connection to the mail server" in message(task)


async def test_connections_are_kept_and_bounded(app: App) -> None:
    with mail_server() as server:
        send = app.include(email(server.url, connections=2))
        await send.aenqueue_many([PLAIN | {"subject": f"{n}"} for n in range(12)])
        await run(send, app, **PLAIN)
        await run(send, app, **PLAIN)
        await app.close()

    assert len(server.accepted) == 14
    assert server.connections <= 2


async def test_a_stale_connection_is_replaced(app: App) -> None:
    with mail_server() as server:
        send = app.include(email(server.url))
        server.cut = 0
        await run(send, app, **PLAIN)
        server.mail = ["421 shutting down"]  # after which this server closes nothing, but the client does
        retried = await run(send, app, **PLAIN)
        sent = await run(send, app, **PLAIN)
        await app.close()

    assert (retried.state, sent.state) == (State.SCHEDULED, State.COMPLETED)


async def test_tls_is_required_by_default(app: App) -> None:
    with mail_server() as server:
        task = await run(app.include(email(server.url, starttls="required")), app, **PLAIN)

    assert task.state is State.SCHEDULED
    assert "STARTTLS" in message(task)
    assert server.accepted == []


async def test_the_certificate_is_checked_and_the_password_sent(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = await asyncio.to_thread(certificate, tmp_path, "localhost")
    with mail_server(tls=context, login=True) as server:
        url = f"smtp://shop:rope@localhost:{server.port}"
        task = await run(app.include(email(url, starttls="required")), app, **PLAIN)
        assert (task.state, server.accepted) == (State.SCHEDULED, [])
        assert "certificate verify failed" in message(task)
        assert "rope" not in json.dumps(task.as_dict())

        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        trusting = new_app()
        sent = await run(trusting.include(email(url, starttls="required")), trusting, **PLAIN)
        await trusting.close()
        wrong = new_app()
        other = await run(wrong.include(email(url, starttls="required", password="hemp")), wrong, **PLAIN)
        await wrong.close()

    assert (sent.state, len(server.accepted)) == (State.COMPLETED, 1), message(sent)
    assert other.state is State.SCHEDULED  # the settings are wrong, not the message
    assert "535" in message(other)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"to": []}, "needs an address in `to`"),
        ({"to": "ada"}, "'ada' is not an e-mail address"),
        ({"to": "a@b@example.org"}, "is not an e-mail address"),
        ({"to": '"a b"@example.org'}, "is not an e-mail address"),
        ({"to": "@relay.example:a@example.org"}, "is not an e-mail address"),
        ({"to": "\u00e4@example.org"}, "is not an e-mail address"),
        ({"to": [f"a{n}@example.org" for n in range(51)]}, "may go to 50 addresses, not 51"),
        ({"sender": "boss@example.org"}, "boss@example.org may not send"),
        ({"text": None}, "needs `text`, `html` or a `template`"),
        ({"template": "welcome"}, "templates are not set up"),
        ({"attachments": [{"name": "a"}]}, "needs `content`, `file` or `url`"),
        ({"attachments": [{"name": "../a", "content": "YQ=="}]}, "is not the name of an attachment"),
        (
            {"attachments": [{"name": "a", "content": LARGE}]},
            "larger than 100 bytes",
        ),
        ({"attachments": [{"file": "images/none.png"}]}, "no file 'images/none.png'"),
        ({"attachments": [{"file": "../secret"}]}, "is not the name of a file"),
        ({"attachments": [{"url": "http://169.254.169.254/"}]}, "is not public"),
    ],
)
async def test_a_wrong_payload_is_dead_at_once(app: App, change: dict[str, Any], expected: str) -> None:
    with mail_server() as server:
        send = app.include(email(server.url, max_attachment_bytes=100))
        task = await run(send, app, **PLAIN | change)
        await app.close()

    assert (task.state, server.accepted) == (State.DEAD, [])
    assert expected in message(task)


LINES = "a@example.org\r\nBcc: x@example.org"
SPLIT: list[dict[str, Any]] = [
    *({name: LINES} for name in ("to", "cc", "bcc", "reply_to", "sender", "subject")),
    *({name: [LINES]} for name in ("to", "cc", "bcc")),
    {"to": "Ada\r\nBcc: x@example.org <a@example.org>"},
    {"to": "a@example.org\n"},
    {"to": "a@exa\u2028mple.org"},
    {"subject": "hello\n"},
    {"attachments": [{"name": "a\r\nX: y", "content": "YQ=="}]},
    {"attachments": {"name": "a", "content": "YQ==", "type": "text/html\r\nX: y"}},
]


@pytest.mark.parametrize("change", SPLIT)
async def test_a_text_of_a_header_with_a_line_feed_is_refused_at_enqueue(
    app: App, change: dict[str, Any]
) -> None:
    with mail_server() as server:
        send = app.include(email(server.url))
        with pytest.raises(
            InvalidPayload, match=r"does not fit send_email.* must not have control characters"
        ):
            await send.aenqueue(**PLAIN | change)
        assert not (await app.operator.find()).items

        other = App(app.store)  # it does not know the type
        handle = await other.client.send("send_email", PLAIN | change, queue="email")
        await drained(app)

    assert (await handle.state(), server.accepted) == (State.DEAD, [])


@pytest.mark.parametrize(
    "text", ["a@example.org\r\nBcc: x@example.org", "a@exa\u2028mple.org", "a@example.org\n"]
)
def test_an_address_is_one_line(text: str) -> None:
    with pytest.raises(InvalidOption, match="control characters"):
        parse_address(text)


async def test_templates_are_rendered_and_escaped(app: App, tmp_path: Path) -> None:
    (tmp_path / "welcome.subject.txt").write_text("Welcome,\n  {{ name }}\n")
    (tmp_path / "welcome.txt").write_text("Hello {{ name }}")
    (tmp_path / "welcome.html").write_text("<p>{{ name }}</p>")
    (tmp_path / "broken.txt").write_text("{{ nobody.address }}")
    (tmp_path / "escape.txt").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with mail_server() as server:
        send = app.include(email(server.url, templates=str(tmp_path)))
        to = {"to": "a@example.org"}
        sent = await run(send, app, **to, template="welcome", values={"name": "<Ada>\nBcc: x"})
        failed = [
            await run(send, app, **to, subject="x", template=name, values={})
            for name in ("welcome", "broken", "escape", "missing", "../secret")
        ]
        await app.close()

    got = server.accepted[0].message
    assert (sent.state, got["Subject"]) == (State.COMPLETED, "Welcome, <Ada> Bcc: x")
    html = got.get_body(("html",))
    assert html is not None
    assert "<p>&lt;Ada&gt;\nBcc: x</p>" in html.get_content().replace("\r\n", "\n")
    assert [one.state for one in failed] == [State.DEAD] * 5
    reasons = [
        "'name' is undefined",
        "'nobody' is undefined",
        "unsafe",
        "no template 'missing'",
        "is not the name",
    ]
    assert [text in message(one) for text, one in zip(reasons, failed, strict=True)] == [True] * 5, failed


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"smtp": None}, "give one of smtp, sendgrid and mailgun"),
        ({"sendgrid": "key"}, "give one of"),
        ({"smtp": None, "mailgun": "key"}, "mailgun needs a domain"),
        ({"sender": "nobody"}, "is not an e-mail address"),
        ({"smtp": "http://secret@example.org"}, "smtp must be a URL"),
        ({"smtp": "smtp://a:secret@example.org:x"}, "smtp must be a URL"),
        ({"templates": "/nowhere"}, "there is no directory /nowhere"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected) as refused:
        new_app().include(email("smtp://localhost", **settings))
    assert "secret" not in str(refused.value)


async def test_another_sender_can_be_allowed(app: App) -> None:
    with mail_server() as server:
        send = app.include(email(server.url, senders=("*@shop.example",)))
        task = await run(send, app, **PLAIN, sender="Boss <boss@shop.example>")
        await app.close()

    assert task.state is State.COMPLETED
    assert server.accepted[0].sender == "boss@shop.example"
    assert server.accepted[0].message["Message-ID"].endswith("@shop.example>")


async def test_what_the_server_said_is_in_the_attempt_log(app: App) -> None:
    with mail_server() as server:
        task = await run(app.include(email(server.url)), app, **PLAIN)
        await app.close()

    notes = json.loads((await attempts(app, task))[0].notes or b"")
    assert notes["response"] == "OK queued"
    assert len(notes["sent"]) == 1


@pytest.mark.parametrize("text", ["a@b", "a.b+c@example.org", "A <a@example.org>", '"A, B" <a@example.org>'])
def test_usual_addresses_are_accepted(text: str) -> None:
    assert "@" in parse_address(text).addr_spec
