"""Alerts: add one, see it raised, change and remove it."""

import asyncio
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App, WorkerSettings


@pytest.fixture
def keeper(app: App, run: Run) -> Iterator[None]:
    """A keeper, which raises alerts."""

    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(app.keeper().run())

    async def stop(running: asyncio.Task[None]) -> None:
        running.cancel()
        await asyncio.wait([running])

    running = run(start())
    yield
    run(stop(running))


@pytest.mark.usefixtures("keeper")
def test_an_alert_from_its_rule_to_its_removal(app: App, tab: Tab, run: Run) -> None:
    page = tab.page
    page.get_by_role("link", name="Alerts", exact=True).click()
    expect(page.get_by_text("No alerts yet")).to_be_visible()
    page.get_by_role("button", name="New alert…").click()
    page.get_by_label("Name").fill("pay/ments")
    page.get_by_label("Number of dead letters").fill("2")
    page.get_by_label("That died within").fill("1h")
    page.get_by_label("Only of type").fill("pay")
    page.get_by_label("Webhook").fill("http://127.0.0.1:9/s3cret")
    page.get_by_role("button", name="Add alert").click()
    expect(page.get_by_text("Alert pay/ments is set")).to_be_visible()
    row = page.get_by_role("row", name="pay/ments")
    expect(row).to_contain_text("2 dead letters or more of type pay within 1 h.")
    expect(row).to_contain_text("quiet")
    tab.is_live()

    @app.task(name="pay", max_attempts=1)
    async def pay() -> None:
        raise ConnectionError("no route")

    for _ in range(2):
        run(pay.aenqueue())
    run(app.worker(WorkerSettings(drain=True)).run())
    expect(row).to_contain_text("raised")
    assert "s3cret" not in page.content()

    row.get_by_role("button", name="Change…").click()
    count = page.get_by_label("Number of dead letters").locator("visible=true")
    count.fill("3")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(row).to_contain_text("3 dead letters or more")
    (alert,) = [one.alert for one in run(app.operator.alerts.list())]
    assert (alert.count, alert.webhook) == (3, "http://127.0.0.1:9/s3cret")

    row.get_by_role("button", name="Remove…").click()
    page.get_by_label("Why").locator("visible=true").fill("obsolete")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("Alert pay/ments is removed.")).to_be_visible()
    newest, *_ = run(app.operator.audit()).items
    assert (newest.action, newest.why) == ("remove", "obsolete")
