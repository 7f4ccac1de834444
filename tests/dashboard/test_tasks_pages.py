"""Pages of tasks, read without a browser: filters, counts, pages, bulk actions, exports."""

import csv
import io
import json
import sys
from collections.abc import Callable
from urllib.parse import urlencode

import pytest

from tests.dashboard.browser import Run
from tests.dashboard.visitor import Visitor, words
from tests.servers.api import ApiServer
from windlass import App, By, Filter, WorkerSettings
from windlass._dashboard.screens.tasks import PAGE, show_tasks
from windlass._dashboard.view import DashboardSettings
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import FaultyStore, Hold, scripted

BY = By(who="ann", why="a test")


async def die(app: App, *numbers: int) -> None:
    """Let tasks die."""

    @app.task(name="fails", queue="bad", max_attempts=1)
    async def fails(number: int) -> None:
        raise TimeoutError(f"<b>timed out</b> after {number} s")

    for number in numbers:
        await fails.aenqueue(number=number)
    await app.worker(WorkerSettings(queues=("bad",), drain=True)).run()


def test_tasks_that_were_created_together_are_each_on_one_page(app: App, visitor: Visitor, run: Run) -> None:
    same = app.task(name="same")(lambda: None)
    handles = run(app.client.enqueue_many([same.step() for _ in range(120)]))
    found: list[str] = []
    path, pages = "tasks", 0
    while path:
        page = visitor.get(path)
        found += [part.partition('"')[0] for part in page.split('<tr id="task-')[1:]]
        following = page.partition('rel="next"')[0].rpartition('href="')[2] if 'rel="next"' in page else ""
        path = "tasks" + following.partition('"')[0].replace("&amp;", "&") if following else ""
        pages += 1
    assert pages == 3
    assert found == sorted((handle.id for handle in handles), reverse=True)


def test_counts_follow_the_filter(app: App, visitor: Visitor, run: Run) -> None:
    for queue in ("a/b", "a/b", "c"):
        run(app.client.send("t", {}, queue=queue))
    run(app.client.send("t", {}, queue="a/b", delay="1h"))
    visitor.shows("tasks", "scheduled 1 ready 3 running 0")
    visitor.shows("tasks?q=queue:a/b", "scheduled 1 ready 2 running 0")
    same = visitor.shows("tasks?queue=a%2Fb&state=ready", "scheduled 1 ready 2 running 0")
    assert same.count("0/8") == 2


def test_names_of_any_kind_are_found_and_linked(app: App, visitor: Visitor, run: Run) -> None:
    made = run(app.client.send("a/b.c:d@e+f", {"x": "<i>"}, queue="q/1.2", tenant="t/1"))
    page = visitor.get("tasks?type=a/b.c:d@e%2Bf&queue=q/1.2&tenant=t/1")
    assert f'href="./tasks/{made.id}"' in page
    assert "&lt;i&gt;" in page
    assert "No task matches" in visitor.text("tasks?queue=%3Cscript%3E")
    assert "there is no state “x”" in visitor.text("tasks?q=state:x")


def test_large_numbers_are_shown_as_they_are(app: App, visitor: Visitor, run: Run) -> None:
    run(app.client.send("t", {"big": 9007199254740993}))
    assert "9007199254740993" in visitor.text("tasks")


def test_a_bulk_action_is_confirmed_with_the_number(app: App, visitor: Visitor, run: Run) -> None:
    run(die(app, 1, 2, 3))
    assert "Discard 3 tasks" in visitor.text("tasks/act?do=discard&all=1&q=type:fails")
    discard = {"do": "discard", "all": "1", "q": "type:fails", "number": "3", "why": "a test"}
    visitor.post("tasks/act", 422, **discard)
    visitor.post("tasks/act", 422, **discard, typed="2")
    assert len(run(app.operator.find(Filter(types=("fails",)))).items) == 3
    visitor.post("tasks/act", **discard, typed="3")
    assert run(app.operator.find(Filter(types=("fails",)))).items == ()
    audited = run(app.operator.audit()).items
    assert {(one.action, one.why) for one in audited} == {("discard", "a test")}


