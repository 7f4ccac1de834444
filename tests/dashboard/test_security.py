"""Forms of other sites, roles, bounds and hostile texts: every action and every screen that is declared.

An action that is new is tried here by itself. If it needs fields to succeed, add them to `FIELDS`.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from msgspec.structs import replace

from tests.dashboard.person import Person
from tests.http.api_client import Api
from tests.servers.api import ApiServer
from windlass._client.endpoints import Endpoints
from windlass._client.keys import Keys
from windlass._dashboard.app import HEADERS
from windlass._dashboard.page import Action, Screen
from windlass._dashboard.screens import ALL
from windlass._dashboard.view import DashboardSettings
from windlass._dashboard.viewers import LOGIN
from windlass._model.filter import Filter, Page
from windlass._model.key import ApiKey, Login, Role, Scope
from windlass._model.queue import QueueSettings
from windlass._model.record import KINDS, Audit
from windlass._stores.memory import MemoryStore

ACTIONS = {action.path: action for some in ALL for action in some.actions}
SCREENS = {screen.path: screen for some in ALL for screen in some.screens}
SCHEDULE = {"rule": "2h", "payload": "{}", "missed": "once", "overlap": "skip"}
FIELDS: dict[str, dict[str, str]] = {
    "/tasks/act": {"do": "discard", "all": "1", "number": "1", "typed": "1"},
    "/tasks/{}/edit": {"payload": '{"n": 2}'},
    "/enqueue": {"type": "hello", "payload": "{}", "queue": "mail"},
    "/failures/{}/discard": {"number": "1", "typed": "1"},
    "/queues/{}/settings": {"stripes": "2", "fairness": "fifo", "ageing": "10m", "retention": "types"},
    "/alerts": {"name": "other", "count": "3", "hold": "", "window": "", "webhook": ""},
    "/keys": {"label": "new", "scopes": "read"},
    "/limits/-/add": {"name": "other", "running": "3", "all": "yes"},
    "/limits/{}/change": {"running": "3"},
    "/quotas": {"tenant": "other", "tasks": "3"},
    "/schedules/-/add": {"name": "other", "type": "hello", **SCHEDULE},
    "/schedules/{}/change": SCHEDULE,
}
OTHERS = {  # what some actions are done to
    "/tasks/{}/cancel": "ready",
    "/queues/{}/resume": "paused",
    "/queues/{}/remove": "idle",
    "/schedules/{}/resume": "paused",
}
bounded = pytest.mark.parametrize(
    "bounds",
    [
        pytest.param({"tenant": "other"}, id="tenant"),
        pytest.param({"queues": ["own"]}, id="queues", marks=pytest.mark.full),
    ],
)
SOMEONE = "1" * 64
"""The name of a login that is there from the beginning."""

CREATES = ("/enqueue",)
"""A bound key may do this for its own tenant and queues."""


def plain(path: str) -> str:
    """A path without the names of its parameters."""
    return re.sub(r"{\w+}", "{}", path)


def needed_scope(action: Action) -> Scope:
    """What an action needs: those on keys are for admins."""
    if action.path.startswith("/keys"):
        return Scope.ADMIN
    return Scope.ENQUEUE if action.path in CREATES else Scope.OPERATE


class World:
    """A store with something for every action, served in several ways."""

    def __init__(self, server: ApiServer, http: httpx2.AsyncClient) -> None:
        self.server, self.http = server, http
        self.store = MemoryStore()
        self.names: dict[str, str] = {}

    async def fill(self) -> None:
        await self.store.open()
        api = Api(self.http, self.server.serve(self.store, open_to_all=True))
        self.names["id"] = dead = await api.die(type="canary.type", queue="mail", tenant="canary")
        self.names["ready"] = await api.enqueue(type="canary.type", queue="mail", tenant="canary")
        self.names["failure"] = (await api.good("GET", f"/tasks/{dead}"))["failure"]
        self.names["root"] = dead
        await self.store.put(QueueSettings(name="idle", stripes=2))
        await self.store.put(QueueSettings(name="paused", paused=True))
        await api.good("PUT", "/alerts/canary", {"count": 1})
        await api.good("PUT", "/limits/canary", {"running": 1, "all": True})
        await api.good("PUT", "/quotas/canary", {"tasks": 100})
        gone = await Endpoints(self.store).disable("canary", task_id=dead)
        self.names["endpoint"] = gone.name
        for name in ("canary", "paused"):
            await api.good("PUT", f"/schedules/{name}", {"type": "canary.type", "rule": "1h"})
        await api.good("POST", "/schedules/paused/pause")
        key = (await Keys(self.store).create("canary-key", scopes=["read"])).key.name
        at = await self.store.now()
        until = at + timedelta(hours=1)
        await self.store.put(Login(name=SOMEONE, key=key, secret=SOMEONE, created_at=at, expires_at=until))
        self.names |= {"queue": "mail", "key": key, "session": await api.session("mail"), "worker": "w"}
        self.names |= dict.fromkeys(("name", "alert", "limit", "schedule", "tenant"), "canary")
        self.names |= {"type": "canary.type", "idle": "idle", "paused": "paused"}

    def path(self, page: Action | Screen) -> str:
        """The path of a page below the dashboard, with names for its parameters."""
        other = OTHERS.get(plain(page.path))
        parts = page.path.split("/")[1:]
        names = [self.names[other or one[1:-1]] if one.startswith("{") else one for one in parts]
        return "/".join(quote(one, safe="") for one in names)

    def served(self, settings: DashboardSettings | None = None, **options: Any) -> Person:
        url = self.server.serve(self.store, dashboard=settings or DashboardSettings(), **options)
        return Person(self.http, f"{url}/dashboard/")

    async def signed_in(self, *scopes: str, read_only: bool = False, **bounds: Any) -> Person:
        """Someone who is signed in with a key that has these scopes."""
        person = self.served(DashboardSettings(read_only=read_only))
        key = await Keys(self.store).create("someone", scopes=scopes, **bounds)
        assert (await person.sign_in(key.text)).status_code == 303
        return person

    async def everything(self) -> list[Any]:
        """All that is stored, but for who signs in here and when keys were used."""
        kinds: list[Any] = [QueueSettings, Audit, *KINDS]
        found: list[Any] = [*(await self.store.find(Filter(), Page(limit=1_000))).items]
        for kind in kinds:
            for one in (await self.store.records(kind, Page(limit=1_000))).items:
                is_own = isinstance(one, Login) and one.name != SOMEONE
                is_own |= isinstance(one, Audit) and one.action == "create" and "login" in one.subject
                if not is_own:
                    found.append(replace(one, last_used_at=None) if isinstance(one, ApiKey) else one)
        return found


@pytest.fixture
async def world(server: ApiServer) -> AsyncIterator[World]:
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        world = World(server, http)
        await world.fill()
        yield world
        await world.store.close()


FOREIGN = {
    "a foreign origin": {"origin": "https://evil.example"},
    "no origin of a page": {"origin": "null"},
    "another port": {"origin": "http://127.0.0.1:1"},
    "cross-site": {"sec_fetch_site": "cross-site"},
    "a link from another site": {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
    "same-site": {"sec_fetch_site": "same-site"},
}


@pytest.mark.parametrize(
    "signed_in",
    [pytest.param(True, id="signed in"), pytest.param(False, id="without keys", marks=pytest.mark.full)],
)
@pytest.mark.parametrize("path", ACTIONS)
async def test_no_other_site_can_act(path: str, world: World, *, signed_in: bool) -> None:
    person = await world.signed_in("admin") if signed_in else world.served(open_to_all=True)
    token = await person.token("queues/mail")
    of_another = await (await world.signed_in("admin")).token("queues/mail")
    target, fields = world.path(ACTIONS[path]), {"why": "a test", **FIELDS.get(plain(path), {})}
    before = await world.everything()

    async def refused(*, sent: str | None = token, by: Person = person, **headers: str) -> None:
        response = await by.post(target, fields, token=sent, **headers)
        assert response.status_code in ((403, 401) if by is not person else (403,)), (sent, headers)
        assert await world.everything() == before

    await refused(sent=None)
    await refused(sent="")
    await refused(sent="0" * 64)
    await refused(sent=of_another)
    await refused(by=Person(world.http, person.url))  # the browser kept no cookie
    for headers in FOREIGN.values():
        await refused(**headers)
    response = await world.http.post(
        f"{person.url}{target}",
        json={**fields, "token": token},
        headers={"cookie": "; ".join(f"{name}={value}" for name, value in person.cookies.items())},
    )
    assert response.status_code == 415
    assert (await person.get(target)).status_code in (200, 303, 404, 422)  # GET changes nothing
    assert await world.everything() == before

    response = await person.post(target, fields, token=token, sec_fetch_site="same-origin")
    assert response.status_code in (200, 303), response.text[-1_500:]
    assert await world.everything() != before


@pytest.mark.parametrize("path", ACTIONS)
async def test_roles(path: str, world: World) -> None:
    """What a role lacks is refused, and changes nothing; in a read-only dashboard that is everything."""
    action, fields = ACTIONS[path], {"why": "a test", **FIELDS.get(plain(path), {})}
    needed = needed_scope(action)
    readers = [await world.signed_in(*Role.READ.scopes), await world.signed_in("admin", read_only=True)]
    if needed is Scope.ADMIN:
        readers.append(await world.signed_in("read", "enqueue", "work", "operate", "reveal"))
    else:
        readers.append(await world.signed_in(*({*Scope} - {needed, Scope.ADMIN, Scope.OBSERVE})))
        readers.append(await world.signed_in("observe"))
    before = await world.everything()
    for person in readers:
        response = await person.post(world.path(action), fields, token=await person.token())
        assert response.status_code == 403, response.text[-1_500:]
        assert await world.everything() == before
    able = Role.ADMIN if needed is Scope.ADMIN else Role.OPERATE
    person = await world.signed_in(*able.scopes)
    before = await world.everything()
    response = await person.post(world.path(action), fields, token=await person.token())
    assert response.status_code in (200, 303), response.text[-1_500:]
    assert await world.everything() != before


@bounded
@pytest.mark.parametrize("path", [one for one in ACTIONS if one not in CREATES])
async def test_bound_keys_change_nothing_of_others(path: str, bounds: dict[str, Any], world: World) -> None:
    person = await world.signed_in("read", "operate", "enqueue", **bounds)
    before = await world.everything()
    fields = {"why": "a test", **FIELDS.get(plain(path), {})}
    response = await person.post(world.path(ACTIONS[path]), fields, token=await person.token())
    assert response.status_code < 500
    assert await world.everything() == before


@bounded
@pytest.mark.parametrize("path", SCREENS)
async def test_bound_keys_see_nothing_of_others(path: str, bounds: dict[str, Any], world: World) -> None:
    """Pages that bound keys may not see are refused; of the others, none shows what is not theirs."""
    person = await world.signed_in("read", "operate", "enqueue", "reveal", **bounds)
    screen = SCREENS[path]
    for live in ("", "?live=1") if screen.live else ("",):
        response = await _text_of(person, f"{world.path(screen)}{live}")
        status, text = response
        assert status in ((200, 403, 404, 422) if screen.bound else (403,)), text[-1_500:]
        assert status in (403, 404) or "canary" not in text  # a refusal repeats what was asked for


async def _text_of(person: Person, path: str) -> tuple[int, str]:
    """A page, or the first event of a stream."""
    told = {"cookie": "; ".join(f"{name}={value}" for name, value in person.cookies.items())}
    async with person.http.stream("GET", f"{person.url}{path}", headers=told) as response:
        if response.headers["content-type"].startswith("text/event-stream"):
            text = ""
            async with asyncio.timeout(10):
                async for part in response.aiter_text():
                    text += part
                    if "\n\n" in text:
                        break
            return response.status_code, text
        return response.status_code, (await response.aread()).decode()


@pytest.mark.parametrize("path", SCREENS)
async def test_every_page_has_safe_headers(path: str, world: World) -> None:
    person = await world.signed_in("admin")
    for one in (person, Person(world.http, person.url)):
        response = await one.get(world.path(SCREENS[path]))
        assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
        assert "unsafe" not in response.headers["content-security-policy"]
        assert "access-control-allow-origin" not in response.headers


async def test_a_notice_is_text(world: World) -> None:
    person = world.served(open_to_all=True)
    person.cookies["windlass-notice"] = quote("<script>hit()</script>\r\nX-Injected: 1")
    page = await person.get("queues")
    assert "<script>hit()" not in page.text
    assert "&lt;script&gt;hit()" in page.text
    token = await person.token("queues/mail")
    for name in ("a%0D%0AX-Injected:%201", "%0d%0a%0d%0a<script>", "a;windlass-who=x"):
        response = await person.post(f"queues/{name}/pause", {"who": "x\r\nX-Injected: 1"}, token=token)
        assert response.status_code == 422
        assert "x-injected" not in response.headers
    response = await person.post("queues/mail/pause", {"who": "Ann; path=/x, b=c"}, token=token)
    lines = response.headers.get_list("set-cookie")
    assert [line for line in lines if "=Ann%3B%20path%3D%2Fx%2C%20b%3Dc; " in line], lines


async def test_texts_of_tasks_cannot_add_to_a_stream(world: World) -> None:
    """A line of a stream ends at a carriage return, too."""
    api = Api(world.http, world.server.serve(world.store, open_to_all=True))
    made = await api.enqueue(queue="stream")
    (claimed,) = await api.claim(await api.session("stream"), 1, "stream")
    evil = "one\r\nevent: trouble\r\rdata: forged\n\nid: 7\u2028retry: 1"
    error = {"type": "Boom", "message": evil, "traceback": evil}
    ended = {"id": made, "fence": claimed["fence"], "outcome": "failed", "fatal": True, "error": error}
    await api.settle(ended)
    person = world.served(open_to_all=True)
    for path in (f"tasks/{made}?live=1", "tasks?live=1", "failures?live=1"):
        status, text = await _text_of(person, path)
        assert status == 200
        assert all(line.startswith("data: ") for line in text.split("\n") if line), text
        assert "\r" not in text


async def test_the_login_of_someone_else_is_not_theirs(world: World) -> None:
    """Neither the name of a login in the store nor a changed value signs anybody in."""
    person = await world.signed_in("admin")
    logins = (await world.store.records(Login, Page())).items
    (login,) = [one for one in logins if one.name != SOMEONE]
    value = person.cookies[LOGIN]
    for forged in (login.name, login.secret, login.key, value[:-1], f"{value}x", value.swapcase(), ""):
        person.cookies[LOGIN] = forged
        assert (await person.get()).status_code == 303
