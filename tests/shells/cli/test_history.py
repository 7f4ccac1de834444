"""`windlass history`: a table with sparklines, or the document of the API."""

import asyncio
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.servers.process import free_port
from windlass import App
from windlass._model.record import HistoryBucket, HistorySeries
from windlass._policy.history.buckets import TEN_SECONDS, bucket_name
from windlass._store.protocol import all_records

from .conftest import Run
from .processes import Start, until


@pytest.fixture
def some_history(run: Run) -> None:
    """Put the last hour of two queues, the tasks of one getting more and more."""

    async def put() -> None:
        app = App("sqlite:///windlass.db")
        await app.store.open()
        now = TEN_SECONDS.floor(datetime.now(UTC) - timedelta(seconds=20))
        for number in range(60):
            mail = HistorySeries(queue="mail", type="shop.welcome", completed=number, run=(40, number))
            shop = HistorySeries(queue="shop", type="shop.explode", retried=1, buried=2, depth=3, oldest=90)
            name = bucket_name(TEN_SECONDS, now - number * TEN_SECONDS.length)
            await app.store.put(HistoryBucket(name=name, series=(mail, shop), measured=True))
        await app.close()

    run("migrate")
    asyncio.run(put())


@pytest.mark.usefixtures("some_history")
class TestShowing:
    def test_a_line_for_each_queue_and_type(self, run: Run) -> None:
        head, mail, shop = run("history").out.splitlines()

        assert head.split() == [
            *("queue", "type", "completed", "failed", "dead", "cancelled", "waited", "ran"),
            *("depth", "(oldest)", "completed", "over", "time"),
        ]
        assert mail.split()[:6] == ["mail", "shop.welcome", "1,770", "0", "0", "0"]
        assert "939 ms / 939 ms" in mail
        assert mail.split()[-1].startswith("▁▁▁▁")
        assert "█" in mail.split()[-1]
        assert shop.split()[:6] == ["shop", "shop.explode", "0", "180", "120", "0"]
        assert shop.endswith("3 (1 m)")

    def test_only_a_queue_or_type(self, run: Run) -> None:
        assert len(run("history", "-q", "mail").out.splitlines()) == 2
        assert len(run("history", "--type", "shop.explode").out.splitlines()) == 2
        assert "nothing has happened" in run("history", "-q", "shop", "--type", "shop.welcome").err

    def test_json_is_the_document_of_the_api(self, run: Run) -> None:
        found = run("history", "--period", "10m", "-q", "mail", "--json").row

        assert found["resolution"] == 10
        assert len(found["points"]) == 60
        assert found["total"]["completed"] == sum(one["completed"] for one in found["points"])

    def test_a_wrong_period_is_refused(self, run: Run) -> None:
        ran = run("history", "--period", "1y")

        assert ran.code == 2
        assert "period" in ran.err


@pytest.mark.system
@pytest.mark.parametrize("processes", [1, 2])
def test_servers_write_the_history_of_workers_elsewhere(
    run: Run, start: Start, enqueue: Callable[..., str], processes: int
) -> None:
    port = free_port()
    run("migrate")
    for number in range(30):
        enqueue("shop.welcome", f'{{"user_id": {number}}}')
    server = start(
        "serve", "--port", str(port), "--processes", str(processes), "--no-keeper", "--app", "shop:app"
    )
    until(server, "serving")
    store = f"http://127.0.0.1:{port}"
    worker = start("worker", "shop:app", "--store", store, "--drain")
    assert worker.wait(60) == 0
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0

    async def counted() -> dict[tuple[str, str], int]:
        app = App("sqlite:///windlass.db")
        parts = await all_records(app.store, HistoryBucket)
        await app.close()
        found: dict[tuple[str, str], int] = {}
        for one in (one for part in parts for one in part.series):
            found[one.queue, one.type] = found.get((one.queue, one.type), 0) + one.completed
        return found

    assert asyncio.run(counted()) == {("mail", "shop.welcome"): 30}
