"""The dashboard and the API inside other programs: nobody comes in whom the program does not let in.

Paths are sent as they are, over a socket; `resolve=` fails in every way; each kind of host is a real server.
"""

import asyncio
import http.client
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.asgi import get_asgi_application
from django.http import HttpRequest
from django.test.utils import override_settings
from django.urls import include, path
from fastapi import FastAPI, HTTPException
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from tests.django_settings import configure
from tests.examples import FULL
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._dashboard import live, viewers
from windlass._model.filter import Page
from windlass._model.queue import QueueSettings
from windlass._model.record import Audit
from windlass._stores.memory import MemoryStore
from windlass.http import Access, site

CANARY = "canary-queue"
BASE = "/ops/windlass"
PAGES = (
    "/dashboard/queues",
    f"/dashboard/queues/{CANARY}",
    "/dashboard/queues?live=1",
    "/dashboard/",
    "/tasks",
    "/queues",
)
SPELLINGS = (
    "{}", "/{}", "{}/", "/.{}", "/x/..{}", "/%2e{}", "/%2e%2e/windlass{}",
    "/x/%2e%2e{}", "{};x", "{}%00", "{}%20", "/%2f{}", "{}%2f", "{}%3flive=1",
    "{}%23", "/;{}", "/dashboard/login/..{}", "/dashboard/assets/..{}", "/healthz/..{}",
    "/healthz%2f..{}", "/dashboard/assets%2f..{}",
    "/docs/%2e%2e{}", "{}#x", "{}?next=/x", "/dashboard{}", "/%5c{}", "{}.json",
)  # fmt: skip
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PROPFIND")
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"X-Original-URL": "/ops/windlass/healthz", "X-Rewrite-URL": "/healthz", "X-Forwarded-Prefix": "/x"},
    {"X-Forwarded-User": "root", "X-Remote-User": "root", "Remote-User": "root", "X_User": "ann"},
    {"Cookie": "__Host-windlass=x; sessionid=x; user=", "Authorization": "Basic YW5uOmFubg=="},
    {"Script-Name": "/ops", "X-Script-Name": "/ops/windlass/dashboard", "X-HTTP-Method-Override": "GET"},
)


async def by_header(request: Request) -> Access | None:
    return Access("ann", "operate") if request.headers.get("x-user") == "ann" else None


def of_django(request: HttpRequest) -> Access | None:
    return Access("ann", "operate") if request.headers.get("X-User") == "ann" else None


configure()
urlpatterns = [path("ops/windlass/", include("windlass.integrations.django.urls"))]


def in_starlette(store: MemoryStore) -> Any:
    return Starlette(routes=[Mount(BASE, site(App(store), resolve=by_header))])


def in_fastapi(store: MemoryStore) -> Any:
    """As uvicorn runs it with --root-path."""
    shop = FastAPI()
    shop.mount(BASE, site(App(store), resolve=by_header))

    async def below(scope: Any, receive: Any, send: Any) -> None:
        paths = {"path": f"/shop{scope['path']}", "raw_path": b"/shop" + scope["raw_path"]}
        await shop({**scope, **paths, "root_path": "/shop"}, receive, send)

    return below


def open_api(store: MemoryStore) -> Any:
    """The API is open to all, and so not part of what is protected."""
    return Starlette(routes=[Mount(BASE, site(App(store), resolve=by_header, open_to_all=True))])


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    await store.put(QueueSettings(name=CANARY))
    yield store
    await store.close()


def ask(url: str, method: str, target: str, **headers: str) -> tuple[int, bytes]:
    """Send a target as it is; the status, and the beginning of the body."""
    parts = urlsplit(url)
    line = http.client.HTTPConnection(parts.netloc, timeout=20)
    try:
        line.putrequest(method, f"{parts.path}{target}", skip_accept_encoding=True)
        for name, value in {"Accept": "text/html", **headers}.items():
            line.putheader(name, value)
        line.endheaders()
        response = line.getresponse()
        is_stream = "event-stream" in response.headers.get("content-type", "")
        return response.status, response.read1() if is_stream else response.read()
    finally:
        line.close()


def probes() -> Iterator[tuple[str, str, dict[str, str]]]:
    every = [
        (method, BASE + spelling.format(page), headers)
        for spelling, page, method, headers in product(SPELLINGS, PAGES, METHODS, HEADERS)
    ]
    return iter(every if FULL else every[::101])


def assert_nobody_comes_in(url: str, *, is_open: bool = False) -> int:
    number = 0
    for method, target, headers in probes():
        if is_open and "dashboard" not in target:
            continue
        status, body = ask(url, method, target, **headers)
        assert CANARY.encode() not in body.replace(target.encode(), b""), (
            method,
            target,
            headers,
            status,
            body,
        )
        assert status < 500, (method, target, headers, body)
        number += 1
    status, body = ask(url, "GET", f"{BASE}/dashboard/queues", **{"X-User": "ann"})
    assert (status, CANARY.encode() in body) == (200, True)
    status, body = ask(url, "GET", f"{BASE}/dashboard/queues?live=1", **{"X-User": "ann"})
    assert (status, CANARY.encode() in body) == (200, True)
    return number


@pytest.mark.more
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi, open_api])
async def test_strangers_stay_outside(
    mounted: Callable[[MemoryStore], Any], api: ApiServer, store: MemoryStore
) -> None:
    url = api.serve_asgi(mounted(store))
    is_open = mounted is open_api
    assert await asyncio.to_thread(assert_nobody_comes_in, url, is_open=is_open) >= (2_000 if FULL else 20)
    if not is_open:  # who is known to the program is not known to the API
        for method, target in product(METHODS[:4], ("/tasks", "/queues", "/keys", "/store/find")):
            status, _ = await asyncio.to_thread(ask, url, method, f"{BASE}{target}", **{"X-User": "ann"})
            assert status in (401, 404, 405), (method, target)
    assert not (await store.records(Audit, Page())).items


