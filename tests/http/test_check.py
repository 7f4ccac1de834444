"""GET /check: what `windlass check` finds, in bounded time, however many ask."""

import asyncio
from collections import Counter

import httpx2
import pytest

from tests.http.api_client import Api
from tests.servers.api import ApiServer
from windlass._http.resources import health
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore, Hold


async def test_findings_schema_and_durability(on_each: Api) -> None:
    await on_each.enqueue(queue="mail")
    await on_each.good("PUT", "/alerts/n", {"webhook": "https://hooks.example/s3cret"})

    found = await on_each.good("GET", "/check")

    messages = [one["message"] for one in found["findings"] if one["severity"] == "warning"]
    assert any("no live worker serves queue mail (1 task due, of type " in message for message in messages)
    assert any("the webhook of alert n are not signed" in message for message in messages)
    assert "s3cret" not in str(found)
    assert found["findings"][0]["message"] == f"{found['durability']}: {found['why']}"
    assert all(one["applied"] for one in found["migrations"])
    assert bool(found["migrations"]) == any(one["subject"] == "size" for one in found["findings"])


async def test_many_who_ask_share_one_check(api: ApiServer, http: httpx2.AsyncClient) -> None:
    calls: Counter[str] = Counter()

    def count(verb: str) -> None:
        calls[verb] += 1

    own = Api(http, api.serve(FaultyStore(MemoryStore(), count), open_to_all=True))
    await asyncio.gather(*(own.good("GET", "/check") for _ in range(5)))
    await own.good("GET", "/check")
    assert calls["check"] == 1


async def test_what_takes_too_long_or_fails_is_a_finding(
    api: ApiServer, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PART_SECONDS", 0.2)
    held = Hold()
    faults = {"check": held, "find": Fault.BEFORE}
    own = Api(http, api.serve(FaultyStore(MemoryStore(), faults.get), open_to_all=True))

    found = {one["subject"]: one for one in (await own.good("GET", "/check"))["findings"]}

    assert found["store"]["message"].startswith("could not be checked within 0.2 s")
    assert (found["tasks"]["severity"], found["tasks"]["message"]) == (
        "error",
        "could not be checked: a planned fault before find",
    )
    assert found["durability"]["severity"] == "warning"
