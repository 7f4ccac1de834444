"""send_email by the APIs of SendGrid and Mailgun, against local servers that speak their protocols."""

import json
import time
from base64 import b64decode, b64encode
from datetime import timedelta
from email import message_from_bytes
from email.policy import HTTP, SMTP
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.handlers.http_sink import Answer, Received, http_sink
from tests.handlers.runs import new_app, run
from windlass import State, Task, handlers
from windlass.testing.harness import harness

MESSAGE: dict[str, Any] = {
    "to": ["Ada <ada@example.org>", "bob@example.org"],
    "bcc": ["bob@example.org", "carl@example.org"],
    "reply_to": "help@example.org",
    "subject": "hello",
    "text": "text",
    "html": "<p>html</p>",
    "attachments": [{"name": "a.txt", "content": b64encode(b"rope").decode()}],
}


def sendgrid(url: str, **more: Any) -> handlers.Email:
    return handlers.Email(sender="Shop <shop@example.org>", sendgrid="SG.key", base_url=url, **more)


def mailgun(url: str, **more: Any) -> handlers.Email:
    return handlers.Email(
        sender="shop@example.org", mailgun="key-1", domain="mg.example.org", base_url=url, **more
    )


def result(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(task.result or b"null")
    return found


async def test_sendgrid_gets_its_document() -> None:
    app = new_app()
    with http_sink(Answer(202, headers={"X-Message-Id": "abc"})) as api:
        task = await run(app.include(sendgrid(api.url)), app, **MESSAGE)

    (sent,) = api.received
    assert (sent.method, sent.path) == ("POST", "/v3/mail/send")
    assert (sent.headers["Authorization"], sent.headers["Content-Type"]) == (
        "Bearer SG.key",
        "application/json",
    )
    message_id = result(task)["message_id"]
    assert json.loads(sent.body) == {
        "personalizations": [
            {
                "to": [{"email": "ada@example.org", "name": "Ada"}, {"email": "bob@example.org"}],
                "bcc": [{"email": "carl@example.org"}],
            }
        ],
        "from": {"email": "shop@example.org", "name": "Shop"},
        "reply_to": {"email": "help@example.org"},
        "subject": "hello",
        "content": [{"type": "text/plain", "value": "text"}, {"type": "text/html", "value": "<p>html</p>"}],
        "attachments": [{"content": "cm9wZQ==", "type": "text/plain", "filename": "a.txt"}],
        "headers": {"Message-ID": f"<{message_id}>"},
        "custom_args": {"windlass_message": message_id},
    }
    assert (task.state, result(task)["accepted"]) == (State.COMPLETED, 3)


async def test_mailgun_gets_the_whole_message() -> None:
    app = new_app()
    with http_sink(Answer(200, b'{"id": "<x>", "message": "Queued. Thank you."}')) as api:
        task = await run(app.include(mailgun(api.url)), app, **MESSAGE)

    (sent,) = api.received
    assert (sent.method, sent.path) == ("POST", "/v3/mg.example.org/messages.mime")
    assert b64decode(sent.headers["Authorization"].removeprefix("Basic ")) == b"api:key-1"
    form = message_from_bytes(
        b"Content-Type: " + sent.headers["Content-Type"].encode() + b"\r\n\r\n" + sent.body, policy=HTTP
    )
    parts = [(part.get_param("name", header="Content-Disposition"), part) for part in form.iter_parts()]
    assert [part.get_payload() for name, part in parts if name == "to"] == [
        "ada@example.org",
        "bob@example.org",
        "carl@example.org",
    ]
    _, _, tail = sent.body.partition(b"message/rfc822\r\n\r\n")
    message = message_from_bytes(tail.rpartition(b"\r\n--")[0], policy=SMTP)
    assert message["Message-ID"] == f"<{result(task)['message_id']}>"
    assert [part.get_filename() for part in message.walk() if part.get_filename()] == ["a.txt"]
    assert task.state is State.COMPLETED


@pytest.mark.parametrize("provider", [sendgrid, mailgun])
@pytest.mark.parametrize(
    ("status", "state"),
    [
        (400, State.DEAD),
        (413, State.DEAD),
        (401, State.SCHEDULED),  # the key is wrong, not the message
        (403, State.SCHEDULED),
        (429, State.SCHEDULED),
        (500, State.SCHEDULED),
        (503, State.SCHEDULED),
    ],
)
async def test_statuses_decide(provider: Any, status: int, state: State) -> None:
    app = new_app()
    with http_sink(Answer(status, b'{"message": "no rope"}')) as api:
        task = await run(app.include(provider(api.url)), app, **MESSAGE)

    assert task.state is state
    assert task.error is not None
    assert "no rope" in task.error.message


@pytest.mark.parametrize(
    "headers", [{"Retry-After": "3600"}, {"X-RateLimit-Reset": str(int(time.time()) + 3600)}]
)
async def test_a_limit_says_when_to_come_back(headers: dict[str, str]) -> None:
    app = new_app()
    with http_sink(Answer(429, headers=headers)) as api:
        task = await run(app.include(sendgrid(api.url)), app, **MESSAGE)

    assert timedelta(minutes=50) < task.run_at - task.created_at < timedelta(minutes=70)


class Mailgun:
    """Keeps what it accepts, and lists it among its events."""

    def __init__(self, *, lost: int, remembers: bool = True) -> None:
        self.accepted: list[str] = []
        self.lost = lost  # so many replies
        self.remembers = remembers

    def __call__(self, request: Received) -> Answer:
        if request.method == "GET":
            query = parse_qs(urlsplit(request.path).query)
            assert query["event"] == ["accepted"]
            found = [one for one in self.accepted if one in query["message-id"] and self.remembers]
            return Answer(200, json.dumps({"items": [{"event": "accepted"} for _ in found]}).encode())
        _, _, tail = request.body.partition(b"message/rfc822\r\n\r\n")
        self.accepted.append(message_from_bytes(tail)["Message-ID"].strip("<>"))
        self.lost -= 1
        return Answer(200, b"{}", cut=self.lost >= 0)


async def finished(settings: handlers.Email) -> Task:
    app = new_app()
    send = app.include(settings)
    with harness(app) as world:
        handle = await send.aenqueue(**MESSAGE)
        for _ in range(4):
            await world.arun_until_idle(raise_errors=False)
            world.clock.advance(timedelta(days=1))
        return await app.operator.task(handle.id)


async def test_mailgun_is_asked_before_a_message_is_sent_again() -> None:
    provider = Mailgun(lost=1)
    with http_sink(route=provider) as api:
        task = await finished(mailgun(api.url))

    assert (task.state, task.attempt) == (State.COMPLETED, 2)
    assert provider.accepted == [result(task)["message_id"]]


@pytest.mark.parametrize(
    ("when_unsure", "state", "sent"), [("send", State.COMPLETED, 2), ("stop", State.DEAD, 1)]
)
async def test_who_cannot_be_asked_is_a_matter_of_choice(when_unsure: Any, state: State, sent: int) -> None:
    answers = [Answer(cut=True), Answer(202)]
    with http_sink(*answers) as api:
        task = await finished(sendgrid(api.url, when_unsure=when_unsure))

    assert (task.state, len(api.received)) == (state, sent)


async def test_no_key_is_shown() -> None:
    app = new_app()
    with http_sink(Answer(500, b"SG.key")) as api:
        settings = sendgrid(api.url)
        await run(app.include(settings), app, **MESSAGE)

    assert "SG.key" not in repr(settings)
