"""Scripts in stored texts and in URLs, in a real browser: none runs, and no page has a handler."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse

from tests.dashboard.browser import Run, Tab
from tests.examples import FULL
from tests.security.web.hostile_texts import Names, fill, hostile_texts
from tests.servers.api import ApiServer
from windlass import App
from windlass._dashboard.app import HEADERS
from windlass._dashboard.screens import ALL
from windlass._dashboard.view import DashboardSettings
from windlass._stores.memory import MemoryStore

pytestmark = [pytest.mark.more, pytest.mark.timeout(1_200)]

TEXTS = hostile_texts() if FULL else hostile_texts()[::11]
SCREENS = [screen for some in ALL for screen in some.screens if screen.template]
QUERIES = {"/tasks/act": "?do=cancel&all=1"}
NOTE = "window.hits = []; window.hit = (number) => window.hits.push(number);"
LOOK = """() => ({
  hits: window.hits,
  handlers: [...document.querySelectorAll("*")].flatMap((one) => [...one.attributes]
    .filter((a) => /^on|^hx-on/i.test(a.name)).map((a) => `${one.tagName} ${a.name}`)),
  scripts: [...document.scripts].filter((one) =>
    !one.src || new URL(one.src).origin !== location.origin).length,
  strange: document.querySelectorAll(
    "iframe, frame, object, embed, base, img, video, audio, marquee, math, xss, style, noscript, " +
    "template, [srcdoc], [style*=url], svg script, svg animate, meta[http-equiv]").length,
  links: [...document.querySelectorAll("[href], [action], [formaction], [src], [data]")].flatMap((one) =>
    ["href", "action", "formAction", "src", "data"].map((name) =>
      String(one[name]?.baseVal ?? one[name] ?? "")))
    .filter((url) => /^(javascript|vbscript|data:text)/i.test(url.trim())),
  hx: [...document.querySelectorAll("*")].filter((one) => one.id !== "live" &&
    [...one.attributes].some((a) => /^hx-(get|post|put|patch|delete|trigger|sse)/i.test(a.name)))
    .length,
})"""
CLEAN = {"hits": [], "handlers": [], "scripts": 0, "strange": 0, "links": [], "hx": 0}
USE = """async () => {
  for (const one of document.querySelectorAll("summary, button[type=button], [popovertarget]"))
    one.click();
  for (const one of document.querySelectorAll("a, input, textarea, select, [title]")) {
    one.focus();
    for (const type of ["mouseover", "mouseenter", "input"])
      one.dispatchEvent(new Event(type, { bubbles: true }));
  }
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}"""


@pytest.fixture(scope="module")
def hostile(server: ApiServer, run: Run) -> tuple[str, list[Names]]:
    store = MemoryStore()
    names = [*run(fill(store, TEXTS))]
    settings = DashboardSettings(trace_url="https://traces.example/{trace}")
    return f"{server.serve_app(App(store), dashboard=settings, open_to_all=True)}/dashboard", names


def prepared(open_tab: Callable[..., Tab]) -> Tab:
    tab = open_tab()
    tab.page.add_init_script(NOTE)
    tab.expected += ["status of 4", "net::ERR_"]
    return tab


def assert_clean(tab: Tab, url: str) -> int:
    """Show a page, use what is on it, and look whether anything of a text became more than text."""
    response = tab.page.goto(url)
    assert response is not None
    assert response.status < 500, url
    if "text/html" in response.headers.get("content-type", ""):
        tab.page.evaluate(USE)
        assert tab.page.evaluate(LOOK) == CLEAN, url
    assert tab.complaints == [], url
    return 1


def pages_of(url: str, one: Names) -> list[str]:
    """Every page on which a text can be: one for each screen and each of its tasks."""
    found = []
    for screen in SCREENS:
        is_of_task = "{id}" in screen.path or "{root}" in screen.path
        for task in (one.dead, one.done, one.running) if is_of_task else ("",):
            path = screen.path
            for name in re.findall(r"{(\w+)}", path):
                given = {"id": task, "root": task, "failure": one.failure, "key": one.key}.get(name, one.text)
                path = path.replace(f"{{{name}}}", quote(given, safe=""))
            found.append(url + path + QUERIES.get(screen.path, ""))
    return found


def test_stored_texts(hostile: tuple[str, list[Names]], open_tab: Callable[..., Tab]) -> None:
    url, names = hostile
    tab, probes = prepared(open_tab), 0
    if FULL:
        pages = [page for one in names for page in pages_of(url, one)]
    else:  # lists show all the texts; of the other pages some
        pages = [page for number, page in enumerate(pages_of(url, names[0])) if number % 4 == 1]
        pages += [
            page for number, one in enumerate(names[1:]) for page in pages_of(url, one)[number % 9 :: 9]
        ]
    for page in dict.fromkeys(pages):
        probes += assert_clean(tab, page)
    assert probes >= (1_500 if FULL else 10)


def test_texts_in_urls(hostile: tuple[str, list[Names]], open_tab: Callable[..., Tab]) -> None:
    url, _ = hostile
    tab, probes = prepared(open_tab), 0
    paths = (
        "tasks?q={0}&state={0}&cursor={0}",
        "queues/{0}",
        "{0}?{0}={0}",
        "login?next={0}",
        "failures?type={0}&error={0}",
    )
    for number, text in enumerate(TEXTS):
        for path in paths if FULL else paths[number % 4 :: 4]:
            probes += assert_clean(tab, f"{url}/{path.format(quote(text, safe=''))}")
    assert probes >= (200 if FULL else 5)


def test_what_people_type(hostile: tuple[str, list[Names]], open_tab: Callable[..., Tab]) -> None:
    """The palette and the field that completes words show what was typed, and words from the store."""
    url, _ = hostile
    tab = prepared(open_tab)
    tab.page.goto(f"{url}/tasks")
    for text in TEXTS:
        tab.page.evaluate("windlass.open('palette')")
        tab.page.locator("#palette-text").fill(text)
        tab.page.locator("[data-completed]").first.evaluate(
            "(one, text) => { one.value = text; one.dispatchEvent(new Event('input', { bubbles: true })); }",
            text,
        )
        assert tab.page.evaluate(LOOK) == CLEAN, text
    assert tab.complaints == []


def raw(headers: dict[str, str]) -> Callable[..., Any]:
    """A page that escapes nothing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        text = TEXTS[int(Request(scope).query_params["number"])]
        page = f'<!doctype html><div>{text}</div><input value="{text}"><b title={text}>x</b>'
        page += f"<i title='{text}'>x</i><textarea>{text}</textarea><a href=\"{text}\">x</a>"
        script = f"<script>var x = \"{text}\"; var y = '{text}'</script>"
        await HTMLResponse(page + script, headers=headers)(scope, receive, send)

    return app


@pytest.mark.parametrize("policy", [False, True], ids=["without a policy", "with ours"])
def test_the_texts_are_hostile(policy: bool, server: ApiServer, open_tab: Callable[..., Tab]) -> None:
    """On a page that escapes nothing they run, without our policy; and are found, with or without."""
    url, tab = server.serve_asgi(raw(HEADERS if policy else {})), open_tab()
    tab.page.add_init_script(NOTE)
    ran, found, texts = 0, 0, range(len(TEXTS))
    for number in texts:
        tab.page.goto(f"{url}/?number={number}")
        seen = tab.page.evaluate(LOOK)
        ran += bool(seen["hits"])
        found += seen != CLEAN
    assert found >= len(texts) * 0.9
    assert ran == 0 if policy else ran >= len(texts) * 0.5
    assert bool([one for one in tab.complaints if "content security policy" in one]) == policy
    tab.complaints.clear()
