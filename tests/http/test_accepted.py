"""What the HTTP surface accepts can be listed, shown, exported, claimed, settled and discarded: no 5xx."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.foreign_input import TASKS, step, task
from tests.http.api_client import Api

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALID = ["t", "a/b", "mail.send", "é", "x:y@z+1", "n" * 128, "日本", "_", "0"]
NAME = st.sampled_from([*VALID, *VALID, "a b", "", "\n", "n" * 129]) | st.sampled_from(VALID)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
SECONDS = st.sampled_from([1, 0.5, 1e-6, 86400, 3e8, 7, 0, -1, 1e300])
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
PAYLOAD = OBJECT | OBJECT | OBJECT | JSON
OWN = st.fixed_dictionaries(
    {},
    optional={
        "payload": PAYLOAD,
        "queue": NAME,
        "tenant": NAME,
        "priority": st.integers(-101, 101),
        "timeout": SECONDS,
        "max_attempts": st.integers(0, 9),
        "unique_for": SECONDS,
        "secret": st.lists(TEXT, max_size=2),
        "result_into": TEXT,
    },
)
FOREIGN = st.fixed_dictionaries(
    {},
    optional={
        "type": NAME,
        "delay": SECONDS,
        "expires_in": SECONDS,
        "idempotency_key": TEXT,
        "fingerprint": TEXT,
        "trace": TEXT,
        "enqueued_by": TEXT,
        "next": st.lists(OWN.map(lambda changed: step(**changed)), max_size=2) | JSON,
    },
)
STORED = st.tuples(OWN, FOREIGN).map(lambda pair: pair[0] | pair[1]) | st.sampled_from(TASKS)
REST = st.tuples(
    OWN,
    st.fixed_dictionaries(
        {"type": NAME},
        optional={
            "delay": SECONDS,
            "expires": SECONDS,
            "idempotency_key": TEXT,
            "unique": st.booleans() | st.lists(TEXT, max_size=2),
            "next": st.lists(OWN.map(lambda changed: {"type": "t", **changed}), max_size=2),
        },
    ),
).map(lambda pair: {name: value for name, value in (pair[0] | pair[1]).items() if name != "result_into"})
MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


async def lives(api: Api, task_id: str) -> None:
    """See a task through: every request is answered, whatever is in it."""
    shown = await api.good("GET", f"/tasks/{task_id}")
    assert shown["id"] == task_id
    assert task_id in [one["id"] for one in (await api.good("GET", "/tasks?limit=1000"))["items"]]
    found = await api.good("POST", "/store/find", {"where": {"ids": [task_id]}, "page": {}})
    assert [one["id"] for one in found["items"]] == [task_id]
    await api.good("GET", f"/tasks/{task_id}/attempts")
    session = await api.session(shown["queue"])
    number, claimed = 0, []
    while shown["state"] == "ready" and (number == 0 or claimed):
        number += 1
        claimed = await api.claim(session, number, shown["queue"], limit=10)
        for one in claimed:
            outcome = {"outcome": "returned", "result": {"x": 1}} if number % 2 else {"outcome": "failed"}
            lease = {"id": one["id"], "fence": one["fence"], "fatal": True}
            assert await api.settle({**lease, **outcome}) == ["applied"]
        if number > 20:
            break
    response = await api("GET", "/export")
    assert response.status_code == 200, response.text
    for line in response.content.splitlines():
        msgspec.json.decode(line)
    response = await api("DELETE", f"/tasks/{task_id}")
    assert response.status_code in (200, 202, 409), response.text
    dead = await api.good("POST", "/dead/discard", {"where": {}, "why": "over"})
    assert dead["number"] >= 0


_accepted: Counter[int] = Counter()


class TestAccepted:
    @given(changed=STORED)
    @MANY
    async def test_by_the_store_protocol(self, changed: dict[str, Any], on_each: Api) -> None:
        new = task(**changed)
        response = await on_each("POST", "/store/enqueue", {"batch": [new]})
        assert response.status_code in (200, 404, 409, 422), response.text
        _accepted[response.status_code] += 1
        if response.status_code == 200:
            await lives(on_each, response.json()[0]["id"])

    @given(body=REST)
    @MANY
    async def test_by_the_api(self, body: dict[str, Any], on_each: Api) -> None:
        response = await on_each("POST", "/tasks", body)
        assert response.status_code in (201, 409, 422), response.text
        _accepted[response.status_code] += 1
        if response.status_code == 201:
            await lives(on_each, response.json()["id"])

    @pytest.mark.parametrize("number", range(0, len(TASKS), 7))
    async def test_what_is_refused_leaves_nothing(self, number: int, on_each: Api) -> None:
        response = await on_each("POST", "/store/enqueue", {"batch": [task(), task(**TASKS[number])]})
        assert response.status_code in (404, 422), response.text
        assert (await on_each.good("GET", "/tasks"))["items"] == []

    def test_many_are_accepted_and_many_refused(self) -> None:
        """Otherwise the others would show little. They run before this one, unless they were left out."""
        if _accepted.total() >= 50:
            assert min(_accepted[200] + _accepted[201], _accepted[422]) * 10 >= _accepted.total(), _accepted
