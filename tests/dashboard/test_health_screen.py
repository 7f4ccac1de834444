"""Health: what a check finds, as a page."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App, Retention


def test_findings_the_keeper_and_what_is_kept(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    run(app.client.send("hello", {}, queue="mail"))
    run(app.operator.set_queue("mail", retention=Retention(completed=None)))
    page = open_tab(serve()).page
    page.get_by_role("link", name="Health", exact=True).click()
    expect(page.get_by_text("No errors; ")).to_be_visible()
    finding = page.get_by_role(
        "row", name="workers no live worker serves queue mail (1 task due, of type hello)"
    )
    expect(finding).to_contain_text("warning")
    expect(page.get_by_text(app.operator.promise.durability, exact=True)).to_be_visible()
    expect(page.get_by_text("MiB").first).to_be_visible()
    expect(page.get_by_text("none runs")).to_be_visible()
    expect(page.get_by_role("row", name="queue mail for ever 7 d 14 d")).to_be_visible()
