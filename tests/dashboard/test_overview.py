"""The overview and the metrics: what a person sees who asks whether we are backed up."""

from collections.abc import Callable
from datetime import timedelta

from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from tests.dashboard.test_workers import start
from windlass import App
from windlass._model.record import HistoryBucket, HistorySeries, Worker
from windlass._policy.history.buckets import TEN_SECONDS, bucket_name


def test_a_new_store_says_what_to_type(tab: Tab) -> None:
    expect(tab.page.get_by_role("heading", name="Nothing has been enqueued yet")).to_be_visible()
    expect(tab.page.get_by_text("windlass worker tasks:app")).to_be_visible()


def test_what_is_wrong_stands_first(app: App, run: Run, tab: Tab) -> None:
    tab.is_live()
    run(app.client.send("greet", {}, queue="a/b"))
    alert = tab.page.get_by_role("link", name="No worker serves queue a/b: 1 task is ready.")
    expect(alert).to_be_visible()
    run(app.operator.pause("a/b"))
    expect(tab.page.get_by_role("link", name="Queue a/b is paused: 1 ready.")).to_be_visible()
    expect(alert).to_be_hidden()
    tab.page.get_by_role("link", name="Queue a/b is paused").click()
    expect(tab.page.get_by_role("heading", name="a/b", level=1)).to_be_visible()


def test_a_type_that_no_worker_handles_is_a_trouble(app: App, run: Run, tab: Tab) -> None:
    run(app.client.send("gone", {}, queue="a/b"))
    run(start(app, Worker(name="w1", queues=("a/b",), slots=2, types=("greet",))))
    tab.page.reload()
    trouble = tab.page.get_by_role("link", name="No worker of queue a/b handles type gone: 1 task waits.")
    expect(trouble).to_be_visible()
    trouble.click()
    expect(tab.page.get_by_role("heading", name="a/b", level=1)).to_be_visible()


def test_history_is_drawn_and_can_be_narrowed(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    ago = TEN_SECONDS.floor(run(app.store.now()) - timedelta(minutes=2))
    series = (
        HistorySeries(queue="mail", type="good", completed=3, depth=7),
        HistorySeries(queue="mail", type="bad", buried=1),
    )
    run(app.store.put(HistoryBucket(name=bucket_name(TEN_SECONDS, ago), series=series, measured=True)))
    page = open_tab(f"{serve()}metrics").page
    row = page.get_by_role("row", name="good")
    expect(row).to_contain_text("3")
    expect(page.get_by_role("row", name="bad")).to_contain_text("1")
    expect(page.locator("canvas").first).to_be_visible()
    row.get_by_role("link", name="good").click()
    expect(page.get_by_role("heading", name="good", level=1)).to_be_visible()
    expect(page.get_by_role("row", name="bad")).to_be_hidden()
    page.get_by_role("link", name="24h").click()
    expect(page.get_by_text("Nothing has ended in this period")).to_be_visible()  # not rolled up yet
