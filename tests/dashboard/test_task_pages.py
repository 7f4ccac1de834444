"""Pages of one task and the form that enqueues, read without a browser."""

from collections.abc import Callable
from urllib.parse import quote

from tests.dashboard.browser import Run
from tests.dashboard.visitor import Visitor, words
from windlass import App, Snooze, WorkerSettings, chain
from windlass._html.formats import NONE

HOSTILE = "<script>alert(1)</script>"


async def die(app: App, **options: object) -> str:
    """Let a task die; returns its id."""

    @app.task(name="fails", queue="bad/1", max_attempts=1, secret=["card"], **options)  # type: ignore[call-overload,misc]
    async def fails(number: int = 0, card: str = "") -> None:
        raise TimeoutError(f"{HOSTILE} after {number} s")

    made = await fails.aenqueue(number=9007199254740993, card="4111-1111")
    await app.worker(WorkerSettings(queues=("bad/1",), drain=True)).run()
    return str(made.id)


def test_a_dead_task_shows_everything_about_it_and_no_secrets(app: App, visitor: Visitor, run: Run) -> None:
    id = run(die(app))
    page = visitor.get(f"tasks/{id}")
    assert HOSTILE not in page
    assert "4111-1111" not in page
    assert "9007199254740993" in page
    assert 'href="../queues/bad%2F1"' in page
    text = visitor.text(f"tasks/{id}")
    for part in ("dead", "1 of 1", "TimeoutError", HOSTILE, "line", "fails", "Secret values are masked"):
        assert part in text


def test_an_id_that_is_not_there_says_what_cannot_be_told(visitor: Visitor) -> None:
    text = visitor.text("tasks/0199c3a2-7d10-7abc-8def-0123456789ab", 404)
    assert "never enqueued, or its record was pruned or discarded" in text
    assert "Search tasks" in text
    assert HOSTILE not in visitor.get(f"tasks/{quote(HOSTILE, safe='')}", 404)


def test_secrets_are_revealed_once_and_recorded(app: App, visitor: Visitor, run: Run) -> None:
    id = run(die(app))
    assert "4111-1111" in visitor.text(f"tasks/{id}/secrets")
    (entry,) = run(app.operator.audit()).items
    assert (str(entry.action), entry.task_id) == ("reveal", id)


def test_a_snoozed_task_has_not_waited_a_negative_time(app: App, visitor: Visitor, run: Run) -> None:
    @app.task(name="sleepy", queue="slow")
    async def sleepy() -> None:
        raise Snooze("1h")

    made = run(sleepy.aenqueue())
    run(app.worker(WorkerSettings(queues=("slow",), drain=True)).run())
    assert f"Waited {NONE}" in visitor.text(f"tasks/{made.id}")


def test_a_replay_with_another_payload_loses_nothing_when_it_fails(
    app: App, visitor: Visitor, run: Run
) -> None:
    id = run(die(app))
    page = f"tasks/{id}/edit"
    assert '"number": 9007199254740993' in visitor.text(page)
    for typed, reason in (
        ('{"number": 1', "not valid JSON"),
        ('{"number": 1, "card": "[secret]"}', "stands for a secret"),
        ('{"nonsense": 1}', "nonsense"),
        ("[]", "must be a mapping"),
    ):
        again = visitor.post(page, 422, payload=typed, why="a reason").text
        assert reason in again, words(again)
        assert typed.replace('"', "&#34;") in again
        assert "a reason" in again
    visitor.post(page, payload='{"number": 7}', why="mended")
    task = run(app.operator.task(id))
    assert (task.state, task.payload) == ("ready", b'{"number":7}')
    assert run(app.operator.audit()).items[0].why == "mended"


def test_a_replay_that_is_refused_says_why(app: App, visitor: Visitor, run: Run) -> None:
    id = run(die(app, unique=["number"]))
    run(app.client.send("fails", {"number": 9007199254740993, "card": "x"}))
    visitor.get(f"tasks/{id}")
    refused = visitor.post(f"tasks/{id}/replay", 409, why="again").text
    assert "an equal task has not ended" in refused
    assert run(app.operator.task(id)).state == "dead"


