"""http_request against a server on the loopback."""

import json
from typing import Any

import pytest

from tests.handlers.http_sink import Answer, http_sink
from tests.handlers.runs import new_app, run
from windlass import InvalidOption, State, Task, handlers
from windlass.handlers.requests import Filling

JSON = {"Content-Type": "application/json; charset=utf-8", "ETag": '"1"', "X-Other": "x"}


def message(task: Task) -> str:
    return task.error.message if task.error else ""


async def test_a_request_is_filled_in_and_its_response_returned() -> None:
    app = new_app()
    request = app.include(handlers.Requests())
    with http_sink(Answer(201, b'{"id": 7}', JSON)) as api:
        task = await run(
            request,
            app,
            url=f"{api.url}/orders/{{{{ order.id }}}}?x={{{{ x }}}}",
            method="PUT",
            body={"text": "by {{ carrier }}", "lines": "{{ order.lines }}", "first": ["{{order.lines.0}}"]},
            values={"order": {"id": 7731, "lines": [1, 2]}, "carrier": "post", "x": "a&b/c"},
            headers={"Authorization": "Bearer token-123"},
        )

    (sent,) = api.received
    assert (sent.method, sent.path) == ("PUT", "/orders/7731?x=a%26b%2Fc")
    assert json.loads(sent.body) == {"text": "by post", "lines": [1, 2], "first": [1]}
    assert (sent.headers["Authorization"], sent.headers["Content-Type"]) == (
        "Bearer token-123",
        "application/json",
    )
    assert len(sent.headers["Idempotency-Key"]) == 40
    assert json.loads(task.result or b"") == {
        "status": 201,
        "headers": {"content-type": JSON["Content-Type"], "etag": '"1"'},
        "body": {"id": 7},
    }
    assert "token-123" not in json.dumps(task.as_dict())


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PATCH", "POST"])
async def test_every_method(method: str) -> None:
    app = new_app()
    with http_sink(Answer(200, b"" if method == "HEAD" else b"rope \0")) as api:
        task = await run(
            app.include(handlers.Requests()),
            app,
            url=api.url,
            method=method,
            text="hello {{ a }}",
            values={"a": ["x"]},
        )

    assert (api.received[0].method, api.received[0].body) == (method, b'hello ["x"]')
    assert json.loads(task.result or b"")["body"] == ("" if method == "HEAD" else "rope \ufffd")


@pytest.mark.parametrize(
    ("answer", "payload", "state", "expected"),
    [
        (Answer(500), {}, State.SCHEDULED, "500"),
        (Answer(404), {}, State.DEAD, "404"),
        (Answer(302, headers={"Location": "/x"}), {}, State.DEAD, "redirects are not followed"),
        (Answer(200, b"{", JSON), {}, State.DEAD, "says that it is JSON"),
        (Answer(200, b"x" * 2000), {}, State.DEAD, "larger than 1,000 bytes"),
        (Answer(), {"url": "http://other.example/"}, State.DEAD, "'other.example' are not allowed"),
        (Answer(), {"body": {}, "text": ""}, State.DEAD, "not both"),
        (Answer(), {"text": "{{ nobody }}"}, State.DEAD, "there is no value for {{ nobody }}"),
        (Answer(), {"headers": {"Content-Length": "1"}}, State.DEAD, "is set by windlass"),
        (Answer(), {"url": "http://[bad/"}, State.DEAD, "Invalid IPv6 URL"),
        (Answer(), {"url": "http://127.0.0.1:99999/"}, State.DEAD, "is no valid URL"),
        (Answer(), {"text": "{{a}}" * 60_000, "values": {"a": "x" * 500_000}}, State.DEAD, "have more than"),
    ],
)
async def test_what_goes_wrong(answer: Answer, payload: dict[str, Any], state: State, expected: str) -> None:
    app = new_app()
    request = app.include(handlers.Requests(hosts=("127.0.0.*",), max_bytes=1000))
    with http_sink(answer) as api:
        task = await run(request, app, **{"url": api.url} | payload)

    assert task.state is state
    assert expected in message(task)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ a }}", {"b": [1]}),
        ("x{{ a }}", 'x{"b":[1]}'),
        ("{{ a.b.0 }}", 1),
        ("{{a.b.0}}{{ c }}", "1text"),
        ("{{ c }}{% for x in y %}", "text{% for x in y %}"),
        ("{{ c | upper }}", "{{ c | upper }}"),
        (["{{ c }}", 7, None], ["text", 7, None]),
    ],
)
def test_only_names_are_filled_in(template: Any, expected: Any) -> None:
    assert Filling({"a": {"b": [1]}, "c": "text"}).fill(template) == expected


@pytest.mark.parametrize("name", ["d", "a.c", "a.b.1", "a.b.x", "c.0", "c.__class__"])
def test_a_missing_value_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="there is no value"):
        Filling({"a": {"b": [1]}, "c": "text"}).fill(f"{{{{ {name} }}}}")


LARGE = {"a": "x" * 300_000, "b": ["\u00e9" * 300_000]}


@pytest.mark.parametrize(
    "template",
    [
        "{{ a }}" * 4,
        ["{{ b }}"] * 4,
        {"x": "{{ a }}", "y": ["{{ b }}{{ b }}", "{{ b.0 }}"]},
        "{{a}}" * 200_000,
    ],
)
def test_values_that_grow_while_they_are_filled_in_are_refused(template: Any) -> None:
    with pytest.raises(InvalidOption, match="more than 1,048,576 characters"):
        Filling(LARGE).fill(template)

    assert len(Filling(LARGE).fill("{{ a }}" * 3)) == 900_000


def test_what_is_quoted_counts_as_it_is_sent() -> None:
    filling = Filling({"a": "/" * 300_000})

    assert len(filling.fill("{{ a }}", quoted=True)) == 900_000
    with pytest.raises(InvalidOption, match="more than"):
        filling.fill("{{ a }}")
