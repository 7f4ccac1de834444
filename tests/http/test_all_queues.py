"""Workers over HTTP that serve every queue: new ones are found, long ones do not keep the others waiting."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.http.api_client import Api, lease
from tests.http.problem import problem
from windlass._client.keys import Keys
from windlass._http import auth as access
from windlass._model.filter import Page
from windlass._model.key import Scope
from windlass._model.record import Session
from windlass._store import served_queues
from windlass._store.protocol import Store

WORKER = {"name": "far", "all_queues": True}


@pytest.fixture(autouse=True)
def found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_queues, "FIND_EVERY", 0.0)


async def opened(api: Api) -> str:
    return str((await api.good("POST", "/work/sessions", WORKER))["session"])


async def claimed(api: Api, session: str, number: int, **more: Any) -> list[dict[str, Any]]:
    wanted = {"session": session, "all_queues": True, "number": number} | more
    tasks: list[dict[str, Any]] = (await api.good("POST", "/work/claim", wanted))["tasks"]
    return tasks


async def test_a_worker_for_all_queues_is_known_as_one(on_each: Api, kept: Store) -> None:
    session = await opened(on_each)
    held = {"session": session, "worker": WORKER}
    assert await on_each.good("POST", "/work/heartbeat", held) == {"lost": [], "cancel": []}

    (record,) = (await kept.records(Session, Page())).items
    assert (record.worker.all_queues, record.worker.queues) == (True, ())


async def test_tasks_of_queues_that_it_does_not_name_are_claimed_and_settled(on_each: Api) -> None:
    session = await opened(on_each)
    made = {await on_each.enqueue(queue=queue) for queue in ("a", "b", "c")}

    found = [*(await claimed(on_each, session, 1)), *(await claimed(on_each, session, 2, limit=9))]
    found += await claimed(on_each, session, 3, limit=9)

    assert {one["id"] for one in found} == made
    settled = [lease(one) | {"outcome": "returned"} for one in found]
    assert await on_each.settle(*settled) == ["applied"] * 3
    assert await claimed(on_each, session, 4) == []


async def test_a_long_queue_does_not_keep_a_short_one_waiting(on_each: Api) -> None:
    session = await opened(on_each)
    for _ in range(8):
        await on_each.enqueue(queue="long")
    await on_each.enqueue(queue="short")

    found = [one for number in (1, 2, 3) for one in await claimed(on_each, session, number)]

    assert "short" in {one["queue"] for one in found}


async def test_a_claim_that_waits_finds_a_queue_that_comes_up(on_each: Api) -> None:
    session = await opened(on_each)
    waiting = asyncio.create_task(claimed(on_each, session, 1, wait=20))
    made = await on_each.enqueue(queue="new")

    assert [one["id"] for one in await waiting] == [made]


async def test_queues_and_all_queues_exclude_each_other(on_each: Api) -> None:
    session = await opened(on_each)
    both = {"session": session, "all_queues": True, "queues": ["a"], "number": 1}

    for path, body in (("/work/claim", both), ("/work/sessions", WORKER | {"queues": ["a"]})):
        assert "exclude" in problem(await on_each("POST", path, body), 422, "invalid-option")["detail"]


async def test_for_a_bound_key_all_queues_are_its_own(
    http: httpx2.AsyncClient, url: str, keys: Keys, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FRESH_FOR", 0.0)  # Keys are known as soon as they are made.
    whole = Api(http, url, (await keys.create("all", scopes=[Scope.ADMIN])).text)
    own = whole.by((await keys.create("k", scopes=[Scope.WORK], queues=["a"])).text)
    tenants = whole.by((await keys.create("k", scopes=[Scope.WORK], tenant="acme")).text)
    made = await whole.enqueue(queue="a")
    await whole.enqueue(queue="b")

    session = await opened(own)
    (record,) = (await store.records(Session, Page())).items
    assert (record.worker.all_queues, record.worker.queues) == (False, ("a",))
    assert [one["id"] for one in await claimed(own, session, 1, limit=9)] == [made]
    problem(await tenants("POST", "/work/sessions", WORKER), 403, "forbidden")
