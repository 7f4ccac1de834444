"""Alerts over HTTP: put, list, remove; the state, the audit log, and no secrets of webhooks."""

from typing import Any

import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from windlass._model.alert import Alert, AlertState
from windlass._model.filter import Page
from windlass._model.record import Audit
from windlass._observe.overview import read_overview
from windlass._stores.memory import MemoryStore

QUIET: dict[str, Any] = {
    "state": "quiet", "raised_at": None, "below_since": None, "told_at": None,
    "number": 0, "exact": True, "count": 1, "window": None, "hold": 300.0,
    "type": None, "queue": None, "webhook": None, "unsent": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [{}, {"count": 7, "window": 300, "hold": 0}, {"type": "shop.pay", "queue": "a/b", "count": 1_000_000}],
    ids=str,
)
async def test_what_is_put_is_what_is_seen(said: dict[str, Any], api_of: Api) -> None:
    made = await api_of.good("PUT", "/alerts/n", said)

    assert made == {"name": "n", **QUIET, **said}
    assert await api_of.good("GET", "/alerts/n") == made
    assert await api_of.good("GET", "/alerts") == {"items": [made]}
    await api_of.good("DELETE", "/alerts/n")
    problem(await api_of("GET", "/alerts/n"), 404, "not-found")
    problem(await api_of("DELETE", "/alerts/n"), 404, "not-found")


async def test_of_a_webhook_only_the_host_is_shown(api_of: Api, store: MemoryStore) -> None:
    made = await api_of.good("PUT", "/alerts/n", {"webhook": "https://hooks.example/s3cret?k=s3cret"})

    assert "s3cret" not in str(made)
    assert made["webhook"].startswith("https://hooks.example")
    (kept,) = (await store.records(Alert, Page())).items
    assert kept.webhook == "https://hooks.example/s3cret?k=s3cret"


@pytest.mark.parametrize(
    ("said", "why", "code"),
    [
        ({"count": 0}, "count", "invalid-request"),
        ({"window": 0}, "window", "invalid-request"),
        ({"hold": -1}, "hold", "invalid-request"),
        ({"webhook": "ftp://x"}, "webhook", "invalid-option"),
        ({"colour": "red"}, "colour", "invalid-request"),
    ],
    ids=str,
)
async def test_what_cannot_be_is_refused(said: dict[str, Any], why: str, code: str, api_of: Api) -> None:
    assert why in str(problem(await api_of("PUT", "/alerts/n", said), 422, code))
    assert await api_of.good("GET", "/alerts") == {"items": []}


async def test_a_raised_alert_is_shown_and_counted(api_of: Api, store: MemoryStore) -> None:
    await api_of.good("PUT", "/alerts/n", {})
    await api_of.good("PUT", "/alerts/other", {})
    await store.put(AlertState(name="n", raised_at=await store.now()))

    assert (await api_of.good("GET", "/alerts/n"))["state"] == "raised"
    assert (await read_overview(store)).alerts == {"n": True, "other": False}


async def test_every_change_is_in_the_audit_log(api_of: Api, store: MemoryStore) -> None:
    await api_of.good("PUT", "/alerts/n", {"count": 2, "why": "too many"})
    await api_of.good("PUT", "/alerts/n", {"count": 3})
    await api_of.good("DELETE", "/alerts/n?why=quiet")

    lines = (await store.records(Audit, Page())).items
    assert [(line.action, line.subject, line.why) for line in lines] == [
        ("create", "alert n", "too many"),
        ("set", "alert n", ""),
        ("remove", "alert n", "quiet"),
    ]
    assert lines[1].detail == '{"count":[2,3]}'


async def test_a_webhook_as_it_is_shown_stays(api_of: Api, store: MemoryStore) -> None:
    made = await api_of.good("PUT", "/alerts/n", {"webhook": "https://hooks.example/s3cret"})

    await api_of.good("PUT", "/alerts/n", {"count": 5, "webhook": made["webhook"]})

    (kept,) = (await store.records(Alert, Page())).items
    assert (kept.count, kept.webhook) == (5, "https://hooks.example/s3cret")
    await api_of.good("PUT", "/alerts/n", {"count": 5})
    (kept,) = (await store.records(Alert, Page())).items
    assert kept.webhook is None
    problem(await api_of("PUT", "/alerts/m", {"webhook": made["webhook"]}), 422, "invalid-option")
