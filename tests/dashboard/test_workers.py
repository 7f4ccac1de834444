"""The workers: who is alive, what they run, who is the keeper."""

from datetime import timedelta

import msgspec
from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App
from windlass._ids import new_id
from windlass._model.lease import Claim, Heartbeat
from windlass._model.record import StuckHandler, Worker


async def start(app: App, worker: Worker, lease: timedelta = timedelta(minutes=5)) -> str:
    """Open a session; returns its id."""
    session = new_id()
    await app.store.heartbeat(Heartbeat(session=session, worker=worker, lease_for=lease, opening=True))
    return session


def test_stuck_handlers_are_shown_with_their_worker_and_with_their_task(app: App, tab: Tab, run: Run) -> None:
    page, base = tab.page, tab.page.url
    held, replaced = (run(app.client.send("hello", {}, timeout=1)) for _ in range(2))
    found = StuckHandler(task_id=held.id, type="hello", attempt=1, overrun=4.0, place="shop.py:3 in hello")
    stuck = found, msgspec.structs.replace(found, task_id=replaced.id, replaced=True)
    worker = Worker(name="w1", queues=("default",), slots=2, busy=2, stuck=stuck)
    session = run(start(app, worker))
    run(app.store.claim(Claim(session=session, queues=("default",), limit=2, number=1)))

    page.get_by_role("link", name="Workers", exact=True).click()
    row = page.get_by_role("row", name="w1")
    expect(row.get_by_text("shop.py:3 in hello")).to_have_count(2)
    expect(row.get_by_text("4 s after its timeout, replaced")).to_be_visible()
    expect(page.get_by_text("Stuck handlers")).to_be_visible()
    page.goto(f"{base}tasks/{held.id}")
    expect(page.get_by_text("still runs 4 s after its timeout, on w1 at shop.py:3 in hello")).to_be_visible()
    expect(page.get_by_text("It keeps its slot until it ends.")).to_be_visible()
    page.goto(f"{base}tasks/{replaced.id}")
    expect(page.get_by_text("Its slot is used again")).to_be_visible()


def test_workers_and_what_they_run(app: App, tab: Tab, run: Run) -> None:
    page = tab.page
    page.get_by_role("link", name="Workers", exact=True).click()
    expect(page.get_by_text("windlass worker shop:app")).to_be_visible()
    tab.is_live()
    task = run(app.client.send("hello", {}, queue="eu/mail"))
    worker = Worker(
        name="w1", host="box.example", pid=42, queues=("eu/mail",), slots=2, busy=1, version="1.2"
    )
    session = run(start(app, worker))
    run(app.store.claim(Claim(session=session, queues=("eu/mail",), limit=1, number=1)))
    row = page.get_by_role("row", name="w1")
    expect(row.get_by_text("1 of 2")).to_be_visible()
    expect(row.get_by_text("box.example, pid 42")).to_be_visible()
    expect(row.get_by_role("link", name="hello")).to_have_attribute("href", f"./tasks/{task.id}")
    expect(page.get_by_text("No keeper is running")).to_be_visible()
    run(start(app, Worker(name="k1", keeper=True)))
    expect(page.get_by_text("No keeper is running")).to_be_hidden()
    expect(page.get_by_text("k1", exact=True)).to_be_visible()
    run(start(app, Worker(name="gone", queues=("eu/mail",), slots=1), timedelta(milliseconds=1)))
    expect(page.get_by_role("row", name="gone").get_by_text("expired")).to_be_visible()
    page.get_by_label("Name, host or queue").fill("W1")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("row", name="gone")).to_be_hidden()
    expect(page.get_by_role("row", name="w1")).to_be_visible()
