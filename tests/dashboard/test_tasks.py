"""The screen of tasks, as people use it."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App


def test_find_pick_and_cancel(app: App, tab: Tab, run: Run) -> None:
    for number in range(3):
        run(app.client.send("mail.welcome", {"user_id": number}, queue="mail"))
    run(app.client.send("other", {}))
    page = tab.page
    page.get_by_role("link", name="Tasks", exact=True).click()
    bar = page.get_by_label("Filter tasks")
    bar.fill("queue:mail state:redy")
    bar.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("there is no state “redy”")
    bar.fill("queue:mail")
    bar.press("Enter")
    tab.is_live()
    expect(page.get_by_role("row", name="mail.welcome")).to_have_count(3)
    expect(page.get_by_role("button", name="Cancel…")).to_be_hidden()

    bar.fill("queue:mail type:")  # What people type and pick stays while the page updates.
    for number in (0, 1):
        page.get_by_role("checkbox", name="Pick mail.welcome").nth(number).check()
    run(app.client.send("mail.welcome", {"user_id": 9}, queue="mail"))
    expect(page.get_by_role("row", name="mail.welcome")).to_have_count(4)
    expect(bar).to_have_value("queue:mail type:")
    expect(page.get_by_text("2 picked")).to_be_visible()

    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("heading", name="Cancel 2 tasks")).to_be_visible()
    page.get_by_label("Why").fill("a test")
    page.get_by_label("Type 2 to confirm").fill("2")
    page.get_by_role("button", name="Cancel 2 tasks").click()
    expect(page.get_by_text("2 tasks were cancelled.")).to_be_visible()
    expect(page.get_by_role("link", name="cancelled 2")).to_be_visible()
    assert {one.why for one in run(app.operator.audit()).items} == {"a test"}


def test_long_names_stay_in_their_columns(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    run(app.client.send("t" * 128, {"text": "x" * 3_000}, queue="q" * 128, tenant="n" * 128))
    url = serve()
    for width in (360, 800, 1280):
        tab = open_tab(f"{url}tasks", viewport={"width": width, "height": 700})
        wide = tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, width
