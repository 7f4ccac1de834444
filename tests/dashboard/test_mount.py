"""The dashboard inside other programs, below any prefix, with their users; and behind proxies."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import path
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from tests.dashboard.person import Person
from tests.django_settings import configure
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._dashboard.site import Site
from windlass._dashboard.view import DashboardSettings
from windlass._dashboard.viewers import LOGIN
from windlass._http.app import Api
from windlass._model.filter import Page
from windlass._model.key import Role
from windlass._model.queue import QueueSettings
from windlass._model.record import Audit
from windlass._stores.memory import MemoryStore
from windlass.errors import InvalidOption
from windlass.http import Access, site

HOME = "the page of the shop"


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    await store.put(QueueSettings(name="mail"))
    await store.put(QueueSettings(name="other"))
    yield store
    await store.close()


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        yield http


async def by_cookie(request: Request) -> Access | None:
    name = request.cookies.get("user")
    return None if name is None else Access(name, "operate")


def by_django_session(request: Request) -> Access | None:
    name = SessionStore(request.cookies.get("sessionid")).get("user")
    return None if name is None else Access(name, "operate")


def in_starlette(app: App) -> Any:
    async def home(_: Request) -> PlainTextResponse:
        return PlainTextResponse(HOME)

    return Starlette(routes=[Route("/", home), Mount("/ops/windlass", site(app, resolve=by_cookie))])


def in_fastapi(app: App) -> Any:
    shop = FastAPI()

    @shop.get("/")
    async def home() -> str:
        return HOME

    shop.mount("/ops/windlass", site(app, resolve=by_cookie))
    return shop


def in_django(app: App) -> Any:
    served = site(app, resolve=by_django_session)
    return Starlette(routes=[Mount("/ops/windlass", served), Mount("/", get_asgi_application())])


def home(_: HttpRequest) -> HttpResponse:
    return HttpResponse(HOME)


urlpatterns = [path("", home)]


@pytest.fixture
def configured() -> Any:
    """Django, with settings for these tests; others in this process have theirs."""
    configure()
    with override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"]):
        yield


def signed_in() -> dict[str, str]:
    session = SessionStore()
    session["user"] = "ann"
    return {"user": "ann", "sessionid": session._get_session_key()}


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi, in_django])
async def test_users_of_the_program_see_it_and_act(
    mounted: Callable[[App], Any], server: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    url = server.serve_asgi(mounted(App(store)))
    assert HOME in (await http.get(f"{url}/")).text
    stranger = Person(http, f"{url}/ops/windlass/dashboard/")
    assert (await stranger.get("queues/mail")).headers["location"] == "../login?next=queues%2Fmail"

    person = Person(http, f"{url}/ops/windlass/dashboard/")
    person.cookies = signed_in()
    page = await person.get("queues/mail")
    assert page.status_code == 200
    assert "Sign out" not in page.text
    style = page.text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    assert (await http.get(urljoin(str(page.url), style))).status_code == 200
    done = await person.post("queues/mail/pause", {"why": "a test"}, token=await person.token("queues/mail"))
    assert done.status_code == 303
    assert (await http.get(urljoin(str(done.url), done.headers["location"]))).url.path.endswith("queues/mail")
    (line,) = (await store.records(Audit, Page())).items
    assert (line.who, line.action) == ("user ann", "pause")
    told = {"cookie": "; ".join(f"{name}={value}" for name, value in person.cookies.items())}
    async with http.stream("GET", f"{person.url}queues?live=1", headers=told) as stream, asyncio.timeout(10):
        assert (await anext(stream.aiter_lines())).startswith("data:")
    leads = await http.get(f"{url}/ops/windlass/", headers={"accept": "text/html"})
    assert (leads.status_code, leads.headers["location"]) == (307, "dashboard/")


@pytest.mark.parametrize(
    ("access", "seen", "denied"),
    [
        (Access("ann"), "queues/mail", "keys"),
        (Access("ann", queues=("mail",)), "queues/mail", "queues/other"),
        (Access("ann", scopes=("read",), tenant="acme"), "tasks", "audit"),
    ],
)
async def test_access_is_bounded(
    access: Access, seen: str, denied: str, server: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    person = Person(http, f"{server.serve_asgi(site(App(store), resolve=lambda _: access))}/dashboard/")
    assert (await person.get(seen)).status_code == 200
    assert (await person.get(denied)).status_code in (403, 404)
    token = await person.token("keys") if access.role == "admin" else "0" * 64
    assert (await person.post("queues/mail/pause", {}, token=token)).status_code == 403
    assert [one.paused for one in (await store.records(QueueSettings, Page())).items] == [False, False]


@pytest.mark.parametrize(
    "access", [Access(""), Access("a\nb"), Access("a", "root"), Access("a", queues=()), Access("x" * 101)]
)
async def test_a_wrong_access_is_an_error_of_the_program(
    access: Access, server: ApiServer, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    person = Person(http, f"{server.serve_asgi(site(App('memory://'), resolve=lambda _: access))}/dashboard/")
    response = await person.get()
    assert response.status_code == 500
    assert "Internal error" in response.text
    assert "failed" in caplog.text


async def test_whom_the_program_does_not_know_is_sent_to_its_own_page(
    server: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    """Also if the API is open to all: with a resolver nobody is unnamed. A key does as well."""
    app = site(App(store), open_to_all=True, resolve=lambda _: None, sign_in="/accounts/login/")
    url = server.serve_asgi(Starlette(routes=[Mount("/ops", app)]))
    person = Person(http, f"{url}/ops/dashboard/")
    response = await person.get("queues/a%2Fb?x=1")
    assert response.status_code == 303
    assert response.headers["location"].startswith("/accounts/login/?next=/ops/dashboard/queues/a")
    assert (await person.get("queues?live=1")).status_code == 401
    key = await Keys(store).create("ann", scopes=["read"])
    assert (await person.get(authorization=f"Bearer {key.text}")).status_code == 200
    assert (await person.sign_in(key.text)).status_code == 303
    assert (await person.get()).status_code == 200


def trusting(*proxies: str, role: Role = Role.OPERATE) -> DashboardSettings:
    return DashboardSettings(user_header="X-Forwarded-User", trusted_proxies=proxies, proxy_role=role)


async def test_a_trusted_proxy_names_the_user(
    server: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    url = server.serve(store, dashboard=trusting("10.0.0.0/8", "127.0.0.1"), open_until_keys=True)
    person = Person(http, f"{url}/dashboard/", x_forwarded_user="ann")
    done = await person.post("queues/mail/pause", {}, token=await person.token("queues/mail"))
    assert done.status_code == 303
    (line,) = (await store.records(Audit, Page())).items
    assert line.who == "user ann"
    assert (await person.get("keys")).status_code == 403

    assert (await Person(http, person.url, x_forwarded_user="").get()).status_code == 303
    twice = [("x-forwarded-user", "ann"), ("x-forwarded-user", "root"), ("accept", "text/html")]
    assert (await http.get(person.url, headers=twice)).status_code == 303
    assert (await Person(http, person.url).get()).status_code == 303  # nobody comes in unnamed


async def test_the_header_of_others_is_ignored(
    server: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    url = server.serve(store, dashboard=trusting("10.0.0.0/8", role=Role.ADMIN))
    person = Person(http, f"{url}/dashboard/", x_forwarded_user="root", x_forwarded_for="10.0.0.1")
    assert (await person.get()).status_code == 303
    assert (await person.post("queues/mail/pause", {}, token="0" * 64)).status_code == 401
    url = server.serve(store, dashboard=DashboardSettings())
    assert (await Person(http, f"{url}/dashboard/", x_forwarded_user="root").get()).status_code == 303


def test_a_header_without_proxies_is_refused(server: ApiServer) -> None:
    with pytest.raises(InvalidOption, match="needs the addresses of proxies"):
        server.serve(MemoryStore(), dashboard=DashboardSettings(user_header="X-User"))
    with pytest.raises(InvalidOption, match="not an address"):
        server.serve(MemoryStore(), dashboard=trusting("the proxy"))


async def test_the_api_takes_no_login(
    server: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    """What a browser sends by itself is worth nothing there."""
    url = server.serve(store, dashboard=trusting("127.0.0.1", role=Role.ADMIN))
    key = await Keys(store).create("ann", scopes=["admin"])
    person = Person(http, f"{url}/dashboard/")
    await person.sign_in(key.text)
    assert (await person.get("queues")).status_code == 200
    told = {"cookie": f"{LOGIN}={person.cookies[LOGIN]}", "x-forwarded-user": "root"}
    for method, where in (("GET", "/tasks"), ("POST", "/queues/mail/pause"), ("GET", "/keys")):
        assert (await http.request(method, f"{url}{where}", headers=told)).status_code == 401


async def test_who_looks_is_asked_in_one_order(
    server: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    """The program, a trusted proxy, a login, a key; with any of the first two nobody comes in unnamed."""

    async def resolve(request: Request) -> Access | None:
        name = request.headers.get("x-session")
        return None if name is None else Access(name, "operate")

    api = Api(App(store), open_to_all=True)
    url = server.serve_asgi(Site(api, trusting("127.0.0.1"), resolve=resolve))
    key = await Keys(store).create("by key", scopes=["read", "operate"])
    login = await Keys(store).create("by login", scopes=["read", "operate"])
    person = Person(http, f"{url}/dashboard/")
    assert (await person.get("queues")).status_code == 303
    assert (await person.sign_in(login.text)).status_code == 303
    person.headers = {
        "authorization": f"Bearer {key.text}",
        "x-forwarded-user": "by proxy",
        "x-session": "by program",
    }
    for who, known_by in (
        ("user by program", "x-session"),
        ("user by proxy", "x-forwarded-user"),
        (login.key.name, LOGIN),
        (key.key.name, ""),
    ):
        token = await person.token("queues/mail")
        assert (await person.post("queues/mail/pause", {}, token=token)).status_code == 303
        (line,) = (await store.records(Audit, Page(limit=1, newest_first=True))).items
        assert who in line.who
        person.headers.pop(known_by, None)
        person.cookies.pop(known_by, None)
