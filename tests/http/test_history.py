"""History over HTTP: who may read it; and that a server counts what its workers settle, once."""

from datetime import timedelta

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.loops.workers import drained, eventually
from tests.servers.api import ApiServer
from windlass import App, By, Filter
from windlass._client.keys import Keys
from windlass._http import auth
from windlass._keeper.history import HistoryChore
from windlass._model.key import Scope
from windlass._model.record import HistoryBucket, HistorySeries
from windlass._observe.history_reader import HistoryReader
from windlass._policy.history.buckets import TEN_SECONDS, bucket_name
from windlass._store.protocol import all_records
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock


@pytest.fixture(autouse=True)
def _fresh_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "FRESH_FOR", 0.0)


@pytest.fixture
async def mail_and_shop(store: MemoryStore) -> None:
    """Put a bucket that ended a minute ago."""
    start = TEN_SECONDS.floor(await store.now() - timedelta(minutes=1))
    series = (
        HistorySeries(queue="mail", type="a", completed=3, run=(40, 3), depth=7, oldest=1.5),
        HistorySeries(queue="mail", type="b", buried=2),
        HistorySeries(queue="shop", type="a", completed=10, retried=1),
    )
    await store.put(HistoryBucket(name=bucket_name(TEN_SECONDS, start), series=series, measured=True))


@pytest.mark.usefixtures("mail_and_shop")
class TestReading:
    async def test_a_period_has_a_total_and_points(self, api_of: Api) -> None:
        found = await api_of.good("GET", "/history?period=5m")

        (point,) = (one for one in found["points"] if one["completed"])
        assert found["resolution"] == 10
        assert len(found["points"]) == 30
        assert point["at"].endswith("0Z")
        assert {name: point[name] for name in ("completed", "retried", "buried", "depth", "oldest")} == {
            "completed": 13, "retried": 1, "buried": 2, "depth": 7, "oldest": 1.5,
        }  # fmt: skip
        assert point["run"]["p50"] == pytest.approx(0.9, rel=0.1)
        assert point["wait"] is None
        assert found["total"] == point | {"at": found["since"], "seconds": 300}

    @pytest.mark.parametrize(
        ("query", "completed"),
        [
            ("queue=mail", 3),
            ("type=a", 13),
            ("queue=shop&type=a", 10),
            ("queue=shop&type=b", 0),
            ("queue=x", 0),
        ],
    )
    async def test_it_is_of_a_queue_or_type(self, api_of: Api, query: str, completed: int) -> None:
        found = await api_of.good("GET", f"/history?{query}")

        assert found["total"]["completed"] == completed
        assert sum(one["completed"] for one in found["points"]) == completed

    @pytest.mark.parametrize("period", ["92d", "0s", "soon", ""])
    async def test_other_periods_are_refused(self, api_of: Api, period: str) -> None:
        problem(await api_of("GET", f"/history?period={period}"), 422, "invalid-option")

    async def test_a_key_of_a_queue_sees_only_that(
        self, http: httpx2.AsyncClient, url: str, keys: Keys
    ) -> None:
        key = await keys.create("k", scopes=[Scope.READ], queues=["mail"])
        api = Api(http, url, key.text)

        assert (await api.good("GET", "/history"))["total"]["completed"] == 3
        assert (await api.good("GET", "/history?queue=shop"))["total"]["completed"] == 0

    async def test_a_key_of_a_tenant_sees_nothing(
        self, http: httpx2.AsyncClient, url: str, keys: Keys
    ) -> None:
        key = await keys.create("k", scopes=[Scope.READ], tenant="acme")

        found = problem(await Api(http, url, key.text)("GET", "/history"), 403, "forbidden")

        assert "not kept by tenant" in found["detail"]


async def counted(store: MemoryStore, clock: ManualClock) -> int:
    clock.advance(13)
    await HistoryChore(store).turn()
    clock.advance(3)
    return (await HistoryReader(store).read("1h")).total().completed


class TestCounting:
    async def test_the_server_counts_what_a_worker_elsewhere_settles(self, api: ApiServer) -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        served = App(store)
        worker = App(api.serve_app(served, open_to_all=True))

        @worker.task(name="t")
        async def t() -> None: ...

        for _ in range(20):
            await t.aenqueue()
        assert (await drained(worker)).ran == 20
        await worker.close()

        assert worker.store.history is None
        assert served.store.history is not None
        await served.store.history.close()
        assert await counted(store, clock) == 20

    async def test_a_server_that_is_mounted_stores_what_it_counted_by_itself(self, api: ApiServer) -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        client = App(api.serve(store, open_to_all=True))

        @client.task(name="t")
        async def t() -> None: ...

        async def cancel_one() -> None:
            await t.aenqueue()
            await client.operator.cancel(Filter(), by=By(who="ada"))

        async def is_stored() -> bool:
            clock.advance(3_600)
            await cancel_one()
            return bool(await all_records(store, HistoryBucket))

        await cancel_one()
        try:
            await eventually(is_stored, within=30)  # in real time a bucket takes ten seconds
        finally:
            await client.close()
