"""deliver_webhook against a server on the loopback: what it sends, and what becomes of its task."""

import json
import threading
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook

from tests.handlers.http_sink import Answer, http_sink
from tests.handlers.runs import attempts, new_app, run
from windlass import App, InvalidOption, InvalidPayload, State, handlers
from windlass.alerts import verify_signature
from windlass.testing.harness import harness

SECRET = "whsec_d2luZGxhc3MgaG9sZHMgaXRzIHRvbmd1ZSE="
OTHER = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


async def test_a_message_is_signed_and_named_after_its_task() -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    with http_sink() as sink:
        task = await run(deliver, app, endpoint=f"{sink.url}/hook?a=b", body={"n": 1}, secret=SECRET)

    (received,) = sink.received
    assert (received.method, received.path, received.body) == ("POST", "/hook?a=b", b'{"n":1}')
    assert received.headers["content-type"] == "application/json"
    assert received.headers["webhook-id"] == task.id
    assert verify_signature(SECRET, dict(received.headers), received.body)
    assert Webhook(SECRET).verify(received.body, dict(received.headers)) == {"n": 1}  # the standard's own
    assert task.state is State.COMPLETED
    assert json.loads(task.result or b"")["status"] == 200


async def test_an_event_has_type_and_time() -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    with http_sink() as sink:
        task = await run(deliver, app, endpoint=sink.url, body=[1], event="order.shipped")

    sent = json.loads(sink.received[0].body)
    at = task.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert sent == {"type": "order.shipped", "timestamp": at, "data": [1]}
    assert "webhook-signature" not in sink.received[0].headers


async def test_a_configured_endpoint_signs_with_all_its_secrets() -> None:
    app = new_app()
    with http_sink() as sink:
        endpoint = handlers.Endpoint(url=sink.url, secret=f"{SECRET} {OTHER}", headers={"X-Shop": "7"})
        deliver = app.include(handlers.Webhooks(endpoints={"shop": endpoint}))
        await run(deliver, app, endpoint="shop", body={}, headers={"X-More": "8"})

    headers, body = dict(sink.received[0].headers), sink.received[0].body
    assert verify_signature(SECRET, headers, body)
    assert verify_signature(OTHER, headers, body)
    assert (headers["X-Shop"], headers["X-More"]) == ("7", "8")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 599])
async def test_what_may_pass_is_tried_again(status: int) -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    with http_sink(Answer(status)) as sink:
        task = await run(deliver, app, endpoint=sink.url, body={})

    assert task.state is State.SCHEDULED
    assert timedelta(seconds=3.9) < task.run_at - task.created_at < timedelta(seconds=16)


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 410, 422])
async def test_what_cannot_pass_is_dead_at_once(status: int) -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    with http_sink(Answer(status, headers={"Location": "/elsewhere"})) as sink:
        task = await run(deliver, app, endpoint=sink.url, body={})

    assert task.state is State.DEAD
    assert str(status) in task.error.message if task.error else False
    assert len(sink.received) == 1


async def test_a_slow_endpoint_is_tried_again() -> None:
    app, gate = new_app(), threading.Event()
    deliver = app.include(handlers.Webhooks(timeout=0.2))
    with http_sink(Answer(before=lambda: gate.wait(10))) as sink:
        task = await run(deliver, app, endpoint=sink.url, body={})
        gate.set()

    assert task.state is State.SCHEDULED
    assert task.error is not None
    assert "no response" in task.error.message


async def test_retry_after_is_heeded() -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    with http_sink(Answer(503, headers={"Retry-After": "7200"})) as sink:
        task = await run(deliver, app, endpoint=sink.url, body={})

    assert timedelta(seconds=7199) < task.run_at - task.created_at < timedelta(seconds=7215)


async def test_every_attempt_sends_the_same_message_until_it_is_taken() -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    answers = [Answer(500), Answer(cut=True), Answer(429), Answer(204)]
    with http_sink(*answers) as sink, harness(app) as world:
        handle = await deliver.aenqueue(endpoint=sink.url, body={"n": 1}, event="a")
        for _ in answers:
            await world.arun_until_idle(raise_errors=False)
            world.clock.advance(timedelta(days=1))
        task = await app.operator.task(handle.id)

    assert (task.state, task.attempt) == (State.COMPLETED, 4)
    assert len({(one.headers["webhook-id"], one.body) for one in sink.received}) == 1
    assert len(sink.received) == 4