def test_an_action_on_no_tasks_changes_nothing(app: App, visitor: Visitor, run: Run) -> None:
    run(app.client.send("t", {}))
    assert "Cancel 1 task" in visitor.text("tasks/act?do=cancel&all=1")
    assert "No task was picked" in visitor.text("tasks/act?do=cancel")
    visitor.post("tasks/act", 422, do="cancel", number="1", typed="1", why="x")
    visitor.post("tasks/act", 404, do="nonsense", number="1", typed="1", why="x", all="1")
    assert run(app.operator.audit()).items == ()


def test_a_whole_page_can_be_picked(app: App, visitor: Visitor, run: Run) -> None:
    ids = [run(app.client.send("t", {})).id for _ in range(PAGE)]
    page = visitor.get(f"tasks/act?do=cancel&q=type:t&{urlencode({'id': ids}, doseq=True)}")
    assert f"Cancel {PAGE} tasks" in words(page)
    assert 'href="../tasks?q=type%3At"' in page
    done = visitor.post("tasks/act", do="cancel", id=ids, number=str(PAGE), typed=str(PAGE), q="type:t")
    assert done.headers["location"].endswith("tasks?q=type%3At")
    visitor.shows("tasks?q=since:1h", f"cancelled {PAGE}")


def test_picked_tasks_are_cancelled_and_the_others_stay(app: App, visitor: Visitor, run: Run) -> None:
    first, second, _ = [run(app.client.send("t", {})).id for _ in range(3)]
    page = visitor.text(f"tasks/act?do=cancel&id={first}&id={second}&state=ready")
    assert "Cancel 2 tasks" in page
    done = visitor.post("tasks/act", do="cancel", id=[first, second], number="2", typed="2", state="ready")
    assert done.headers["location"].endswith("tasks?state=ready")
    visitor.shows("tasks?q=since:1h", "cancelled 2")


def test_exports_have_what_matches(app: App, visitor: Visitor, run: Run) -> None:
    run(die(app, 1, 2))
    run(app.client.send("t", {"formula": 1}, queue="other", idempotency_key="=1+1"))
    lines = [json.loads(line) for line in visitor.get("tasks/export?format=jsonl&state=dead").splitlines()]
    assert [line["payload"] for line in lines] == [{"number": 2}, {"number": 1}]
    rows = [*csv.DictReader(io.StringIO(visitor.get("tasks/export?format=csv&q=queue:other")))]
    assert [(row["type"], row["payload"], row["idempotency_key"]) for row in rows] == [
        ("t", '{"formula":1}', "'=1+1")
    ]
    visitor.get("tasks/export?format=xml", 422)
    visitor.get("tasks/export?format=csv&q=state:x", 422)


def test_a_page_does_not_wait_for_what_takes_long(
    run: Run, visit: Callable[..., Visitor], server: ApiServer
) -> None:
    """Counts and suggestions are left out, and shown once they were read."""
    hold = Hold()
    app = App(FaultyStore(MemoryStore(), scripted(count=[hold, hold])))
    run(app.client.send("t", {}))
    url = server.serve_app(app, dashboard=DashboardSettings(), open_until_keys=True)
    visitor = visit(f"{url}/dashboard/")
    text = visitor.text("tasks")
    assert "ready … running …" in text
    assert "0/8" in text
    hold.let_go()
    visitor.shows("tasks", "ready 1 running 0")


def test_a_search_that_takes_long_is_stopped_and_says_what_to_add(
    server: ApiServer, visit: Callable[[str], Visitor], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[show_tasks.__module__], "SEARCH_SECONDS", 0.1)
    hold = Hold()
    app = App(FaultyStore(MemoryStore(), scripted(find=[hold])))
    run(app.client.send("t", {}, tenant="acme"))
    url = server.serve_app(app, dashboard=DashboardSettings(), open_until_keys=True)
    visitor = visit(f"{url}/dashboard/")
    visitor.shows("tasks?q=tenant:acme", "The search was stopped after 100 ms")
    hold.let_go()
    visitor.shows("tasks?q=tenant:acme", "0/8")
