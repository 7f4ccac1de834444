"""Server-sent events, the overview and metrics."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.examples import FULL
from tests.http.api_client import Api
from tests.http.problem import assert_safe, problem
from tests.loops.workers import Watch, eventually, pause
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._http import auth as access
from windlass._http.resources import events
from windlass._ids import new_id
from windlass._model.filter import By, CancelTasks, Filter
from windlass._model.key import Scope
from windlass._observe.overview import OverviewCache
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore

QUIET = 0.5  # seconds for which nothing may come, where nothing has changed


class Heard:
    """What one listener hears: events as (name, value); a keep-alive is a name without one."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self, *, keep_alive: bool = False) -> tuple[str, Any]:
        """The next event or, if asked for, keep-alive; StopAsyncIteration once the stream has ended."""
        async with asyncio.timeout(10):
            name = ""
            async for line in self._lines:
                if line.startswith(": "):
                    assert await anext(self._lines) == ""
                    if keep_alive:
                        return line[2:], None
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    assert await anext(self._lines) == ""
                    return name, json.loads(line[6:])
            raise StopAsyncIteration

    async def ends(self) -> None:
        """It ends, and nothing more was said."""
        with pytest.raises(StopAsyncIteration):
            await self.next()


@asynccontextmanager
async def listening(api: Api, path: str = "/events") -> AsyncIterator[Heard]:
    async with api.http.stream("GET", f"{api.url}{path}", headers=api.headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert_safe(response)
        yield Heard(response)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.02)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
async def live(
    api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore, watch: Watch, quick: None
) -> AsyncIterator[Api]:
    """An API, open to all, whose overviews are made anew at every look; nothing stays behind."""
    served = FaultyStore(store, watch)
    url = api.serve(served, open_to_all=True)
    fresh = Api(http, url)
    api._services[-1].overviews = OverviewCache(served, max_age=timedelta(0))
    await fresh("GET", "/healthz")
    before = api.tasks()
    yield fresh
    await eventually(lambda: api.tasks() <= before)