async def test_the_response_is_noted_with_the_attempt() -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    with http_sink(Answer(500, b'out of rope \0 \x1b[2J "' * 1000)) as sink:
        task = await run(deliver, app, endpoint=sink.url, body={})

    notes = msgspec.json.decode((await attempts(app, task))[0].notes or b"")
    assert (notes["status"], notes["response"][:11]) == (500, "out of rope")
    assert 0 <= notes["seconds"] < 10
    assert len(notes["response"]) > 1_000


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"endpoint": "nobody"}, "there is no endpoint 'nobody'; configured are: shop"),
        ({"endpoint": "https://example.org"}, "only configured endpoints are allowed"),
        ({"endpoint": "shop", "secret": "short"}, "must have 24 to 64 bytes"),
        ({"endpoint": "shop", "headers": {"webhook-id": "x"}}, "is set by windlass"),
        ({"endpoint": "shop", "headers": {"Host": "x"}}, "is set by windlass"),
    ],
)
async def test_a_wrong_payload_is_dead_at_once(payload: dict[str, Any], message: str) -> None:
    app = new_app()
    with http_sink() as sink:
        endpoint = handlers.Endpoint(url=sink.url)
        deliver = app.include(handlers.Webhooks(endpoints={"shop": endpoint}, any_url=False))
        task = await run(deliver, app, body={}, **payload)

    assert task.state is State.DEAD
    assert task.error is not None
    assert message in task.error.message
    assert sink.received == []


WRONG_HEADERS = [
    {"X-A": "b\r\nX-C: d"},
    {"X-A": "b\n"},
    {"X-A": "\u00e9"},
    {"X A": "b"},
    {"X-A\n": "b"},
    {"": "b"},
]


@pytest.mark.parametrize("headers", WRONG_HEADERS)
async def test_a_malformed_header_is_refused_at_enqueue(headers: dict[str, str]) -> None:
    app = new_app()
    types: list[tuple[Any, dict[str, Any]]] = [
        (app.include(handlers.Webhooks()), {"endpoint": "https://example.org", "body": {}}),
        (app.include(handlers.Requests(hosts=("example.org",))), {"url": "https://example.org"}),
    ]
    for declared, payload in types:
        with pytest.raises(InvalidPayload, match="does not fit"):
            await declared.aenqueue(**payload, headers=headers)
    assert not (await app.operator.find()).items


@pytest.mark.parametrize("name", ["etag", "last_modified"])
async def test_a_malformed_condition_of_a_page_is_refused_at_enqueue(name: str) -> None:
    scrape = new_app().include(handlers.Pages(contact="https://example.org"))
    with pytest.raises(InvalidPayload, match="does not fit"):
        await scrape.aenqueue(url="https://example.org", **{name: "a\r\nX: y"})


@pytest.mark.parametrize(
    "wrong", [{"shop": {"url": "https://example.org"}}, {"shop": None}, ["shop"], "shop"]
)
def test_endpoints_are_declared_as_such(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=r"endpoints.* must be .*endpoints={name: handlers.Endpoint"):
        handlers.Webhooks(endpoints=wrong)


async def test_an_address_inside_is_refused() -> None:
    app = App("memory://")
    deliver = app.include(handlers.Webhooks())
    with http_sink() as sink:
        task = await run(deliver, app, endpoint=sink.url, body={})

    assert task.state is State.DEAD
    assert task.error is not None
    assert "127.0.0.1 is not public" in task.error.message
    assert sink.received == []


async def test_secrets_are_not_shown() -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    with http_sink(Answer(400, f"bad key {SECRET}".encode())) as sink:
        token = "token-0123456789"
        task = await run(
            deliver, app, endpoint=sink.url, body={}, secret=SECRET, headers={"Authorization": token}
        )

    shown = json.dumps([task.as_dict(), *(one.as_dict() for one in await attempts(app, task))])
    assert SECRET not in shown
    assert token not in shown
    assert SECRET not in repr(handlers.Webhooks(secret=SECRET))
    assert SECRET not in repr(handlers.Endpoint(url="https://example.org", secret=SECRET))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"secret": "short"}, "must have 24 to 64 bytes"),
        ({"endpoints": {"a": handlers.Endpoint(url="https://a", secret="short")}}, "endpoint a: "),
        ({"endpoints": {"https://a": handlers.Endpoint(url="https://a")}}, "must not be a URL"),
        ({"endpoints": {"a": handlers.Endpoint(url="https://a", headers={"Host": "b"})}}, "endpoint a: "),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        handlers.Webhooks(**settings)


async def test_one_endpoint_gets_so_many_requests_at_once() -> None:
    app = new_app()
    app.include(handlers.Webhooks(per_endpoint=3))
    await app.open()

    (limit,) = await app.operator.limits.list()
    assert (limit.type, limit.by, limit.running) == ("deliver_webhook", "endpoint", 3)
