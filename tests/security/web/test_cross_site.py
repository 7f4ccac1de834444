"""Pages of other sites: what a signed-in browser sends for them changes nothing, and no page can be framed.

The forms of the dashboard with tokens, right and wrong, are in tests/dashboard/test_security.py. Here are all
operations and verbs with the cookies of someone who is signed in, as forms and scripts of other sites can
send them.
"""

import re
from collections.abc import AsyncIterator, Iterator
from itertools import product
from typing import Any

import httpx2
import pytest

from tests.contents import everything_in
from tests.dashboard.person import Person
from tests.examples import FULL
from tests.http.test_auth_matrix import ASKED, NAMES, OPEN
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._dashboard.app import HEADERS
from windlass._dashboard.screens import ALL
from windlass._dashboard.view import DashboardSettings
from windlass._http.web.problems import SAFE_HEADERS
from windlass._model.queue import QueueSettings
from windlass._store.messages import REQUESTS
from windlass._stores.memory import MemoryStore

EVIL = "https://evil.example"
FORM = "application/x-www-form-urlencoded"
JSON = (
    b'{"type":"t","queue":"mail","label":"x","scopes":["admin"],"why":"x","where":{},"tasks":[{"type":"t"}]}'
)
SENDERS: dict[str, dict[str, str]] = {
    "a form": {"origin": EVIL, "content-type": FORM, "sec-fetch-site": "cross-site"},
    "a form of a neighbour": {
        "origin": "http://127.0.0.1:1",
        "content-type": "multipart/form-data; boundary=x",
        "sec-fetch-site": "same-site",
    },
    "text": {"origin": EVIL, "content-type": "text/plain", "sec-fetch-mode": "no-cors"},
    "text of a sandbox": {"origin": "null", "content-type": "text/plain;charset=UTF-8"},
    "an old browser": {"referer": f"{EVIL}/x", "content-type": "text/plain"},
    "a script": {"origin": EVIL, "content-type": "application/json", "sec-fetch-mode": "cors"},
    "no type": {"origin": EVIL},
    "a link": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    "a frame": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    "another method": {"origin": EVIL, "x-http-method-override": "DELETE", "content-type": "text/plain"},
    "ours": {"content-type": "application/json", "sec-fetch-site": "same-origin"},
}
ROUTES = [
    (one.method, re.sub(r"{\w+}", "mail", one.path), name) for name, one in NAMES.items() if name not in OPEN
]
ROUTES += [("POST", f"/store/{verb}", verb) for verb in (*REQUESTS, "wakes")]
ACTIONS = [re.sub(r"{\w+}", "mail", action.path) for some in ALL for action in some.actions]
SCREENS = [re.sub(r"{\w+}", "mail", screen.path) for some in ALL for screen in some.screens]


class Browser:
    """The browser of someone who is signed in, and what is stored."""

    def __init__(self, http: httpx2.AsyncClient, person: Person, store: MemoryStore, key: str) -> None:
        self.http, self.person, self.store, self.key = http, person, store, key
        self.root = person.url.removesuffix("/dashboard/")

    async def send(
        self, method: str, path: str, headers: dict[str, str], body: bytes = JSON
    ) -> httpx2.Response:
        """Send a request with the cookies, as a browser does whatever page asks for it."""
        cookies = "; ".join(f"{name}={value}" for name, value in self.person.cookies.items())
        content = None if method in ("GET", "HEAD") else body
        return await self.http.request(
            method, f"{self.root}{path}", headers={**headers, "cookie": cookies}, content=content
        )

    async def everything(self) -> list[str]:
        return await everything_in(self.store)


@pytest.fixture
async def browser(api: ApiServer, http: httpx2.AsyncClient) -> AsyncIterator[Browser]:
    store = MemoryStore()
    await store.open()
    await store.put(QueueSettings(name="mail"))
    key = (await Keys(store).create("ann", scopes=["admin"])).text
    person = Person(http, f"{api.serve(store, dashboard=DashboardSettings())}/dashboard/")
    assert (await person.sign_in(key)).status_code == 303
    assert (await person.get("queues")).status_code == 200
    yield Browser(http, person, store, key)
    await store.close()


