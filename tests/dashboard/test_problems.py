"""Pages when something is wrong: the store is away, a page does not exist, a method is not known."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.servers.api import ApiServer
from windlass import App, StoreUnavailable
from windlass._dashboard.screens import ALL
from windlass._dashboard.view import DashboardSettings
from windlass._store.forward import ForwardingStore
from windlass._stores.memory import MemoryStore

PATHS = [screen.path for pages in ALL for screen in pages.screens if "{" not in screen.path and screen.live]


class Away(ForwardingStore):
    """A store that can be away."""

    is_away = False

    def _forward(self, verb: str, method: Any, *args: Any, **options: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("cannot connect to db.internal:5432")
        return super()._forward(verb, method, *args, **options)


@pytest.fixture
def store() -> Away:
    return Away(MemoryStore())


@pytest.fixture
def url(store: Away) -> Iterator[str]:
    with ApiServer() as server:
        settings = DashboardSettings()
        yield f"{server.serve_app(App(store), dashboard=settings, open_until_keys=True)}/dashboard"


async def test_a_store_that_is_away_is_a_page_that_says_so(url: str, store: Away) -> None:
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        assert (await http.get(f"{url}/")).status_code == 200
        store.is_away = True
        for path in PATHS:
            page = await http.get(f"{url}{path}")
            assert page.headers["content-type"].startswith("text/html"), path
            assert page.status_code in (200, 503), (path, page.text)
            assert "db.internal" not in page.text
            assert "</html>" in page.text
        store.is_away = False


async def test_an_open_page_is_told_of_it_without_names_of_hosts(url: str, store: Away) -> None:
    client = httpx2.AsyncClient(trust_env=False, verify=False, timeout=30)
    async with client as http, http.stream("GET", f"{url}/audit?live=1") as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        store.is_away = True
        async for line in lines:
            if line == "event: trouble":
                break
        assert await anext(lines) == "data: the store failed; retry"
        store.is_away = False
        async for line in lines:
            if line == "event: recovered":
                break


async def test_what_does_not_exist_is_a_page(url: str) -> None:
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        for path in ("/nowhere", "/tasks/not-an-id", "/queues/none", "/assets/none.js"):
            page = await http.get(f"{url}{path}")
            assert page.status_code == 404, path
            assert "</html>" in page.text
        assert (await http.put(f"{url}/queues")).status_code == 405
        assert (await http.head(f"{url}/queues")).status_code == 200
