"""The frame of every page: live updates, actions, the keyboard, prefixes, the first view."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App


def test_a_page_updates_by_itself(app: App, tab: Tab, run: Run) -> None:
    page = tab.page
    page.get_by_role("link", name="Queues", exact=True).click()
    expect(page.get_by_text("No queues yet")).to_be_visible()
    tab.is_live()
    run(app.client.send("hello", {}, queue="mail"))
    expect(page.get_by_role("rowheader", name="mail").get_by_role("link")).to_be_visible()


def test_an_action_asks_why_and_is_in_the_audit_log(app: App, tab: Tab, run: Run) -> None:
    run(app.client.send("hello", {}, queue="a/b"))
    page = tab.page
    page.goto(f"{page.url}queues")
    page.get_by_role("rowheader", name="a/b").get_by_role("link").click()
    page.get_by_role("button", name="Pause…").click()
    page.get_by_label("Why").fill("a test")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_text("Queue a/b is paused.")).to_be_visible()
    expect(page.get_by_role("button", name="Resume…")).to_be_visible()
    (entry,) = run(app.operator.audit()).items
    assert (entry.subject, entry.why) == ("queue a/b", "a test")


def test_it_works_below_a_prefix(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    run(app.client.send("hello", {}, queue="mail"))
    tab = open_tab(serve(at="/deep/down"))
    tab.page.get_by_role("link", name="Queues", exact=True).click()
    tab.page.get_by_role("rowheader", name="mail").get_by_role("link").click()
    expect(tab.page.get_by_role("heading", name="mail")).to_be_visible()
    tab.is_live()
    tab.page.get_by_role("link", name="Overview").click()
    expect(tab.page.get_by_role("heading", name="Overview")).to_be_visible()