@pytest.mark.more
@pytest.mark.timeout(600)
def test_strangers_stay_outside_in_django(api: ApiServer) -> None:
    from windlass.integrations.django import app
    from windlass.integrations.django.test import in_memory

    before = app.settings
    app.settings = replace(before, access=f"{__name__}.of_django")
    try:
        with (
            override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], LOGIN_URL="/login/"),
            in_memory(),
        ):
            app.submit(app.store.put(QueueSettings(name=CANARY))).result(20)
            assert assert_nobody_comes_in(api.serve_asgi(get_asgi_application())) >= (2_000 if FULL else 20)
    finally:
        app.settings = before


def failures() -> dict[str, Callable[[Request], Any]]:
    """Functions for `resolve` that do not do what they should."""

    def raising(error: BaseException) -> Callable[[Request], Any]:
        def plain(_: Request) -> Any:
            raise error

        async def awaited(_: Request) -> Any:
            raise error

        return plain if len(found) % 2 else awaited

    def returning(value: Any) -> Callable[[Request], Any]:
        async def awaited(_: Request) -> Any:
            return value

        return (lambda _: value) if len(found) % 2 else awaited

    found: dict[str, Callable[[Request], Any]] = {}
    errors = (
        ValueError("x"),
        KeyError("user"),
        PermissionError(),
        HTTPException(401),
        HTTPException(200),
        OSError(),
    )
    errors += (
        TimeoutError(),
        AssertionError(),
        RecursionError(),
        StopAsyncIteration(),
        ConnectionResetError(),
    )
    for error in errors * 2:
        found[f"{len(found)} raises {error!r}"] = raising(error)
    wrong: tuple[Any, ...] = (
        False,
        True,
        "",
        "admin",
        0,
        1,
        {},
        {"name": "ann", "role": "admin"},
        [],
        (),
        object(),
    )
    wrong += (
        Access(""),
        Access("ann", "root"),
        Access("ann", ""),
        Access("ann", scopes=("all",)),
        Access("ann", queues=()),
    )
    wrong += (Access("a\nb"), Access("ann", tenant="\0"), Access("ann", queues=("",)), Access, None)
    wrong += (
        Access(None),
        Access("ann", None),
        Access("ann", scopes="admin"),
        Access("ann", queues=5),
        Access(5),
    )  # type: ignore[arg-type]
    for value in wrong * 2:
        found[f"{len(found)} returns {value!r}"] = returning(value)
    return found


@pytest.mark.more
async def test_a_failing_resolver_denies(api: ApiServer, store: MemoryStore) -> None:
    """Every failure on every page, with what an attacker could send besides."""
    pages = [*PAGES[:4], "/dashboard/login?next=queues", "/dashboard/keys"]
    number = 0
    for name, resolve in failures().items():
        url = api.serve_asgi(
            Starlette(routes=[Mount(BASE, site(App(store), resolve=resolve, open_to_all=True))])
        )
        for at, method in product(pages if FULL else pages[len(name) % 3 :: 3], ("GET", "POST")):
            status, body = await asyncio.to_thread(ask, url, method, BASE + at, **{"X-User": "ann"})
            assert CANARY.encode() not in body.replace(at.encode(), b""), (name, at)
            is_form = "login" in at and method == "GET"  # where one can sign in with a key
            assert status in (303, 401, 403, 415, 500, *((200,) if is_form else ())), (name, at, status)
            number += 1
    assert number >= (500 if FULL else 200)
    assert not (await store.records(Audit, Page())).items


async def test_a_stream_ends_when_the_program_says_no(
    api: ApiServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewers, "RESOLVED_FOR", 0.0)
    monkeypatch.setattr(live, "RECHECK", 0.1)
    for fails in (
        lambda: None,
        lambda: 1 / 0,
        lambda: Access("ann", tenant="other"),
        lambda: Access("", "admin"),
    ):
        let_in = [Access("ann", "admin")]
        url = api.serve_asgi(
            site(App(store), resolve=lambda _, fails=fails, let_in=let_in: let_in[0] if let_in else fails())
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        target = f"{urlsplit(url).path}/dashboard/queues?live=1"
        writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        async with asyncio.timeout(20):
            assert CANARY.encode() in await reader.readuntil(CANARY.encode())
            let_in.clear()
            await reader.read()  # to its end
        writer.close()


async def test_head_on_a_live_page_ends(api: ApiServer, store: MemoryStore) -> None:
    """It has no body: the next request on the connection is answered."""
    url = api.serve_asgi(site(App(store), resolve=by_header))
    base = urlsplit(url).path
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    for method, target in (("HEAD", "/dashboard/queues?live=1"), ("GET", "/healthz")):
        writer.write(f"{method} {base}{target} HTTP/1.1\r\nhost: x\r\nx-user: ann\r\n\r\n".encode())
    async with asyncio.timeout(10):
        await reader.readuntil(b'"status":"ok"')
    writer.close()


async def test_a_right_key_comes_in_where_nobody_else_does(api: ApiServer, store: MemoryStore) -> None:
    """Whom the program does not know may have a key; a wrong one is nobody."""
    url = api.serve_asgi(in_starlette(store))
    key = (await Keys(store).create("ann", scopes=["read"])).text
    for text, status in ((key, 200), (key[:-1], 401), (f"{key}x", 401)):
        answer = await asyncio.to_thread(
            ask, url, "GET", f"{BASE}/dashboard/queues", Authorization=f"Bearer {text}"
        )
        assert answer[0] == status
