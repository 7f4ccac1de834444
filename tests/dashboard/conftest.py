"""A dashboard over each store, and a real browser that looks at it."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.dashboard.browser import Run, Tab
from tests.dashboard.visitor import Visitor
from tests.examples import sample
from tests.servers.api import ApiServer
from tests.servers.postgres import Postgres
from windlass import App
from windlass._dashboard.view import DashboardSettings

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Of Chromium: without the ones about networks it asks for hosts outside, which tests must not."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, one for each module: while Playwright runs, no async test can run in its thread.

    So a module has either tests with a browser or async tests.
    """
    path = which("chromium")
    assert path, "these tests need Chromium: `make servers` as root, or apt-get install chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """Run a coroutine and return its result: Playwright occupies the loop of this thread."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(params=sample(["sqlite"], ["postgres"]))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of the test's own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/windlass.db"
    postgres: Postgres = request.getfixturevalue("postgres_newest")
    return postgres.new_database(f"dashboard_{uuid4().hex}")


@pytest.fixture
def app(store_url: str, run: Run) -> Iterator[App]:
    """An app on the store."""
    app = App(store_url)
    run(app.open())
    yield app
    run(app.close())


@pytest.fixture
def serve(server: ApiServer, app: App) -> Callable[..., str]:
    """Serve the app; returns the URL of its dashboard, which ends in a slash."""

    def served(*, read_only: bool = False, trace_url: str = "", at: str = "", **options: Any) -> str:
        settings = DashboardSettings(read_only=read_only, trace_url=trace_url)
        options = {"open_until_keys": True} | options
        return f"{server.serve_app(app, at=at, dashboard=settings, **options)}/dashboard/"

    return served


@pytest.fixture
def open_tab(chromium: Browser) -> Iterator[Callable[..., Tab]]:
    """Open a browser window of its own; what goes wrong in it fails the test at its end."""
    contexts: list[BrowserContext] = []
    tabs: list[Tab] = []

    def opened(url: str = "", **options: Any) -> Tab:
        defaults = {"locale": "en-GB", "timezone_id": "UTC", "reduced_motion": "reduce"}
        context = chromium.new_context(**(defaults | options))
        contexts.append(context)
        page: Page = context.new_page()
        tab = Tab(page)
        tabs.append(tab)
        if url:
            page.goto(url)
        return tab

    yield opened
    for context in contexts:
        context.close()
    for tab in tabs:
        assert tab.complaints == []


@pytest.fixture
def tab(open_tab: Callable[..., Tab], serve: Callable[..., str]) -> Tab:
    """A window that shows the dashboard."""
    return open_tab(serve())


@pytest.fixture
def visit() -> Iterator[Callable[..., Visitor]]:
    """Look at a dashboard without a browser; takes its URL and headers."""
    visitors: list[Visitor] = []

    def visiting(url: str, **headers: str) -> Visitor:
        visitors.append(Visitor(url, **headers))
        return visitors[-1]

    yield visiting
    for one in visitors:
        one.http.close()


@pytest.fixture
def visitor(visit: Callable[..., Visitor], serve: Callable[..., str]) -> Visitor:
    """Someone who looks at the dashboard without a browser."""
    return visit(serve())
