"""The queues: what waits and for whom, who serves it, and how people change that."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App
from windlass._ids import new_id
from windlass._model.lease import Heartbeat
from windlass._model.record import Worker


async def serve_queue(app: App, *queues: str, name: str = "w1", **worker: object) -> str:
    """Open a session of a worker that serves these queues; returns its id."""
    session = new_id()
    described = Worker(name=name, queues=queues, slots=4, **worker)  # type: ignore[arg-type]
    await app.store.heartbeat(
        Heartbeat(session=session, worker=described, lease_for=timedelta(minutes=5), opening=True)
    )
    return session


def test_a_queue_that_nobody_serves_is_marked(app: App, tab: Tab, run: Run) -> None:
    run(app.client.send("hello", {}, queue="eu/mail.out"))
    page = tab.page
    page.get_by_role("link", name="Queues", exact=True).click()
    row = page.get_by_role("row", name="eu/mail.out")
    expect(row.get_by_text("no worker")).to_be_visible()
    page.get_by_role("link", name="eu/mail.out").last.click()
    banner = page.get_by_text("No live worker serves this queue: its tasks do not start.")
    expect(banner).to_be_visible()
    tab.is_live()
    run(app.operator.pause("eu/mail.out"))
    expect(page.get_by_text("This queue is paused")).to_be_visible()
    expect(banner).to_be_hidden()
    run(app.operator.resume("eu/mail.out"))
    expect(banner).to_be_visible()
    run(serve_queue(app, "eu/mail.out", types=("other",)))
    expect(banner).to_be_hidden()
    expect(page.get_by_role("row", name="hello").get_by_text("no handler")).to_be_visible()
    expect(page.get_by_role("row", name="w1").get_by_text("0 of 4")).to_be_visible()


def test_settings_are_changed_by_a_form(app: App, tab: Tab, run: Run) -> None:
    run(app.client.send("hello", {}, queue="mail", tenant="acme"))
    run(app.operator.set_queue("mail", fairness="round_robin", weights={"old": 2}))
    page = tab.page
    page.goto(f"{page.url}queues/mail")
    page.get_by_role("link", name="Change settings").click()
    page.get_by_label("Weights of tenants").fill("acme=3\n")
    page.get_by_label("Ageing").fill("1h30m")
    page.get_by_label("Share of low, %").fill("10")
    page.get_by_label("Windows").fill("tomorrow")
    page.get_by_label("As set here").check()
    page.get_by_label("Keep dead").fill("30d")
    page.get_by_label("Why").fill("a test")
    tab.expected.append("422")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").filter(has_text="a window is days, hours")).to_be_visible()
    expect(page.get_by_label("Weights of tenants")).to_have_value("acme=3")
    expect(page.get_by_label("As set here")).to_be_checked()
    page.get_by_label("Windows").fill("00:00-24:00 UTC")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The settings of queue mail are changed.")).to_be_visible()
    expect(page.get_by_text("1h30m of waiting outweighs one priority")).to_be_visible()
    (settings,) = run(app.operator.queues())
    assert settings.weights == {"acme": 3}
    assert settings.ordering.ageing == timedelta(minutes=90)
    assert {str(level): share for level, share in settings.ordering.shares.items()} == {"low": 10}
    assert (settings.retention.completed, settings.retention.dead) == (None, timedelta(days=30))
    entry, *_ = run(app.operator.audit()).items
    assert (entry.subject, entry.why) == ("queue mail", "a test")


def test_who_waits_and_who_is_served(app: App, run: Run, tab: Tab) -> None:
    for tenant, number in (("a/b.c:d", 2), ("acme", 3)):
        for _ in range(number):
            run(app.client.send("hello", {}, queue="mail", tenant=tenant))
    page = tab.page
    page.goto(f"{page.url}queues")
    page.get_by_role("link", name="mail").last.click()
    tenants = page.get_by_role("table", name="Tenants of this queue")
    expect(tenants.get_by_role("row").nth(1)).to_contain_text("acme")
    expect(tenants.get_by_role("link", name="a/b.c:d")).to_be_visible()


@pytest.mark.full
def test_an_unused_queue_is_removed(app: App, tab: Tab, run: Run) -> None:
    run(app.operator.set_queue("old", stripes=2, create=True))
    page = tab.page
    page.goto(f"{page.url}queues/old")
    page.get_by_role("button", name="Remove…").click()
    page.get_by_role("textbox", name="Why").fill("not used")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("Queue old is removed.")).to_be_visible()
    expect(page.get_by_role("link", name="old", exact=True)).to_be_hidden()
    assert run(app.operator.queues()) == []


@pytest.mark.full
def test_readers_change_nothing(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    run(app.operator.set_queue("old", stripes=2, create=True))
    page = open_tab(f"{serve(read_only=True)}queues/old").page
    expect(page.get_by_role("heading", name="old")).to_be_visible()
    expect(page.get_by_role("button", name="Pause…")).to_be_hidden()
    expect(page.get_by_role("link", name="Change settings")).to_be_hidden()


_WATCH = """() => {
  window.seen = new Set();
  const note = () => window.seen.add(document.querySelector("[data-label=Ready]")?.textContent);
  note();
  const all = {subtree: true, childList: true, characterData: true};
  new MutationObserver(note).observe(document.getElementById("live"), all);
}"""


@pytest.mark.full
def test_counts_never_flicker_to_zero(app: App, tab: Tab, run: Run) -> None:
    run(app.client.send("hello", {}, queue="mail"))
    page = tab.page
    page.goto(f"{page.url}queues")
    expect(page.get_by_role("cell", name="1", exact=True)).to_be_visible()
    page.evaluate(_WATCH)
    for number in (2, 3, 4):
        run(app.client.send("hello", {}, queue="mail"))
        expect(page.get_by_role("cell", name=str(number), exact=True)).to_be_visible()
    assert page.evaluate("[...window.seen]") == ["1", "2", "3", "4"]
