"""The API mounted in another app: every path that it returns leads back to it."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urljoin

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass import App, http
from windlass._client.keys import Keys
from windlass._http.docs.page import style_path
from windlass._http.web.router import Route, Router
from windlass._model.key import Scope
from windlass._stores.memory import MemoryStore

PLACES = ["/windlass", "/t", "/a/b", "/a b", "/タスク", "/tasks"]


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def mounted(place: str, store: MemoryStore) -> AsyncIterator[Api]:
    """The public app, mounted there; asked without a network in between, as its paths are what matters."""
    outer = Starlette(routes=[Mount(place, http.api(App(store), open_to_all=True))])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(outer), base_url="http://shop") as client:
        yield Api(client, quote(place))


async def test_where_a_task_is(mounted: Api, place: str) -> None:
    response = await mounted("POST", "/tasks", {"type": "t"})
    assert response.status_code == 201
    where = response.headers["location"]
    assert where == f"{quote(place)}/tasks/{response.json()['id']}"
    assert (await mounted.http.get(where)).json()["id"] == response.json()["id"]


async def test_where_a_triggered_task_is(mounted: Api) -> None:
    await mounted.good("PUT", "/schedules/n", {"type": "t", "rule": "1h"})
    response = await mounted("POST", "/schedules/n/trigger")
    assert (await mounted.http.get(response.headers["location"])).json()["id"] == response.json()["id"]


@pytest.mark.parametrize("path", ["/tasks?limit=2&type=t", "/audit?limit=2&newest_first=false"])
async def test_where_the_next_page_is(path: str, mounted: Api, place: str) -> None:
    for number in range(5):
        await mounted.enqueue()
        await mounted.good("PATCH", f"/queues/q{number}?create=true", {"stripes": 2})
    found: list[str] = []
    at: str | None = f"{mounted.url}{path}"
    while at is not None:
        response = await mounted.http.get(at)
        found += [one["id"] for one in response.json()["items"]]
        link = response.headers.get("link")
        at = None if link is None else link[1:].partition(">")[0]
        assert at is None or at.startswith(f"{quote(place)}/")
    assert len(found) == len(set(found)) == 5
    assert found == sorted(found)


async def test_the_document_says_where_it_is(mounted: Api, place: str) -> None:
    document = (await mounted.http.get(f"{mounted.url}/openapi.json")).json()
    assert document["servers"] == [{"url": quote(place)}]
    assert "/tasks" in document["paths"]
    again = await mounted.http.get(f"{document['servers'][0]['url']}/healthz")
    assert again.status_code == 200


async def test_the_page_finds_its_own(mounted: Api) -> None:
    page = await mounted.http.get(f"{mounted.url}/docs")
    assert page.status_code == 200
    for link, kind in ((style_path()[1:], "text/css"), ("openapi.json", "application/json")):
        assert f'href="{link}"' in page.text
        found = await mounted.http.get(urljoin(f"{mounted.url}/docs", link))
        assert found.status_code == 200
        assert found.headers["content-type"].startswith(kind)


async def test_elsewhere_is_the_others(mounted: Api) -> None:
    assert (await mounted.http.get("/nowhere")).status_code == 404
    problem(await mounted("GET", "/nowhere"), 404, "not-found")
    problem(await mounted("GET", "/task"), 404, "not-found")


async def test_it_asks_for_keys_and_keeps_no_house(store: MemoryStore, keys: Keys) -> None:
    key = (await keys.create("k", scopes=[Scope.ADMIN])).text
    outer = Starlette(routes=[Mount("/w", http.api(App(store)))])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(outer), base_url="http://shop") as client:
        problem(await client.get("/w/tasks"), 401, "unauthorized")
        own = Api(client, "/w", key)
        assert await own.good("GET", "/tasks") == {"items": [], "cursor": None}
        assert await own.good("GET", "/workers") == {"items": []}


async def test_a_place_that_anybody_may_name_breaks_no_head(store: MemoryStore) -> None:
    """Where the outer app takes a part of the path, what it is may be anything."""
    outer = Starlette(routes=[Mount("/of/{who}", http.api(App(store), open_to_all=True))])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(outer), base_url="http://shop") as client:
        for who in ("x%0d%0aset-cookie:%20a=b", "%E3%82%BF", "a%22b", "a%3Fb", "a%25b"):
            own = Api(client, f"/of/{who}")
            response = await own("POST", "/tasks", {"type": "t"})
            assert response.status_code == 201
            where = response.headers["location"]
            assert where.isascii()
            assert where.isprintable()
            assert (await client.get(where)).status_code == 200


def _handler(*_: Any) -> Any:
    raise AssertionError("not to be asked")


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("", "/tasks"),
        ("/t", "/t/tasks"),
        ("/t", "/tasks"),  # by a server that takes the place off the path
        ("/tasks", "/tasks/tasks"),
        ("/", "/tasks"),
        ("/t/", "/t/tasks"),
    ],
)
def test_servers_say_where_it_is_mounted_in_different_ways(root: str, path: str) -> None:
    target = Route(_handler, "")
    found, _ = Router({"/tasks": {"GET": target}}).find({"path": path, "root_path": root, "method": "GET"})
    assert found is target


async def test_what_is_listened_to_ends_with_the_listener(
    api: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    url = api.serve(store, at="/windlass", open_to_all=True)
    await Api(http, url)("GET", "/healthz")
    before = api.tasks()
    async with http.stream("GET", f"{url}/events") as response:
        assert b"event: overview" in await anext(response.aiter_bytes())
    await eventually(lambda: api.tasks() <= before)
