"""The dashboard while a shard does not answer: it shows what the others have, and what is missing."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.dashboard.browser import Run
from tests.dashboard.visitor import Visitor
from tests.stores.shards.conftest import MAP, NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass import App
from windlass._store.clock import SystemClock

MISSING = "Shard b of the store did not answer"


@pytest.fixture
def shards() -> Shards:
    return Shards(SystemClock())


@pytest.fixture
def app(shards: Shards, run: Run) -> Iterator[App]:
    app = App(PreparedShards(shards.faulty(), MAP))
    run(app.open())
    yield app
    run(app.close())


def test_pages_show_the_other_shards_and_name_the_missing_one(
    app: App, run: Run, shards: Shards, visit: Callable[..., Visitor], serve: Callable[..., str]
) -> None:
    tasks = {name: run(app.client.send("hello", {}, queue=f"on-{name}")).id for name in NAMES}
    visitor = visit(serve())
    assert MISSING not in visitor.text("queues")
    shards.down = {"b"}

    pages = {path: visitor.shows(path, MISSING) for path in ("", "queues", "tasks", "health")}
    listed = httpx.get(f"{visitor.url}../tasks", timeout=30)
    ready = httpx.get(f"{visitor.url}../readyz", timeout=30)  # or no server would be used any more
    one = visitor.text(f"tasks/{tasks['b']}", 503)
    other = visitor.text(f"tasks/{tasks['a']}")

    assert "on-a" in pages["tasks"]
    assert "on-b" not in pages["tasks"]
    assert "on-c" in pages["queues"]
    assert (listed.status_code, listed.json()["detail"]) == (503, "shard b of the store failed; retry")
    assert ready.status_code == 200
    assert "hard b of the store failed" in one
    assert "hello" in other
