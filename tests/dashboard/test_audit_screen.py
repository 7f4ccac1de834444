"""The audit log: who did what, by search and by page."""

from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App, By


def test_the_audit_log_is_searched_and_leads_to_what_was_changed(app: App, tab: Tab, run: Run) -> None:
    ann = app.operator.acting_as(By(who="ann@host", why="the provider is <b>down</b>"))
    bob = app.operator.acting_as(By(who="bob@host"))
    for number in range(60):
        run(bob.set_queue("bulk", stripes=1 + number % 2, create=True))
    run(ann.pause("a/b", create=True))
    page = tab.page
    page.get_by_role("link", name="Audit log", exact=True).click()
    expect(page.get_by_role("row")).to_have_count(51)
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("row")).to_have_count(12)
    expect(page.get_by_role("link", name="First page")).to_be_visible()

    page.get_by_label("Who").fill("ANN")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_text("the provider is <b>down</b>")).to_be_visible()
    page.get_by_role("link", name="paused queue a/b").click()
    expect(page.get_by_role("heading", name="a/b")).to_be_visible()

    page.goto(page.url.replace("queues/a%2Fb", "audit?subject=nothing"))
    expect(page.get_by_text("No entry matches")).to_be_visible()