def sampled(all_of_them: list[Any], step: int) -> Iterator[Any]:
    """All of them in a full run, else one in so many."""
    return iter(all_of_them if FULL else all_of_them[::step])


@pytest.mark.more
async def test_cookies_open_no_operation(browser: Browser) -> None:
    """Every operation and verb, however a page of another site lets the browser ask for it."""
    before, probes = await browser.everything(), 0
    for (method, path, name), sender in sampled([*product(ROUTES, SENDERS)], 5):
        response = await browser.send(method, path, SENDERS[sender])
        assert response.status_code == 401, (name, sender, response.text)
        assert not [one for one in response.headers if one.startswith("access-control")]
        probes += 1
    assert await browser.everything() == before
    assert probes >= (900 if FULL else 150)
    operation = ASKED["pause_queue"]
    done = await browser.http.post(
        f"{browser.root}/queues/mail/pause{operation.query}",
        headers={"authorization": f"Bearer {browser.key}"},
    )
    assert done.status_code == 200
    assert await browser.everything() != before


@pytest.mark.more
@pytest.mark.timeout(300)
async def test_no_action_without_our_own_page(browser: Browser) -> None:
    """Every action of the dashboard, signing in and out, from pages that do not know the token."""
    before, probes = await browser.everything(), 0
    forms = (
        b"why=x&name=x",
        b"why=x&token=",
        b'{"why": "x"}',
        b"token=" + b"0" * 64,
        b"why=x&key=" + browser.key.encode(),
    )
    paths = [f"/dashboard{path}" for path in (*ACTIONS, "/login", "/logout")]
    for (path, body), sender in sampled([*product([*product(paths, forms)], SENDERS)], 11):
        response = await browser.send("POST", path, SENDERS[sender], body)
        assert response.status_code in (403, 415), (path, sender, response.text)
        assert LOGIN_SET not in response.headers.get("set-cookie", "")
        probes += 1
    for (path, method), sender in sampled(
        [*product([*product(paths, ("PUT", "PATCH", "DELETE", "OPTIONS"))], SENDERS)], 37
    ):
        response = await browser.send(method, path, SENDERS[sender])
        assert response.status_code in (303, 403, 405, 415), (path, method, response.text)
        probes += 1
    assert await browser.everything() == before
    assert probes >= (2_000 if FULL else 150)
    token = await browser.person.token("queues/mail")
    assert (await browser.person.post("queues/mail/pause", {"why": "x"}, token=token)).status_code == 303
    assert await browser.everything() != before


LOGIN_SET = "__Host-windlass="


@pytest.mark.more
async def test_every_response_forbids_frames(browser: Browser) -> None:
    """Pages, redirects, refusals, files and streams, with and without a login."""
    paths = [
        "",
        "/login",
        "/login/check",
        "/logout",
        "/assets/x.js",
        "/none",
        "/%2e%2e/x",
        *SCREENS,
        *ACTIONS,
    ]
    stranger = Browser(browser.http, Person(browser.http, browser.person.url), browser.store, browser.key)
    probes = 0
    for who, path, method in sampled(
        [*product((browser, stranger), paths, ("GET", "HEAD", "POST", "PUT"))], 7
    ):
        response = await who.send(method, f"/dashboard{path}", {"accept": "text/html"}, b"")
        policy = response.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy, (method, path)
        assert "unsafe" not in policy
        assert "base-uri 'none'" in policy
        for name in HEADERS if "/assets/" not in path else ("x-content-type-options",):
            assert response.headers[name] == HEADERS[name], (method, path, name)
        probes += 1
    for path in ("/docs", "/", "/openapi.json", "/tasks", "/none", "/healthz"):
        response = await browser.send("GET", path, {"accept": "text/html" if path != "/" else "*/*"})
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"], path
        assert response.headers["x-content-type-options"] == SAFE_HEADERS["x-content-type-options"]
        probes += 1
    assert probes >= (400 if FULL else 60)
