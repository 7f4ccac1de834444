"""Every screen is clean by axe (WCAG 2.2 AA), light and dark, narrow and wide; all read without scripts."""

from collections.abc import Callable, Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard.browser import Run, Tab
from tests.dashboard.busy import fill
from tests.examples import sample
from tests.servers.api import ApiServer
from windlass import App, Filter
from windlass import Page as TaskPage
from windlass._dashboard.page import Screen
from windlass._dashboard.screens import ALL
from windlass._dashboard.view import DashboardSettings

AXE = (Path(__file__).parent / "vendor" / "axe.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
LOOKS = [*product(("light", "dark"), (360, 1280))]
SCREENS = [screen for some in ALL for screen in some.screens if screen.template]
QUERIES = {"/tasks/act": "?do=discard&all=1"}
# Each screen in one look; in a full run in the opposite one, too: in both themes and in both widths.
OPPOSITE = dict(zip(LOOKS, reversed(LOOKS), strict=True))
EACH_ONCE = [*zip(SCREENS, cycle(LOOKS), strict=False)]
CASES = sample(EACH_ONCE, [(screen, OPPOSITE[look]) for screen, look in EACH_ONCE])


@pytest.fixture(scope="module")
def busy(server: ApiServer, run: Run) -> Iterator[dict[str, str]]:
    """The URL of a dashboard over a busy store, and values for the parameters of paths."""
    app = App("memory://")
    run(fill(app))
    task = run(app.operator.find(Filter(types=("receipt",)), TaskPage(limit=1))).items[0]
    url = server.serve_app(app, dashboard=DashboardSettings(), open_until_keys=True)
    yield {
        "url": f"{url}/dashboard",
        "queue": "mail",
        "limit": "mail-rate",
        "id": task.id,
        "root": task.root,
        "name": "nightly/report",
        "failure": task.failure or "",
    }
    run(app.close())


def url_of(screen: Screen, busy: dict[str, str]) -> str:
    """Return the URL of a screen."""
    path = "/".join(
        busy[part[1:-1]].replace("/", "%2F") if part.startswith("{") else part
        for part in screen.path.split("/")
    )
    return busy["url"] + path + QUERIES.get(screen.path, "")


def violations(page: Page) -> list[str]:
    """Run axe; return what it complains about."""
    page.evaluate(AXE)
    found: dict[str, Any] = page.evaluate(
        "(rules) => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", RULES
    )
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {[node['html'][:150] for node in one['nodes'][:3]]}"
        for one in found["violations"]
    ]


@pytest.mark.parametrize(
    ("screen", "look"), CASES, ids=lambda one: getattr(one, "path", None) or f"{one[0]}-{one[1]}"
)
def test_axe_finds_nothing(
    busy: dict[str, str], open_tab: Callable[..., Tab], screen: Screen, look: tuple[str, int]
) -> None:
    theme, width = look
    tab = open_tab(color_scheme=theme, viewport={"width": width, "height": 800})
    response = tab.page.goto(url_of(screen, busy))
    assert response is not None
    assert response.status == 200
    if screen.live:
        tab.is_live()
    assert violations(tab.page) == []
    wide = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "the page is wider than the window"


def test_every_screen_can_be_read_without_scripts(busy: dict[str, str], chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    for screen in SCREENS:
        response = page.goto(url_of(screen, busy))
        assert response is not None
        assert response.status == 200, screen.path
        assert page.get_by_role("heading", level=1).is_visible()
        assert page.locator(".js-only:visible").count() == 0
    context.close()