class TestOverview:
    async def test_it_comes_at_once_and_when_something_has_changed(self, live: Api) -> None:
        async with listening(live) as heard:
            name, first = await heard.next()
            assert (name, first["queues"], first["workers"], first["keeper"]) == ("overview", [], 0, False)
            assert first == {**await live.good("GET", "/overview"), "at": first["at"]}
            await live.enqueue(queue="mail", delay=60)
            _, second = await heard.next()
            assert second["queues"][0]["counts"]["scheduled"] == 1
            assert second["at"] > first["at"]
            await live.good("POST", "/queues/mail/pause")
            _, third = await heard.next()
            assert third["queues"][0]["paused"] is True
            await live.session("mail", slots=3)
            _, fourth = await heard.next()
            assert (fourth["workers"], fourth["slots"], fourth["busy"]) == (1, 3, 0)

    async def test_that_time_has_passed_is_no_change(self, live: Api, watch: Watch) -> None:
        await live.enqueue(delay=60)
        async with listening(live) as heard:
            await heard.next()
            looked = watch.calls["count"]
            coming = asyncio.ensure_future(heard.next())
            await eventually(lambda: watch.calls["count"] > looked + 5)
            assert not coming.done()
            coming.cancel()
            await asyncio.wait([coming])

    async def test_who_hears_nothing_new_hears_that_it_lives(
        self, live: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(events, "PING_SECONDS", 0.1)
        async with listening(live) as heard:
            assert (await heard.next())[0] == "overview"
            assert [await heard.next(keep_alive=True) for _ in range(3)] == [("keep-alive", None)] * 3

    async def test_a_store_that_is_away_is_a_problem(self, live: Api, watch: Watch) -> None:
        watch.then("count", Fault.BEFORE)
        problem(await live("GET", "/events"), 503, "store-unavailable")

    async def test_a_store_that_goes_away_ends_it(self, live: Api, watch: Watch) -> None:
        async with listening(live) as heard:
            await heard.next()
            watch.then("count", Fault.BEFORE)
            await heard.ends()

    async def test_who_goes_leaves_nothing_behind(self, live: Api, api: ApiServer) -> None:
        idle = api.tasks()
        async with AsyncExitStack() as crowd:
            for _ in range(20):
                await (await crowd.enter_async_context(listening(live))).next()
            assert api.tasks() > idle
        await eventually(lambda: api.tasks() <= idle)

    async def test_a_server_that_closes_lets_go_of_them(
        self, http: httpx2.AsyncClient, store: MemoryStore
    ) -> None:
        with ApiServer() as own:
            served = Api(http, own.serve(store, open_to_all=True))
            made = await served.enqueue()
            async with listening(served) as all_of_it, listening(served, f"/tasks/{made}/events") as one:
                await all_of_it.next()
                await one.next()
                own.closing()
                await all_of_it.ends()
                await one.ends()

    async def test_a_head_is_no_stream(self, live: Api) -> None:
        head = await live("HEAD", "/events")
        assert (head.status_code, head.content) == (200, b"")

    @pytest.mark.more
    async def test_many_who_listen_cost_one_look(
        self, api: ApiServer, store: MemoryStore, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Within two seconds everybody is told the same: also what is set is looked up once."""
        monkeypatch.setattr(events, "POLL_SECONDS", 0.25)
        number = 200 if FULL else 40
        limits = httpx2.Limits(max_connections=number + 10)
        url = api.serve(FaultyStore(store, watch), open_to_all=True)
        async with (
            httpx2.AsyncClient(trust_env=False, verify=False, timeout=30, limits=limits) as http,
            AsyncExitStack() as crowd,
        ):
            served = Api(http, url)
            await served.enqueue(queue="mail", delay=60)
            heard = [await crowd.enter_async_context(listening(served)) for _ in range(number)]
            await asyncio.gather(*(one.next() for one in heard))
            await eventually(lambda: watch.calls["count"] >= 3)
            calls = dict(watch.calls)
            await eventually(lambda: watch.calls["count"] >= calls["count"] + 2)
            assert watch.calls["count"] - calls["count"] == 2
            assert watch.calls["records"] - calls["records"] <= 3 * 8
            await served.good("PATCH", "/queues/mail", {"paused": True})
            told = await asyncio.gather(*(one.next() for one in heard))
            assert {value["queues"][0]["paused"] for _, value in told} == {True}

    async def test_who_does_not_read_is_not_told_ever_more(
        self, live: Api, api: ApiServer, watch: Watch
    ) -> None:
        """What is to come is made when it can be sent: it does not pile up."""
        for number in range(300):
            await live.good("PATCH", f"/queues/{'q' * 100}{number}?create=true", {"stripes": 2})
        await live.enqueue()  # It grows older with every look: there is always something to tell.
        url = httpx2.URL(live.url)
        reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
        writer.write(f"GET {url.path}/events HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert b"200" in await reader.readline()

        async def stands_still() -> bool:
            looked = watch.calls["count"]
            await pause(QUIET)
            return watch.calls["count"] == looked

        await eventually(stands_still, within=40)
        writer.transport.abort()


class TestTask:
    async def test_it_is_told_until_it_has_ended(self, live: Api, store: MemoryStore) -> None:
        made = await live.enqueue(payload={"a": 1})
        async with listening(live, f"/tasks/{made}/events") as heard:
            name, first = await heard.next()
            assert (name, first) == ("task", await live.good("GET", f"/tasks/{made}"))
            session = await live.session()
            (claimed,) = await live.claim(session, 1)
            assert (await heard.next())[1]["state"] == "running"
            await live.settle({"id": made, "fence": claimed["fence"], "outcome": "returned", "result": 7})
            _, last = await heard.next()
            assert (last["state"], last["result"]) == ("completed", 7)
            await heard.ends()

    async def test_one_that_has_ended_is_told_once(self, live: Api, store: MemoryStore) -> None:
        made = await live.enqueue()
        await store.apply(CancelTasks(by=By(who="x")), Filter(ids=(made,)), 1)
        async with listening(live, f"/tasks/{made}/events") as heard:
            assert (await heard.next())[1]["state"] == "cancelled"
            await heard.ends()

    async def test_none_is_not_found(self, live: Api) -> None:
        problem(await live("GET", f"/tasks/{new_id()}/events"), 404, "not-found")
        problem(await live("GET", "/tasks/x/events"), 404, "not-found")

    async def test_pings(self, live: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(events, "PING_SECONDS", 0.05)
        made = await live.enqueue()
        async with listening(live, f"/tasks/{made}/events") as heard:
            await heard.next()
            assert await heard.next(keep_alive=True) == ("keep-alive", None)


class TestKeys:
    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
        monkeypatch.setattr(access, "FRESH_FOR", 0.0)

    async def test_who_is_no_longer_welcome_hears_no_more(
        self, http: httpx2.AsyncClient, url: str, keys: Keys, api: ApiServer
    ) -> None:
        new = await keys.create("k", scopes=[Scope.READ, Scope.ENQUEUE])
        own = Api(http, url, new.text)
        made = await own.enqueue()
        idle = api.tasks()
        async with listening(own) as all_of_it, listening(own, f"/tasks/{made}/events") as one:
            await all_of_it.next()
            await one.next()
            await keys.revoke(new.key.name)
            await all_of_it.ends()
            await one.ends()
        problem(await own("GET", "/events"), 401, "unauthorized")
        await eventually(lambda: api.tasks() <= idle)

    async def test_bounds_hold_for_who_listens(self, http: httpx2.AsyncClient, url: str, keys: Keys) -> None:
        whole = Api(http, url, (await keys.create("all", scopes=[Scope.ADMIN])).text)
        theirs = await whole.enqueue(tenant="bob", queue="other")
        ours = await whole.enqueue(tenant="acme", queue="mail")
        await whole.good("PATCH", "/queues/secret?create=true", {"stripes": 2})
        for bounds in ({"tenant": "acme"}, {"queues": ["mail"]}):
            own = whole.by((await keys.create("k", scopes=[Scope.READ], **bounds)).text)  # type: ignore[arg-type]
            async with listening(own) as heard:
                _, seen = await heard.next()
            assert [one["queue"] for one in seen["queues"]] == ["mail"]
            assert [seen[name] for name in ("workers", "slots", "busy", "keeper")] == [None] * 4
            assert {**await own.good("GET", "/overview"), "at": seen["at"]} == seen
            problem(await own("GET", f"/tasks/{theirs}/events"), 404, "not-found")
            async with listening(own, f"/tasks/{ours}/events") as heard:
                assert (await heard.next())[1]["id"] == ours


class TestMetrics:
    async def test_it_takes_a_key_that_may_read_everything(
        self, http: httpx2.AsyncClient, url: str, keys: Keys
    ) -> None:
        def by(key: str | None) -> Api:
            return Api(http, url, key)

        made = {scope: (await keys.create("k", scopes=[scope])).text for scope in (Scope.READ, Scope.ENQUEUE)}
        bound = (await keys.create("k", scopes=[Scope.READ], tenant="acme")).text
        problem(await by(None)("GET", "/metrics"), 401, "unauthorized")
        problem(await by(made[Scope.ENQUEUE])("GET", "/metrics"), 403, "forbidden")
        problem(await by(bound)("GET", "/metrics"), 403, "forbidden")
        assert "windlass_store_up 1.0" in (await by(made[Scope.READ])("GET", "/metrics")).text

    @pytest.mark.parametrize(
        ("accept", "kind", "end"),
        [
            ("", "text/plain; version=0.0.4; charset=utf-8", "\n"),
            ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8", "\n"),
            ("*/*", "text/plain; version=0.0.4; charset=utf-8", "\n"),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1",
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                "# EOF\n",
            ),
        ],
    )
    async def test_as_it_is_accepted(self, accept: str, kind: str, end: str, api_of: Api) -> None:
        await api_of.enqueue(queue="mail")
        told = await api_of("GET", "/metrics", accept=accept)
        assert told.headers["content-type"] == kind
        assert told.text.endswith(end)
        assert 'windlass_tasks{queue="mail",state="ready",type="t"} 1.0' in told.text
        assert told.text.count('windlass_tasks_enqueued_total{queue="mail",type="t"} 1.0') == 1

    async def test_many_who_scrape_at_once_cost_one_look(
        self, api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore, watch: Watch
    ) -> None:
        served = Api(http, api.serve(FaultyStore(store, watch), open_to_all=True))
        answers = await asyncio.gather(*(served("GET", "/metrics") for _ in range(50)))
        assert {answer.status_code for answer in answers} == {200}
        assert watch.calls["count"] == 1

    async def test_a_store_that_is_away_is_told(
        self, api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore, watch: Watch
    ) -> None:
        served = Api(http, api.serve(FaultyStore(store, watch), open_to_all=True))
        watch.then("count", Fault.BEFORE)
        told = await served("GET", "/metrics")
        assert (told.status_code, "windlass_store_up 0.0" in told.text) == (200, True)

    def test_where_it_is_not_installed_it_says_so(self) -> None:
        """In a process of its own, which cannot import prometheus_client."""
        ran = subprocess.run(
            [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stderr
        answer = json.loads(ran.stdout)
        assert answer["status"] == 501
        assert answer["code"] == "not-supported"
        assert "pip install 'windlass[metrics]'" in answer["detail"]


WITHOUT = """
import asyncio, sys
sys.modules["prometheus_client"] = None
from windlass import App
from windlass.http import api

async def ask():
    body = b""
    async def send(message):
        nonlocal body
        body += message.get("body", b"")
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    scope = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "headers": []}
    await api(App("memory://"), open_to_all=True)(scope, receive, send)
    print(body.decode())

asyncio.run(ask())
"""
