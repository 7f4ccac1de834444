"""Pages of queues, limits, workers and schedules, read without a browser."""

from datetime import timedelta

import pytest

from tests.dashboard.browser import Run
from tests.dashboard.visitor import Visitor, words
from windlass import App
from windlass._dashboard import view
from windlass._dashboard.screens.queues import MAX_TYPES
from windlass._ids import new_id
from windlass._model.record import HistoryBucket, HistorySeries
from windlass._model.schedule import Schedule
from windlass._policy.history.buckets import TEN_SECONDS, bucket_name
from windlass._policy.schedule import tick_task
from windlass._policy.ticks import newest

PAGES = ("queues", "queues/mail", "queues/mail/settings", "workers", "limits", "schedules", "schedules/s")
HOSTILE = (
    "9" * 5_000,
    "-1",
    "1e309",
    "NaN",
    "%00",
    "%ff",
    "%3Cscript%3E",
    "99999d",
    "' OR 1=1 --",
    "..%2f..%2f",
)


@pytest.fixture
def names(app: App, run: Run) -> None:
    run(app.operator.set_queue("mail", stripes=2, create=True))
    run(app.operator.schedules.add("s", "t", "1h"))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("names")
def test_no_parameter_breaks_a_page(page: str, visitor: Visitor) -> None:
    for name in ("name", "order", "period", "limit", "number", "cursor", "live2"):
        for value in HOSTILE:
            assert "<script>" not in visitor.get(f"{page}?{name}={value}").partition("<main")[2]


def test_queues_are_sorted_and_searched(app: App, run: Run, visitor: Visitor) -> None:
    for queue, number in (("a.mail", 1), ("b/mail", 3), ("c", 2)):
        for _ in range(number):
            run(app.client.send("t", {}, queue=queue))
    page = visitor.text("queues?order=ready")
    assert page.index("b/mail") < page.index(" c ") < page.rindex("a.mail")
    page = visitor.text("queues?name=MAIL").partition("Workers, slots")[2]
    assert "b/mail" in page
    assert " c " not in page
    assert "No queue has such a name" in visitor.text("queues?name=%3Cscript%3E")


