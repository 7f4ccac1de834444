"""A window that stays open while much changes: what it holds stays bounded."""

import asyncio
from collections.abc import Callable
from time import monotonic

import pytest
from playwright.sync_api import Page

from tests.dashboard.browser import Run, Tab
from tests.examples import FULL
from tests.loops.workers import SOON
from tests.servers.api import ApiServer
from windlass import App
from windlass._dashboard.view import DashboardSettings
from windlass._timers import wait_for_event

TASKS = 10_000 if FULL else 1_000
CHANGES_PER_SECOND = 50
SECONDS = 60 if FULL else 6


def held(page: Page) -> dict[str, float]:
    """Return how many nodes and bytes the window holds after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    found = session.send("Performance.getMetrics")["metrics"]
    session.detach()
    return {one["name"]: one["value"] for one in found if one["name"] in ("Nodes", "JSHeapUsedSize")}


@pytest.mark.full
@pytest.mark.timeout(180)
def test_nodes_and_memory_are_bounded(server: ApiServer, run: Run, open_tab: Callable[..., Tab]) -> None:
    app = App("memory://")

    @app.task(name="count")
    async def count(n: int) -> None: ...

    run(app.client.enqueue_many([count.step(n=n) for n in range(TASKS)]))
    url = server.serve_app(app, dashboard=DashboardSettings(), open_until_keys=True)
    tab = open_tab(f"{url}/dashboard/tasks")
    tab.is_live()

    async def change(seconds: float) -> None:
        never = asyncio.Event()
        for number in range(int(seconds * CHANGES_PER_SECOND)):
            await app.client.send(f"type-{number % 7}", {"n": number})
            await wait_for_event(never, 1 / CHANGES_PER_SECOND)

    run(change(SECONDS / 3))
    early = held(tab.page)
    run(change(SECONDS * 2 / 3))
    most = {"Nodes": early["Nodes"] * 1.2 + 500, "JSHeapUsedSize": early["JSHeapUsedSize"] * 1.3 + 2_000_000}
    deadline = monotonic() + SOON
    while (late := held(tab.page)) and any(late[name] > most[name] for name in most):
        assert monotonic() < deadline, (early, late)  # a collection may leave what was shown a moment ago
    run(app.close())
