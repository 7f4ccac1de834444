"""Pages of large tasks: bounded in bytes and in what is read at once, and complete when followed."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.conftest import Ask
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass import App
from windlass._http.page import MAX_PAGE_BYTES
from windlass._http.web import load as bounds
from windlass._model.filter import Filter, Page, Slice
from windlass._model.task import Task
from windlass._stores.memory import MemoryStore

TASKS = 30
LARGE = 1_000_000


class CountingStore(MemoryStore):
    """A store that notes how many tasks it is asked for at once."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        self.limits.append(page.limit)
        return await super().find(where, page)


@pytest.fixture
async def store() -> AsyncIterator[CountingStore]:
    store = CountingStore()
    await store.open()
    client = App(store).client
    for number in range(TASKS):
        await client.send("t", {"n": number, "x": "x" * (LARGE if number % 3 else 10)})
    yield store
    await store.close()


@pytest.mark.parametrize(
    "path", ["/tasks?limit=1000", "/tasks?limit=1000&newest_first=true", "/tasks?limit=7"]
)
async def test_pages_are_bounded_and_complete(path: str, api_of: Api) -> None:
    seen: list[str] = []
    cursor = ""
    while True:
        answer = await api_of("GET", f"{path}{cursor}")
        assert len(answer.content) < MAX_PAGE_BYTES + LARGE
        page = answer.json()
        seen += [one["id"] for one in page["items"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert len(set(seen)) == len(seen) == TASKS


async def test_so_are_those_of_the_store(ask: Ask) -> None:
    seen: list[str] = []
    page: dict[str, Any] = {"limit": 1000}
    while True:
        answer = await ask("find", {"where": {}, "page": page})
        assert len(answer.content) < MAX_PAGE_BYTES + LARGE
        found = answer.json()
        seen += [one["id"] for one in found["items"]]
        if found.get("cursor") is None:
            break
        page["cursor"] = found["cursor"]
    assert len(set(seen)) == len(seen) == TASKS
    whole = await ask("find", {"where": {"ids": seen}, "page": {"limit": 1000}})  # workers need all of them
    assert len(whole.json()["items"]) == TASKS


async def test_little_is_read_at_once(api_of: Api, store: CountingStore) -> None:
    store.limits.clear()
    await api_of.good("GET", "/tasks?limit=1000")
    assert store.limits == [8]


async def test_small_tasks_fill_a_page(api: ApiServer, http: httpx2.AsyncClient) -> None:
    store = CountingStore()
    await store.open()
    client = App(store).client
    for _ in range(400):
        await client.send("t", {})
    found = await Api(http, api.serve(store, open_to_all=True)).good("GET", "/tasks?limit=350")
    assert len(found["items"]) == 350
    assert found["cursor"] is not None
    assert store.limits == [8, 16, 32, 64, 80, 80, 70]


async def test_pages_that_nobody_reads_are_bounded(api_of: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_RESPONSE_BYTES", 2_000_000)
    problem(await api_of("GET", "/tasks?limit=1000"), 503, "busy")
    await api_of.good("GET", "/tasks?limit=1")