def test_how_many_tasks_of_a_queue_complete(app: App, run: Run, visitor: Visitor) -> None:
    ago = run(app.operator.now()) - timedelta(seconds=30)
    start = ago.replace(second=ago.second // 10 * 10, microsecond=0)
    series = (
        HistorySeries(queue="mail", type="a", completed=30, depth=7),
        HistorySeries(queue="mail", type="b", completed=20),
        HistorySeries(queue="other", type="a", completed=5),
    )
    run(app.store.put(HistoryBucket(name=bucket_name(TEN_SECONDS, start), series=series, measured=True)))
    for queue in ("mail", "other", "idle"):
        run(app.operator.set_queue(queue, stripes=2, create=True))
    page = visitor.get("queues")
    rates = {
        queue: words("<" + page.partition(f'<tr id="queue-{queue}"')[2].partition("</tr>")[0])
        for queue in ("mail", "other", "idle")
    }
    assert " 10 " in rates["mail"]
    assert " 1 " in rates["other"]
    assert "10" not in rates["idle"]
    assert "Completed and failed, a minute" in visitor.text("queues/mail?period=24h")


def test_a_page_does_not_wait_for_the_tenants_of_a_queue(
    app: App, run: Run, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(app.client.send("t", {}, queue="mail", tenant="acme"))
    with monkeypatch.context() as impatient:
        impatient.setattr(view, "SOON", 0.0)
        assert "Counting the tasks of each tenant" in visitor.text("queues/mail")
    monkeypatch.setattr(view, "SOON", 10.0)
    assert "acme 1" in visitor.text("queues/mail").partition("Tenants")[2]


def test_what_became_of_ticks(app: App, visitor: Visitor, run: Run) -> None:
    now = run(app.operator.now())
    schedule = Schedule(name="often", type="t", every=timedelta(hours=1), since=now - timedelta(hours=5))
    run(app.store.put(schedule))
    *_, before, last = newest(schedule, now - timedelta(hours=5), now, 3)
    run(app.store.enqueue([tick_task(schedule, before, new_id)]))
    page = visitor.text("schedules/often").partition("Last ticks")[2]
    assert f"{last:%H:%M:%S} UTC none" in page
    assert f"{before:%H:%M:%S} UTC ready" in page
    assert "late by" in visitor.text("schedules")


def test_a_rule_that_cannot_be_read_breaks_no_page(app: App, visitor: Visitor, run: Run) -> None:
    run(app.store.put(Schedule(name="broken", type="t", cron="@reboot", zone="Mars/Olympus")))
    assert "broken broken" in visitor.text("schedules")
    assert "This schedule does not fire" in visitor.text("schedules/broken")
    visitor.get("schedules/broken/change")


def test_a_quota_is_set_and_removed(app: App, visitor: Visitor, run: Run) -> None:
    run(app.client.send("hello", {}, tenant="acme"))
    visitor.get("limits")
    visitor.post("quotas", tenant="acme", tasks="4", bytes="", why="")
    assert "acme 4 tasks 25 % 1 task," in visitor.text("limits")
    assert "must be a whole number" in visitor.post("quotas", 422, tenant="acme", tasks="x").text
    visitor.post("quotas/acme/remove", why="done")
    assert run(app.operator.quotas.list()) == []


def test_a_disabled_endpoint_is_shown_and_enabled(app: App, visitor: Visitor, run: Run) -> None:
    assert "Disabled endpoints" not in visitor.text("limits")
    made = run(app.operator.endpoints.disable("https://example.org/T0K3N", tenant="acme", task_id=new_id()))
    page = visitor.text("limits")
    assert "Disabled endpoints" in page
    assert "https://example.org/… acme" in page
    assert "T0K3N" not in page
    visitor.post(f"endpoints/{made.name}/enable", why="it is back")
    assert run(app.operator.endpoints.list()) == []


def test_forms_ask_who_where_nothing_else_tells(app: App, visitor: Visitor, run: Run) -> None:
    run(app.operator.limits.set("n", create=True, all=True, running=1))
    visitor.get("limits/n/change")
    visitor.post("limits/n/change", who="ann", why="a test", running="2")
    entry, *_ = run(app.operator.audit()).items
    assert (entry.who, entry.why, entry.subject) == ("ann", "a test", "limit n")
    for page in ("schedules/-/add", "limits/-/add", "limits/n/change"):
        assert 'name="who"' in visitor.get(page)


def test_a_limit_of_tasks_without_a_tenant_stays_one(app: App, visitor: Visitor, run: Run) -> None:
    run(app.operator.limits.set("n", create=True, tenant="", running=1))
    visitor.get("limits/n/change")
    visitor.post("limits/n/change", queue="", type="", tenant="", by="", running="2", rate="", burst="")
    (limit,) = run(app.operator.limits.list())
    assert (limit.tenant, limit.running) == ("", 2)


def test_a_limit_on_all_tasks_must_be_asked_for(app: App, visitor: Visitor, run: Run) -> None:
    visitor.get("limits/-/add")
    assert "would apply to all tasks" in visitor.post("limits/-/add", 422, name="n", running="2").text
    visitor.post("limits/-/add", name="n", queue="mail", running="2")
    visitor.get("limits/n/change")
    assert "would apply to all tasks" in visitor.post("limits/n/change", 422, running="2").text
    (limit,) = run(app.operator.limits.list())
    assert (limit.queue, limit.running) == ("mail", 2)
    visitor.post("limits/n/change", running="3", all="yes")
    visitor.post("limits/n/change", running="4")
    (limit,) = run(app.operator.limits.list())
    assert (limit.queue, limit.running) == (None, 4)


def test_a_queue_that_nothing_names_is_not_made(app: App, visitor: Visitor, run: Run) -> None:
    run(app.client.send("hello", {}, queue="mail"))
    visitor.get("queues/mail")
    for action in ("pause", "resume", "settings"):
        visitor.post(f"queues/mial/{action}", 404)
    assert not run(app.operator.queues())


def test_the_overview_of_many_queues_shows_few_troubles(app: App, run: Run, visitor: Visitor) -> None:
    for number in range(15):
        run(app.client.send("t", {}, queue=f"customer-{number}"))
    page = visitor.text("")
    assert page.index("No keeper runs") < page.index("No worker serves queue")
    assert page.count("No worker serves queue") == 9
    assert "and 6 more" in page


def test_the_page_of_a_queue_shows_few_of_many_types(app: App, run: Run, visitor: Visitor) -> None:
    for number in range(MAX_TYPES + 2):
        run(app.client.send(f"kind.{number:03}", {}, queue="mail"))
    page = visitor.get("queues/mail")

    assert page.count('id="type-') == MAX_TYPES
    assert "and 2 more types" in page
    assert page.index("kind.000") < page.index("kind.050") < page.index("kind.099")
