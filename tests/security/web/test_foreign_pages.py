"""Real pages of other origins in the browser of someone who is signed in: they send forms, fetch, and frame.

One has another port of the same host, so that the browser sends all cookies with its requests; the other one
has another host.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from starlette.responses import HTMLResponse

from tests.contents import everything_in
from tests.dashboard.browser import Run, Tab
from tests.examples import FULL, sample
from tests.http.test_auth_matrix import NAMES
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._dashboard.screens import ALL
from windlass._dashboard.view import DashboardSettings
from windlass._model.queue import QueueSettings
from windlass._stores.memory import MemoryStore

pytestmark = [pytest.mark.more, pytest.mark.timeout(300)]

KINDS_OF_FORM = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
ACTIONS = [re.sub(r"{\w+}", "mail", action.path) for some in ALL for action in some.actions]
SCREENS = [re.sub(r"{\w+}", "mail", screen.path) for some in ALL for screen in some.screens]
ROUTES = [re.sub(r"{\w+}", "mail", one.path) for one in NAMES.values() if one.method == "POST"]
ATTACK = """async ([targets, kinds]) => {
  let sent = 0;
  const frame = document.createElement("iframe");
  frame.name = "into";
  document.body.append(frame);
  for (const url of targets) {
    for (const kind of kinds) {
      const form = document.createElement("form");
      Object.assign(form, { method: "post", action: url, enctype: kind, target: "into" });
      form.innerHTML = `<input name="why" value="x"><input name="token" value="">
        <input name='{"type":"t","a' value='":1}'>`;
      document.body.append(form);
      const done = new Promise((ready) => frame.addEventListener("load", ready, { once: true }));
      form.submit();
      await done;
      sent += 1;
    }
    for (const type of ["text/plain", "application/json"]) {
      for (const mode of ["no-cors", "cors"]) {
        const body = new Blob(['{"type":"t"}'], { type });
        await fetch(url, { method: "POST", mode, credentials: "include", body }).catch(() => null);
        sent += 1;
      }
    }
    navigator.sendBeacon(url, "why=x");
    sent += 1;
  }
  return sent;
}"""
READ = """async (urls) => {
  const seen = [];
  for (const url of urls) {
    for (const mode of ["cors", "no-cors"]) {
      const text = await fetch(url, { mode, credentials: "include" }).then((one) => one.text(), () => "");
      if (text) seen.push(url);
    }
  }
  return seen;
}"""
FRAME = """async (urls) => {
  for (const url of urls) {
    for (const tag of ["iframe", "object", "embed"]) {
      const frame = document.createElement(tag);
      frame[tag === "object" ? "data" : "src"] = url;
      const events = ["load", "error"];
      const done = new Promise((ready) => events.forEach((one) => frame.addEventListener(one, ready)));
      document.body.append(frame);
      await Promise.race([done, new Promise((ready) => setTimeout(ready, 500))]);
    }
  }
}"""


async def foreign(scope: Any, receive: Any, send: Any) -> None:
    await HTMLResponse("<!doctype html><title>foreign</title><body>")(scope, receive, send)


async def filled(store: MemoryStore) -> str:
    await store.open()
    await store.put(QueueSettings(name="mail"))
    return (await Keys(store).create("ann", scopes=["admin"])).text


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.mark.parametrize("host", sample(["127.0.0.1"], ["localhost"]))
def test_a_page_of_another_origin(
    host: str, server: ApiServer, elsewhere: ApiServer, run: Run, open_tab: Callable[..., Tab]
) -> None:
    store = MemoryStore()
    key = run(filled(store))
    url = server.serve_app(App(store), dashboard=DashboardSettings())
    tab = open_tab(f"{url}/dashboard/login")
    tab.expected += ["status of", "CORS policy", "net::ERR_", "frame-ancestors", "Refused to", "Framing"]
    tab.page.locator("input[name=key]").fill(key)
    tab.page.locator("main button").first.click()
    expect(tab.page.get_by_role("link", name="Queues")).to_be_visible()
    before = run(everything_in(store))

    evil = tab.page.context.new_page()
    evil.goto(elsewhere.serve_asgi(foreign).replace("127.0.0.1", host) + "/")
    step = 1 if FULL else 9
    targets = [f"{url}/dashboard{path}" for path in (*ACTIONS, "/login", "/logout")] + [
        f"{url}{path}" for path in ROUTES
    ]
    sent = evil.evaluate(ATTACK, [targets[::step], list(KINDS_OF_FORM)])
    assert sent >= (400 if FULL else 40)
    assert run(everything_in(store)) == before

    pages = [f"{url}/dashboard{path}" for path in SCREENS] + [
        f"{url}{path}" for path in ("/docs", "/tasks", "/keys")
    ]
    assert evil.evaluate(READ, pages[::step]) == []
    evil.evaluate(FRAME, pages[::step])
    shown = [one.url for one in evil.frames if urlsplit(one.url).netloc == urlsplit(url).netloc]
    assert len(evil.frames) > len(pages[::step])
    assert shown == [], json.dumps(shown)

    # The same browser, on a page of the dashboard itself: still signed in, and it may.
    tab.page.goto(f"{url}/dashboard/queues/mail")
    tab.page.get_by_role("button", name="Pause…").click()
    tab.page.get_by_role("button", name="Pause", exact=True).click()
    expect(tab.page.locator("body")).to_contain_text("paused")
    assert run(everything_in(store)) != before
