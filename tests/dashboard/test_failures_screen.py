"""Failures: dead letters in groups, and what is done with a whole group."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App, State, WorkerSettings


@pytest.fixture
def dead(app: App, run: Run) -> None:
    """Nine mails that died in two ways, and one report."""

    @app.task(name="mail", queue="a/b", max_attempts=1)
    async def mail(n: int) -> None:
        if n < 6:
            raise ConnectionError(f"no reply from 10.0.0.{n}:25 <i>after</i> {n} s")
        raise ValueError(f"no customer {n}")

    @app.task(name="report", queue="a/b", max_attempts=1)
    async def report() -> None:
        raise KeyError("month")

    for n in range(9):
        run(mail.aenqueue(n))
    run(report.aenqueue())
    run(app.worker(WorkerSettings(queues=("a/b",), drain=True)).run())


def states(app: App, run: Run) -> list[State]:
    return [task.state for task in run(app.operator.find()).items]


@pytest.mark.usefixtures("dead")
def test_a_group_is_found_discarded_and_replayed(app: App, tab: Tab, run: Run) -> None:
    page = tab.page
    page.get_by_role("link", name="Failures", exact=True).click()
    expect(page.get_by_text("10 dead letters failed in 3 ways.")).to_be_visible()
    page.get_by_label("Error").fill("customer")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="ValueError no customer").click()
    expect(page.get_by_role("heading", name="ValueError")).to_be_visible()
    expect(page.get_by_text("Traceback")).to_be_visible()
    page.get_by_role("button", name="Discard all…").click()
    page.get_by_label("Type 3 to confirm").fill("3")
    page.get_by_label("Why").locator("visible=true").fill("no such customers")
    page.get_by_role("button", name="Discard for good").click()
    expect(page.get_by_text("3 tasks were discarded.")).to_be_visible()
    expect(page.get_by_text("No dead letter of this failure is left")).to_be_visible()

    page.get_by_role("link", name="All failures").click()
    tab.is_live()
    page.get_by_role("link", name="ConnectionError").click()
    expect(page.get_by_text("<i>after</i>").first).to_be_visible()
    page.get_by_role("button", name="Replay all…").click()
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("6 tasks were replayed.")).to_be_visible()
    assert sorted(states(app, run)) == [State.DEAD, *[State.READY] * 6]
    entries = run(app.operator.audit()).items
    assert [entry.action for entry in entries] == ["replay"] * 6 + ["discard"] * 3
    assert {entry.why for entry in entries} == {"", "no such customers"}


@pytest.mark.full
@pytest.mark.usefixtures("dead")
def test_a_group_is_discarded_only_if_its_number_is_typed(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    tab = open_tab(f"{serve()}failures?error=customer")
    tab.expected.append("422")
    page = tab.page
    page.get_by_role("link", name="ValueError no customer").click()
    page.get_by_role("button", name="Discard all…").click()
    page.get_by_label("Type 3 to confirm").evaluate("field => field.removeAttribute('pattern')")
    page.get_by_label("Type 3 to confirm").fill("4")
    page.get_by_label("Why").locator("visible=true").fill("a slip")
    page.get_by_role("button", name="Discard for good").click()
    expect(page.get_by_text("type 3 to confirm; nothing was discarded")).to_be_visible()
    assert states(app, run) == [State.DEAD] * 10
