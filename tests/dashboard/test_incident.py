"""A real incident: a type starts to fail; an operator sees it, finds out why, and repairs what is left."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.browser import Run, Tab
from tests.examples import sample
from tests.loops.workers import eventually
from windlass import App, Filter, State

ORDERS = 20
SEEN_WITHIN_MS = 10_000  # on a busy machine: an overview is kept nine times as long as it took


@pytest.fixture
def gateway(tmp_path: Path) -> Path:
    """The file that is there while the gateway works."""
    path = tmp_path / "gateway-is-up"
    path.touch()
    return path


@pytest.fixture
def worker(store_url: str, gateway: Path, tmp_path: Path) -> Iterator[None]:
    """A worker process, which runs a keeper too."""
    command = [
        sys.executable,
        "-m",
        "windlass._cli.main",
        "worker",
        "tests.dashboard.shop:app",
        "--store",
        store_url,
    ]
    log = tmp_path / "worker.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*command, "--poll", "200ms"],
            env={**os.environ, "GATEWAY_UP": str(gateway)},
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        yield
        assert process.poll() is None, log.read_text()
        process.terminate()
        process.wait(30)


class Shop:
    """What customers do, and what becomes of it."""

    def __init__(self, app: App, run: Run) -> None:
        self.app = app
        self.run = run

    def order(self, *orders: int) -> None:
        for order in orders:
            self.run(self.app.client.send("shop.charge", {"order": order}, queue="payments", max_attempts=1))

    def wait_for(self, number: int, state: State) -> None:
        async def reached() -> bool:
            counts = await self.app.operator.count(Filter(states=(state,)))
            return sum(count.number for count in counts) == number

        self.run(eventually(reached, within=30))


def edit_one(page: Page) -> None:
    """Send one order of a failure to another gateway."""
    page.get_by_role("link", name="Edit and replay").first.click()
    page.get_by_label("Payload").fill(f'{{"order": {ORDERS}, "gateway": "backup"}}')
    page.get_by_label("Why").fill("the customer waits")
    page.get_by_role("button", name="Replay with this payload").click()


def spread_the_rest(page: Page) -> None:
    """Replay all others of a failure, over three seconds."""
    page.get_by_role("button", name="Replay all…").click()
    page.get_by_label("Spread over").check()
    page.get_by_label("Minutes").fill("0.05")
    page.get_by_label("Why").locator("visible=true").fill("the gateway is back")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text(f"{ORDERS - 1} tasks were replayed, one after another")).to_be_visible()


def pause(page: Page) -> None:
    """Pause the queue of the page."""
    page.get_by_role("button", name="Pause…").click()
    page.get_by_label("Why").locator("visible=true").fill("to be sure")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("button", name="Resume…")).to_be_visible()


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("store_url", sample(["postgres"], ["sqlite"]), indirect=True)
def test_an_incident_from_the_first_failure_to_the_audit_log(
    app: App, gateway: Path, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    shop = Shop(app, run)
    shop.order(0)
    shop.wait_for(1, State.COMPLETED)
    tab = open_tab(serve())
    page = tab.page
    tab.is_live()
    dead = page.locator(".figure", has=page.get_by_text("Dead", exact=True))
    expect(dead).to_contain_text("none")
    found = page.get_by_role("link", name="shop.charge ConnectionRefusedError: gateway")

    gateway.unlink()
    shop.order(*range(1, ORDERS + 1))
    shop.wait_for(ORDERS, State.DEAD)
    expect(found).to_be_visible(timeout=SEEN_WITHIN_MS)
    expect(dead.get_by_role("link", name=f"{ORDERS}")).to_be_visible()

    found.click()
    expect(page.get_by_role("heading", name="ConnectionRefusedError")).to_be_visible()
    failure = page.url
    edit_one(page)
    shop.wait_for(2, State.COMPLETED)

    gateway.touch()
    page.goto(failure)
    spread_the_rest(page)
    replayed = run(app.operator.find(Filter(failures=(failure.rpartition("/")[2],)))).items
    assert len({task.run_at for task in replayed}) == len(replayed)
    shop.wait_for(ORDERS + 1, State.COMPLETED)

    page.goto(f"{failure.rpartition('/failures')[0]}/queues/payments")
    pause(page)
    page.get_by_role("link", name="Audit log", exact=True).click()
    row = page.get_by_role("row")
    expect(row.filter(has_text="paused queue payments")).to_contain_text("to be sure")
    expect(row.filter(has_text="the gateway is back")).to_have_count(ORDERS - 1)
    expect(row.filter(has_text="with an edited payload")).to_contain_text("the customer waits")
    expect(row).to_have_count(ORDERS + 2)
