"""Limits and quotas: what is in use, and how people set them."""

from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from tests.dashboard.test_workers import start
from windlass import App
from windlass._model.lease import Claim
from windlass._model.record import Worker


def test_a_limit_is_set_watched_changed_and_removed(app: App, tab: Tab, run: Run) -> None:
    page = tab.page
    page.get_by_role("link", name="Limits", exact=True).click()
    expect(page.get_by_text("No limits")).to_be_visible()
    page.get_by_role("link", name="Add a limit").click()
    page.get_by_label("Name").fill("per/tenant")
    page.get_by_role("textbox", name="Queue").fill("mail")
    page.get_by_label("Counted for each").fill("tenant")
    tab.expected.append("422")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").filter(has_text="needs running, rate or both")).to_be_visible()
    page.get_by_label("Running at once").fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Limit per/tenant is added.")).to_be_visible()
    expect(page.get_by_text("2 running, for each tenant")).to_be_visible()
    tab.is_live()
    run(app.client.send("hello", {}, queue="mail", tenant="acme"))
    session = run(start(app, Worker(name="w1", queues=("mail",), slots=2)))
    run(app.store.claim(Claim(session=session, queues=("mail",), limit=2, number=1)))
    row = page.get_by_role("row", name="acme")
    expect(row.get_by_text("1 of 2")).to_be_visible()
    expect(row.get_by_text("50 %")).to_be_visible()
    page.get_by_role("link", name="Change", exact=True).click()
    page.get_by_label("Rate of starts").fill("150/h")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("2 running and 150 starts an hour")).to_be_visible()
    page.get_by_role("button", name="Remove…").click()
    page.get_by_role("textbox", name="Why").fill("done")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("Limit per/tenant is removed.")).to_be_visible()
    assert run(app.operator.limits.list()) == []
