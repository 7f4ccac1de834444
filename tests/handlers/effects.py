"""What each ready-made handler does to the world, as the servers that it calls have logged it."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.handlers.crashes import Moment
from tests.handlers.http_sink import Answer, Received, http_sink
from tests.handlers.pictures import picture
from tests.handlers.smtp_server import mail_server
from tests.handlers.test_email_apis import Mailgun
from windlass import State

EMAIL = {"to": "ada@example.org", "subject": "hello", "text": "how are you?"}
SENDER = {"sender": "shop@example.org"}
PAGE = b"<html><title>ropes</title></html>"


@dataclass(frozen=True)
class World:
    """A handler's table of settings, a payload, and the log of its effects: what identifies each."""

    table: dict[str, Any]
    payload: dict[str, Any]
    effects: Callable[[], list[str]]


@dataclass(frozen=True)
class Case:
    """A handler, and how many effects it promises if a worker dies before, during or after one.

    `lost`: if it lives, and the reply to the first is lost. `ends`: in this state after a crash.
    """

    table: str
    world: Callable[[Moment, Path], AbstractContextManager[World]]
    before: int = 1
    during: int = 2
    after: int = 2
    lost: int = 2
    ends: State = State.COMPLETED

    def promised(self, step: str) -> int:
        found: int = getattr(self, step)
        return found


@contextmanager
def webhook(moment: Moment, _: Path) -> Iterator[World]:
    with http_sink(route=moment.answering(Answer())) as sink:
        payload = {"endpoint": sink.url, "body": {"n": 1}}
        yield World({}, payload, lambda: [one.headers["webhook-id"] for one in sink.received])


@contextmanager
def request(moment: Moment, _: Path) -> Iterator[World]:
    with http_sink(route=moment.answering(Answer())) as sink:
        payload = {"url": sink.url, "method": "POST", "body": {}}
        yield World({}, payload, lambda: [one.headers["Idempotency-Key"] for one in sink.received])


@contextmanager
def page(moment: Moment, _: Path) -> Iterator[World]:
    answer = moment.answering(Answer(200, PAGE, {"Content-Type": "text/html"}))

    def route(request: Received) -> Answer:
        return Answer(404) if request.path == "/robots.txt" else answer(request)

    with http_sink(route=route) as site:
        fetched = lambda: [one.path for one in site.received if one.path != "/robots.txt"]  # noqa: E731
        yield World({"pause": 0}, {"url": f"{site.url}/ropes"}, fetched)


def smtp(**more: str) -> Callable[[Moment, Path], AbstractContextManager[World]]:
    @contextmanager
    def world(moment: Moment, _: Path) -> Iterator[World]:
        with mail_server() as server:
            server.before_reply = moment.reached
            server.cut = 1 if moment.step == "lost" else 0
            table = {**SENDER, "smtp": server.url, "starttls": "never", **more}
            yield World(table, EMAIL, lambda: [one.message["Message-ID"] for one in server.accepted])

    return world


@contextmanager
def sendgrid(moment: Moment, _: Path) -> Iterator[World]:
    with http_sink(route=moment.answering(Answer(202))) as api:
        sent = lambda: [json.loads(one.body)["headers"]["Message-ID"] for one in api.received]  # noqa: E731
        yield World({**SENDER, "sendgrid": "SG.key", "base_url": api.url}, EMAIL, sent)


@contextmanager
def mailgun(moment: Moment, _: Path) -> Iterator[World]:
    provider = Mailgun(lost=1 if moment.step == "lost" else 0)

    def route(request: Received) -> Answer:
        answer = provider(request)
        answer.before = moment.reached if request.method == "POST" else answer.before
        return answer

    with http_sink(route=route) as api:
        table = {**SENDER, "mailgun": "k", "domain": "example.org", "base_url": api.url}
        yield World(table, EMAIL, lambda: [*provider.accepted])


@contextmanager
def image(moment: Moment, _: Path) -> Iterator[World]:
    source = Answer(200, picture(), {"Content-Type": "image/png"})
    with http_sink(source) as web, bucket(moment) as (storage, stored):
        yield World({"storage": storage}, {"url": web.url, "sizes": [{"width": 40}]}, stored)


@contextmanager
def report(moment: Moment, _: Path) -> Iterator[World]:
    with bucket(moment) as (storage, stored):
        yield World({"storage": storage}, {"rows": [{"rope": 7}], "date": "2026-11-15"}, stored)


@contextmanager
def bucket(moment: Moment) -> Iterator[tuple[dict[str, str], Callable[[], list[str]]]]:
    """A service that takes every file: the settings of the storage, and the names under which files came."""
    with http_sink(route=moment.answering(Answer(200, headers={"ETag": '"rope"'}))) as s3:
        storage = {"url": "s3://ropes", "endpoint": s3.url, "region": "us-east-1"}
        yield storage, lambda: [one.path for one in s3.received if one.method == "PUT"]


CASES = {
    "deliver_webhook": Case("webhooks", webhook),
    "send_email by SMTP or SendGrid": Case("email", smtp()),
    "the same, when_unsure = stop": Case("email", smtp(when_unsure="stop"), 0, 1, 1, 1, State.DEAD),
    "send_email by Mailgun": Case("email", mailgun, 1, 1, 1, 1),
    "generate_report": Case("reports", report),
    "resize_image": Case("images", image),
    "http_request": Case("requests", request),
    "scrape_url": Case("pages", page),
}
"""By what docs/handlers.md calls them."""
