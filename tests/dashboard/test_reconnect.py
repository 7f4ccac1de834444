"""Two windows through the death and return of their server, a real process; and the pages of a slow day."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from tests.system.fleet import Fleet
from tests.system.serving import Server
from windlass import App

pytestmark = pytest.mark.system

REFUSED = "ERR_CONNECTION_REFUSED"
CUT = "ERR_INCOMPLETE_CHUNKED_ENCODING"
TOLD = "htmx:sse:error"


@pytest.fixture
def server_process(tmp_path: Path) -> Iterator[Server]:
    fleet = Fleet(tmp_path)
    server = Server(fleet, keeper=True)
    server.start()
    yield server
    server.close()
    fleet.close()


def test_windows_go_on_after_the_server_was_killed(
    server_process: Server, tmp_path: Path, run: Run, open_tab: Callable[..., Tab]
) -> None:
    app = App(f"sqlite:///{tmp_path}/windlass.db")
    run(app.client.send("hello", {}, queue="mail"))
    first, second = open_tab(), open_tab()
    for tab, path in ((first, "queues"), (second, "queues/mail")):
        tab.expected += [REFUSED, CUT, TOLD]
        tab.page.goto(f"{server_process.url}/dashboard/{path}")
        tab.is_live()

    server_process.kill()
    for tab in (first, second):
        expect(tab.page.locator("#live-state")).to_have_attribute("data-state", "disconnected")
        expect(tab.page.get_by_role("alert")).to_contain_text("does not respond")
        assert tab.page.get_by_role("heading", level=1).is_visible()  # what was seen stays

    run(app.client.send("hello", {}, queue="reports"))
    server_process.start()
    for tab in (first, second):
        tab.is_live()
        expect(tab.page.get_by_role("alert")).to_be_hidden()
    expect(first.page.get_by_role("rowheader", name="reports").get_by_role("link")).to_be_visible()
    run(app.close())