def test_a_task_is_discarded_only_with_a_reason(app: App, visitor: Visitor, run: Run) -> None:
    id = run(die(app))
    assert 'name="why" maxlength="500" autocomplete="off" required' in visitor.get(f"tasks/{id}")
    visitor.post(f"tasks/{id}/discard", 422)
    visitor.post(f"tasks/{id}/discard", why="no use")
    visitor.get(f"tasks/{id}", 404)


def test_a_task_is_enqueued_and_copied(app: App, visitor: Visitor, run: Run) -> None:
    visitor.get("enqueue")
    fields = {"type": "a/b", "queue": "q/1", "tenant": "acme", "priority": "high", "idempotency_key": "k1"}
    wrong = visitor.post("enqueue", 422, **fields, payload='{"x": 1}', delay="soon").text
    assert "Delay must be" in wrong
    assert 'value="q/1"' in wrong
    made = visitor.post("enqueue", **fields, payload='{"x": 12345678901234567}', delay="1h").headers[
        "location"
    ]
    id = made.rpartition("/")[2]
    task = run(app.operator.task(id))
    assert (task.type, task.queue, task.tenant, task.state) == ("a/b", "q/1", "acme", "scheduled")
    assert task.payload == b'{"x":12345678901234567}'
    assert visitor.post("enqueue", **fields, payload='{"x": 12345678901234567}').headers["location"] == made
    copy = visitor.get(f"enqueue?copy={id}")
    assert 'value="acme"' in copy
    assert "12345678901234567" in copy
    assert 'value="k1"' not in copy
    visitor.get("enqueue?copy=nonsense", 404)


def test_fields_cannot_smuggle_others(app: App, visitor: Visitor) -> None:
    visitor.get("enqueue")
    assert "not valid JSON" in visitor.post("enqueue", 422, type="t", payload='{}, "queue": "other"').text


def test_whoever_may_only_read_gets_no_forms(
    app: App, visit: Callable[..., Visitor], serve: Callable[..., str], run: Run
) -> None:
    id = run(die(app))
    key = run(app.operator.keys.create("reader", scopes=["read"]))
    reader = visit(serve(), authorization=f"Bearer {key.text}")
    page = reader.get(f"tasks/{id}")
    assert "<form" not in page.partition("<main")[2].partition("</main>")[0]
    assert "A key with the scope" in page
    reader.get(f"tasks/{id}/secrets", 403)
    reader.get("enqueue", 403)


def test_a_chain_is_drawn_with_links(app: App, visitor: Visitor, run: Run) -> None:
    @app.task(name="a/b")
    async def step() -> None: ...

    made = run(app.client.enqueue(chain(step.step(), step.step())))
    page = visitor.get(f"chains/{made.id}")
    assert f'<a href="../tasks/{made.id}">' in page
    assert "0 of 2 completed" in page
    assert page.count("planned</text>") == 1
    assert "0 of 2 completed" in visitor.text(f"tasks/{made.id}")
    assert "a/b …" + made.id[-8:] + " ready Completed 0 of 2" in visitor.text("chains")
    assert "There is no chain" in visitor.text("chains/0199c3a2-7d10-7abc-8def-0123456789ab", 404)
    visitor.get("chains/nonsense", 422)


def test_a_task_links_to_its_trace(
    app: App, visit: Callable[..., Visitor], serve: Callable[..., str], run: Run
) -> None:
    made = run(app.client.send("t"))
    trace = run(app.operator.task(made.id)).trace.split("-")[1]
    visitor = visit(serve(trace_url="https://traces.example.org/{trace}?x=<b>"))
    assert f'href="https://traces.example.org/{trace}?x=&lt;b&gt;"' in visitor.get(f"tasks/{made.id}")
