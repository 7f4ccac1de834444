"""The schedules: their rules, their ticks, and how people change them."""

import json

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App


def test_a_schedule_is_added_run_and_removed(app: App, tab: Tab, run: Run) -> None:
    page = tab.page
    page.get_by_role("link", name="Schedules", exact=True).click()
    expect(page.get_by_text("No schedules yet")).to_be_visible()
    page.get_by_role("link", name="Add a schedule").click()
    page.get_by_label("Name").fill("books/close.now")
    page.get_by_label("Rule").fill("@reboot")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_label("Type").fill("shop.close")
    page.get_by_label("Payload").fill('{"year": 9007199254740993}')
    page.get_by_label("Queue").fill("reports")
    tab.expected.append("422")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").filter(has_text="no rule '@reboot'")).to_be_visible()
    expect(page.get_by_label("Payload")).to_have_value('{"year": 9007199254740993}')
    page.get_by_label("Rule").fill("30 3 * * 1-5")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Schedule books/close.now is added.")).to_be_visible()
    expect(page.get_by_text("30 3 * * 1-5")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="03:30:00 CE")).to_have_count(5)
    page.get_by_role("button", name="Run now…").click()
    page.get_by_role("textbox", name="Why").fill("a test")
    page.get_by_role("button", name="Run now", exact=True).click()
    expect(page.get_by_text("is enqueued.")).to_be_visible()
    (task,) = run(app.operator.find()).items
    assert (task.type, task.queue, task.payload) == (
        "shop.close",
        "reports",
        b'{"year":9007199254740993}',
    )
    page.get_by_role("button", name="Remove…").click()
    page.get_by_role("textbox", name="Why").fill("done")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("No schedules yet")).to_be_visible()
    assert [entry.why for entry in run(app.operator.audit()).items][:2] == ["done", "a test"]


@pytest.mark.full
def test_a_change_keeps_secrets(app: App, tab: Tab, run: Run) -> None:
    secret = {"card": "4111", "n": 1}
    run(app.operator.schedules.add("pay", "shop.pay", "1h", secret, secret=["card"]))
    page = tab.page
    page.goto(f"{page.url}schedules/pay/change")
    expect(page.get_by_label("Payload")).not_to_have_value("4111")
    page.get_by_label("Rule").fill("1h30m")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Schedule pay is changed.")).to_be_visible()
    expect(page.get_by_text("1h30m", exact=True)).to_be_visible()
    (status,) = run(app.operator.schedules.list())
    assert json.loads(status.schedule.payload) == secret
    page.get_by_role("link", name="Change", exact=True).click()
    page.get_by_label("Payload").fill('{"card": "[secret]", "n": 2}')
    tab.expected.append("422")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").filter(has_text="replace [secret]")).to_be_visible()
    (status,) = run(app.operator.schedules.list())
    assert json.loads(status.schedule.payload) == secret


@pytest.mark.full
def test_a_paused_schedule_says_so_and_resumes(app: App, tab: Tab, run: Run) -> None:
    run(app.operator.schedules.add("pay", "shop.pay", "1h"))
    page = tab.page
    page.goto(f"{page.url}schedules/pay")
    tab.is_live()
    run(app.operator.schedules.pause("pay"))
    expect(page.get_by_text("This schedule is paused.")).to_be_visible()
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_text("Schedule pay is resumed.")).to_be_visible()
    expect(page.get_by_role("button", name="Pause…")).to_be_visible()
