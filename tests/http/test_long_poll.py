"""Waiting for a task to end: prompt, bounded and cheap."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.loops.workers import Watch as Calls
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._http import auth as access
from windlass._ids import new_id
from windlass._model.filter import By, CancelTasks, Filter
from windlass._model.key import Scope
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore

LONG = 30.0


@pytest.fixture
async def calls(store: MemoryStore) -> Calls:
    return Calls()


@pytest.fixture
async def counted(
    api: ApiServer, store: MemoryStore, calls: Calls, http: httpx2.AsyncClient
) -> AsyncIterator[Api]:
    """The API of a store whose calls are counted; it leaves nothing running behind."""
    served = Api(http, api.serve(FaultyStore(store, calls), open_to_all=True))
    before = api.tasks()
    yield served
    await eventually(lambda: api.tasks() <= before)


async def cancelled(store: Store, *ids: str) -> None:
    """End tasks by another handle, as another process would."""
    await store.apply(CancelTasks(by=By(who="x")), Filter(ids=ids), len(ids))


async def test_it_ends_when_the_task_does(on_each: Api, kept: Store) -> None:
    made = await on_each.enqueue()
    waiting = asyncio.ensure_future(on_each("GET", f"/tasks/{made}?wait={LONG}"))
    await asyncio.wait([waiting], timeout=0.1)
    assert not waiting.done()
    began = monotonic()
    await cancelled(kept, made)
    assert (await waiting).json()["state"] == "cancelled"
    assert monotonic() - began < LONG / 3


async def test_it_ends_in_time(counted: Api) -> None:
    made = await counted.enqueue()
    for seconds in (0, 0.05):
        response = await counted("GET", f"/tasks/{made}?wait={seconds}")
        assert (response.status_code, response.json()["state"]) == (200, "ready")


async def test_one_that_has_ended_is_not_waited_for(counted: Api, store: MemoryStore, calls: Calls) -> None:
    made = await counted.enqueue()
    await cancelled(store, made)
    calls.calls.clear()
    assert (await counted.good("GET", f"/tasks/{made}?wait={LONG}"))["state"] == "cancelled"
    assert calls.calls["find"] == 1
    problem(await counted("GET", f"/tasks/{new_id()}?wait={LONG}"), 404, "not-found")


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "60.1", "x", "", "1e400"])
async def test_how_long_nobody_waits(seconds: str, counted: Api) -> None:
    made = await counted.enqueue()
    problem(await counted("GET", f"/tasks/{made}?wait={seconds}"), 422, "invalid-request")


async def test_nobody_waits_for_who_has_gone(api: ApiServer, counted: Api, calls: Calls) -> None:
    """Otherwise whoever comes and goes would fill the server with requests that nobody reads."""
    made = await counted.enqueue()
    idle = api.tasks()
    url = httpx2.URL(counted.url)
    writers = []
    for _ in range(20):
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(f"GET {url.path}/tasks/{made}?wait=60 HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        writers.append(writer)
    await eventually(lambda: calls.calls["find"] >= 20 and calls.calls["ended"] > 0)
    for writer in writers:
        writer.transport.abort()
    await eventually(lambda: api.tasks() <= idle, within=5)


@pytest.mark.more
async def test_many_who_wait_cost_one_question_a_look(
    counted: Api, api: ApiServer, store: MemoryStore, calls: Calls
) -> None:
    made = [await counted.enqueue() for _ in range(50)]
    number = 200  # A key may have 250.
    limits = httpx2.Limits(max_connections=number)
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60, limits=limits) as http:
        crowd = Api(http, counted.url)
        waiting = [
            asyncio.ensure_future(crowd("GET", f"/tasks/{made[one % 50]}?wait=60")) for one in range(number)
        ]
        await eventually(lambda: calls.calls["find"] >= number, within=30)  # All of them are there.
        read, asked, began = calls.calls["find"], calls.calls["ended"], monotonic()
        await eventually(lambda: monotonic() > began + 1)
        assert 2 < calls.calls["ended"] - asked < 30
        assert calls.calls["find"] == read
        assert not any(one.done() for one in waiting)
        await cancelled(store, *made)
        async with asyncio.timeout(30):
            answers = await asyncio.gather(*waiting)
    assert {answer.json()["state"] for answer in answers} == {"cancelled"}
    assert calls.calls["find"] == read + 1


async def test_a_store_that_falters_meanwhile(counted: Api, store: MemoryStore, calls: Calls) -> None:
    made = await counted.enqueue()
    calls.then("ended", None, Fault.BEFORE, Fault.AFTER)
    waiting = asyncio.ensure_future(counted("GET", f"/tasks/{made}?wait={LONG}"))
    await eventually(lambda: calls.calls["ended"] >= 5)
    await cancelled(store, made)
    assert (await waiting).json()["state"] == "cancelled"


async def test_a_server_that_stops_answers_at_once(http: httpx2.AsyncClient, store: MemoryStore) -> None:
    with ApiServer() as own:
        api = Api(http, own.serve(store, open_to_all=True))
        made = await api.enqueue()
        session = await api.session("empty")
        wanted: Any = {"session": session, "queues": ["empty"], "number": 1, "wait": 30}
        waiting = [
            asyncio.ensure_future(api("GET", f"/tasks/{made}?wait=60")),
            asyncio.ensure_future(api("POST", "/work/claim", wanted)),
        ]
        await asyncio.wait(waiting, timeout=0.2)
        assert not any(one.done() for one in waiting)
        own.closing()
        async with asyncio.timeout(5):
            task, claimed = await asyncio.gather(*waiting)
        assert task.json()["state"] == "ready"
        assert claimed.json() == {"tasks": []}


async def test_a_key_that_is_revoked_meanwhile_is_told_nothing(
    http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FRESH_FOR", 0.0)
    new = await keys.create("k", scopes=[Scope.READ, Scope.ENQUEUE, Scope.WORK], queues=["a"])
    own = Api(http, url, new.text)
    made = await own.enqueue(queue="a", delay=60)
    session = await own.session("a")
    waiting = [
        asyncio.ensure_future(own("GET", f"/tasks/{made}?wait=60")),
        asyncio.ensure_future(
            own("POST", "/work/claim", {"session": session, "queues": ["a"], "number": 1, "wait": 30})
        ),
    ]
    await asyncio.wait(waiting, timeout=0.2)
    await keys.revoke(new.key.name)
    await cancelled(store, made)
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*waiting)
    for answer in answers:
        problem(answer, 401, "unauthorized")
