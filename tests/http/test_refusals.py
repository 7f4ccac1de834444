"""Refused requests: counted by reason, and logged with key id, operation and address, but not without end."""

import logging
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from tests.http.api_client import Api
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._http import auth
from windlass._http.refusals import BURST, PAUSE_SECONDS, Refusals
from windlass._http.web.refusal import Reason, Refusal
from windlass._observe import cached_reads
from windlass._stores.memory import MemoryStore

JSON: dict[str, Any] = {"type": "t", "tenant": "bob"}


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "FRESH_FOR", 0.0)
    monkeypatch.setattr(cached_reads, "_SHARE", 1)  # metrics are made for each scrape


async def counted(api: Api) -> dict[str, int]:
    """The metric, by reason."""
    lines = (await api("GET", "/metrics")).text.splitlines()
    found = [line for line in lines if line.startswith("windlass_http_refused_total{")]
    return {line.split('"')[1]: int(float(line.rpartition(" ")[2])) for line in found}


async def test_every_reason_is_counted_and_logged(
    http: httpx2.AsyncClient,
    url: str,
    keys: Keys,
    store: MemoryStore,
    always_looking: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "windlass.http")
    admin = Api(http, url, (await keys.create("root", scopes=["admin"])).text)
    reader = await keys.create("reader", scopes=["read"])
    bound = await keys.create("bound", scopes=["enqueue"], tenant="acme")
    old = await keys.create("old", scopes=["admin"])
    await store.put(replace(old.key, expires_at=old.key.created_at))
    gone = await keys.create("gone", scopes=["admin"])
    await keys.revoke(gone.key.name)
    assert await counted(admin) == dict.fromkeys(Reason, 0)

    async def refused(key: str | None, method: str, path: str, body: Any = None) -> None:
        assert (await admin.by(key)(method, path, body)).status_code in (401, 403)

    await refused(None, "GET", "/tasks")
    await refused("wl_nonsense", "GET", "/tasks/%0ax")
    await refused(reader.text[:-1] + "!", "GET", "/queues/q/with%20space")
    await refused(old.text, "DELETE", "/keys/x")
    await refused(gone.text, "POST", "/store/find", {})
    await refused(reader.text, "POST", "/queues/secret-name/pause")
    await refused(bound.text, "POST", "/tasks", JSON)
    await refused(bound.text, "POST", "/store/enqueue", {"batch": []})

    assert await counted(admin) == {
        **dict.fromkeys(Reason, 0),
        "no_key": 1,
        "unknown_key": 2,
        "expired_key": 1,
        "revoked_key": 1,
        "scope": 1,
        "bounds": 2,
    }
    at = "from 127.0.0.1"
    assert [record.getMessage() for record in caplog.records] == [
        f"refused GET /tasks {at}: no_key",
        f"refused GET /tasks/{{id}} {at}: unknown_key",
        f"refused GET /queues/{{queue}} {at}: unknown_key",
        f"refused DELETE /keys/{{key}} {at} with key {old.key.name}: expired_key",
        f"refused POST /store/{{verb}} {at} with key {gone.key.name}: revoked_key",
        f"refused POST /queues/{{queue}}/pause {at} with key {reader.key.name}: scope",
        f"refused POST /tasks {at} with key {bound.key.name}: bounds",
        f"refused POST /store/{{verb}} {at} with key {bound.key.name}: bounds",
    ]
    for key in (reader, bound, old, gone):
        assert key.text.rpartition("_")[2] not in caplog.text
    fields = vars(caplog.records[5])
    assert (fields["reason"], fields["operation"]) == ("scope", "POST /queues/{queue}/pause")
    assert (fields["key_id"], fields["address"]) == (reader.key.name, "127.0.0.1")


async def test_a_server_without_keys_counts_whom_it_refuses(
    api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore
) -> None:
    own = Api(http, api.serve(store, open_until_keys=True))
    for headers in ({"host": "evil.example"}, {"via": "x"}, {"origin": "https://evil.example"}):
        assert (await own("GET", "/tasks", None, **headers)).status_code in (403, 421)
    found = await counted(own)
    assert {reason for reason, number in found.items() if number} == {"host", "proxy", "origin"}


async def test_errors_that_are_no_refusals_are_not_counted(
    http: httpx2.AsyncClient, url: str, keys: Keys
) -> None:
    admin = Api(http, url, (await keys.create("root", scopes=["admin"])).text)
    for method, path in (("GET", "/tasks/x"), ("GET", "/nowhere"), ("PUT", "/tasks"), ("GET", "/tasks?x=y")):
        assert (await admin(method, path)).status_code >= 400
    assert await counted(admin) == dict.fromkeys(Reason, 0)


def test_a_flood_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = Refusals(None, clock)
    request: Any = type("R", (), {"method": "GET", "client": None})()

    def flood(reason: Reason, number: int) -> list[str]:
        caplog.clear()
        for _ in range(number):
            refusals.add(Refusal("unauthorized", "no", reason), request, "/tasks", "")
        return [record.getMessage() for record in caplog.records]

    assert flood(Reason.NO_KEY, 10_000) == ["refused GET /tasks from unknown: no_key"] * BURST
    assert flood(Reason.SCOPE, 1) == [
        "refused GET /tasks from unknown: scope"
    ]  # a reason has lines of its own
    clock.now += PAUSE_SECONDS * 0.9
    assert flood(Reason.NO_KEY, 1_000) == []
    clock.now += PAUSE_SECONDS * 0.2
    assert flood(Reason.NO_KEY, 5_000) == [
        f"refused GET /tasks from unknown: no_key; {11_000 - BURST:,} more were not logged"
    ]
    clock.now += 24 * 3600  # the lines that were not used do not add up
    assert len(flood(Reason.NO_KEY, 100)) == BURST
