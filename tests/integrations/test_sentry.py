"""Sentry: what a real server gets of failed attempts and of schedules."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
import sentry_sdk

from tests.integrations.sentry_sink import Sink, sentry_sink
from windlass import App, Backoff, InvalidPayload, Snooze
from windlass._model.schedule import Schedule
from windlass.integrations.sentry import attach, monitor_config, slug
from windlass.testing.harness import NewHarness

PROGRAM = """
import logging
import os

import sentry_sdk
from windlass import App, WorkerSettings
from windlass.integrations.sentry import attach

sentry_sdk.init(dsn=os.environ["SINK"], auto_enabling_integrations=False)
app = App("sqlite:///tasks.db")
attach(app)

@app.task(max_attempts=1, process=True)
def in_child(code: str) -> None:
    raise ValueError(f"wrong code {code}")

@app.task(max_attempts=1)
async def on_loop() -> None:
    logging.getLogger("shop").warning("about to fail")
    raise KeyError("order")

if __name__ == "__main__":
    in_child.using(secret=["code"]).enqueue(code=os.environ["CODE"])
    on_loop.enqueue()
    app.run_worker(WorkerSettings(drain=True))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Sink]:
    with sentry_sink() as sink:
        yield sink


@pytest.fixture
def sink(server: Sink, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    """A sink to which this process reports, without the integrations that patch the standard library."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server.bodies.clear()
    options: dict[str, Any] = {"default_integrations": False, "auto_enabling_integrations": False}
    sentry_sdk.init(dsn=server.dsn, **options)
    yield server
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def app() -> App:
    app = App("sqlite:///not-made-by-this-test.db", backoff=Backoff(base=60, jitter=0, max_attempts=2))
    attach(app, payload=True)
    return app


def test_an_error_has_its_task_and_the_breadcrumbs_of_its_attempt(
    windlass_harness: NewHarness, app: App, sink: Sink
) -> None:
    harness = windlass_harness(app)

    @app.task(name="shop.charge", queue="money", secret=["card"])
    def charge(order: int, card: str) -> None:
        local = f"card {card}"
        sentry_sdk.add_breadcrumb(message=f"charging {order} {local}")
        raise ValueError(f"declined: {card}")

    @app.task(name="fine")
    async def fine() -> None:
        sentry_sdk.add_breadcrumb(message="of another task")

    fine.enqueue()
    handle = charge.using(tenant="acme").enqueue(order=7, card="4000-1234-5678")
    harness.run_for("1h", raise_errors=False)

    first, second = sink.items("event")
    labels = {"task_id": handle.id, "task_type": "shop.charge", "queue": "money", "tenant": "acme"}
    assert first["tags"] == {**labels, "attempt": 1}
    assert second["tags"]["attempt"] == 2
    assert first["transaction"] == "shop.charge"
    assert first["contexts"]["task"]["payload"] == {"order": 7, "card": "[secret]"}
    (error,) = first["exception"]["values"]
    assert (error["type"], error["value"]) == ("ValueError", "declined: [secret]")
    assert error["mechanism"] == {"type": "windlass", "handled": False}
    assert error["stacktrace"]["frames"][-1]["vars"]["local"] == "'card [secret]'"
    for event in (first, second):
        assert [one["message"] for one in event["breadcrumbs"]["values"]] == ["charging 7 card [secret]"]
    assert not [body for body in sink.bodies if b"4000-1234" in body]


def test_secrets_are_masked_in_bytes_and_frames_of_windlass_have_no_variables(
    windlass_harness: NewHarness, app: App, sink: Sink
) -> None:
    harness = windlass_harness(app)

    @app.task(name="login", max_attempts=1)
    async def login(password: str) -> None:
        encoded = password.encode()
        raise ValueError(f"denied: {encoded!r}")

    login.enqueue(password="pässwörd9")
    harness.run_for("1h", raise_errors=False)

    (event,) = sink.items("event")
    (error,) = event["exception"]["values"]
    *own, last = error["stacktrace"]["frames"]
    assert last["vars"]["encoded"] == "b'[secret]'"
    assert own
    assert not [frame for frame in own if frame["module"].startswith("windlass.") and "vars" in frame]
    assert not [body for body in sink.bodies if b"rd9" in body]


def test_frames_of_windlass_have_no_variables_where_a_program_enqueues(app: App, sink: Sink) -> None:
    @app.task(name="pay", secret=["card"])
    async def pay(card: str, kind: Literal["visa"]) -> None: ...

    def order(enqueue: Callable[..., object], given: int) -> None:
        enqueue(card="4000-1234", kind=f"number {given}")

    for enqueue in (pay.enqueue, pay.step, pay.using(delay=9).enqueue):
        try:
            order(enqueue, 7)
        except InvalidPayload as error:
            sentry_sdk.capture_exception(error)

    events = sink.items("event")
    assert len(events) == 3
    for event in events:
        frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
        (ours,) = [frame for frame in frames if frame["function"] == "order"]
        assert ours["vars"]["given"] == "7"
        assert any(frame["module"].startswith("windlass.") for frame in frames)
        assert "4000-1234" not in str([frame.get("vars") for frame in frames])


def test_what_a_handler_sends_itself_has_its_task_and_no_secrets(
    windlass_harness: NewHarness, sink: Sink
) -> None:
    app = App("sqlite:///not-made-by-this-test.db")
    attach(app)
    harness = windlass_harness(app)

    @app.task(name="tell", secret=["code"])
    async def tell(code: str) -> None:
        sentry_sdk.capture_message(f"got {code}")

    tell.enqueue(code="sesame-1")
    harness.run_until_idle()

    (event,) = sink.items("event")
    assert "payload" not in event["contexts"]["task"]
    assert (event["message"], event["tags"]["task_type"]) == ("got [secret]", "tell")


def test_an_attached_stack_has_no_secrets(windlass_harness: NewHarness, app: App, sink: Sink) -> None:
    sentry_sdk.init(dsn=sink.dsn, default_integrations=False, attach_stacktrace=True)
    harness = windlass_harness(app)

    @app.task(name="tell", secret=["code"])
    async def tell(code: str) -> None:
        sentry_sdk.capture_message("hello")

    tell.enqueue(code="sesame-1")
    harness.run_until_idle()

    (event,) = sink.items("event")
    frames = event["threads"]["values"][0]["stacktrace"]["frames"]
    own = [frame for frame in frames if frame["module"].startswith("windlass.")]
    assert own
    assert not [frame for frame in own if "vars" in frame]
    assert (frames[-1]["function"], frames[-1]["vars"]["code"]) == ("tell", "'[secret]'")
    assert not [body for body in sink.bodies if b"sesame" in body]


def test_attempts_are_transactions_in_the_trace_of_their_enqueuer(
    windlass_harness: NewHarness, app: App, sink: Sink
) -> None:
    sentry_sdk.init(dsn=sink.dsn, default_integrations=False, traces_sample_rate=1.0)
    harness = windlass_harness(app)
    outcomes = iter([Snooze("1m"), ValueError("declined: sesame-1"), None])

    @app.task(name="charge", secret=["code"])
    async def charge(code: str) -> None:
        with sentry_sdk.start_span(op="db", name=f"SELECT {code}"):
            pass
        if (outcome := next(outcomes)) is not None:
            raise outcome

    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    handle = charge.using(trace=f"00-{trace_id}-{span_id}-01").enqueue(code="sesame-1")
    harness.run_for("1h", raise_errors=False)

    sent = sink.items("transaction")
    traces = [one["contexts"]["trace"] for one in sent]
    assert {(one["transaction"], one["transaction_info"]["source"]) for one in sent} == {("charge", "task")}
    assert {(one["trace_id"], one["parent_span_id"], one["op"]) for one in traces} == {
        (trace_id, span_id, "queue.process")
    }
    assert [one["status"] for one in traces] == ["ok", "internal_error", "ok"]
    assert [one["data"]["messaging.message.retry.count"] for one in traces] == [0, 0, 1]
    assert {one["data"]["messaging.message.id"] for one in traces} == {handle.id}
    assert [one["spans"][0]["description"] for one in sent] == ["SELECT [secret]"] * 3
    (error,) = sink.items("event")
    assert error["contexts"]["trace"]["trace_id"] == trace_id


def test_schedules_check_in(windlass_harness: NewHarness, app: App, sink: Sink) -> None:
    outcomes = iter([None, ConnectionError("no database"), Snooze("1m"), None])

    @app.task(name="nightly", schedule="0 3 * * *", max_attempts=1)
    def nightly() -> None:
        if (outcome := next(outcomes)) is not None:
            raise outcome

    @app.task(name="other")
    def other() -> None: ...

    harness = windlass_harness(app)
    other.enqueue()
    harness.run_for("3d", raise_errors=False)

    found = sink.items("check_in")
    assert [one["status"] for one in found] == [
        *("in_progress", "ok"),
        *("in_progress", "error"),
        *("in_progress", "ok"),  # snoozed
        *("in_progress", "ok"),
    ]
    assert {one["monitor_slug"] for one in found} == {"nightly"}
    assert len({one["check_in_id"] for one in found}) == 4
    assert found[0]["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 3 * * *"},
        "timezone": "UTC",
    }
    assert [event["tags"]["task_type"] for event in sink.items("event")] == ["nightly"]


def test_check_ins_can_be_left_out(windlass_harness: NewHarness, sink: Sink) -> None:
    app = App("sqlite:///not-made-by-this-test.db")
    attach(app, check_ins=False)

    @app.task(name="hourly", schedule="1h")
    def hourly() -> None: ...

    assert windlass_harness(app).run_for("1h") == 1
    assert sink.items("check_in") == []


def test_rules_that_sentry_cannot_express_have_no_monitor() -> None:
    def config(**rule: Any) -> Any:
        return monitor_config(Schedule(name="one", type="one", **rule))

    def every(**length: int) -> Any:
        found = config(every=timedelta(**length))
        return found and (found["schedule"]["value"], found["schedule"]["unit"])

    assert (every(days=2), every(hours=36), every(minutes=90)) == ((2, "day"), (36, "hour"), (90, "minute"))
    assert (every(seconds=30), every(seconds=90)) == (None, None)
    assert config(cron="@daily", zone="Europe/Berlin")["timezone"] == "Europe/Berlin"
    assert config(cron="*/10 * * * * *") is None


def test_slugs_are_those_that_sentry_accepts() -> None:
    assert slug("Shop: nightly report") == "shop-nightly-report"
    assert slug("日") == "schedule"
    assert len(slug("x" * 80)) == 50


@pytest.mark.full
@pytest.mark.system
def test_a_worker_with_the_default_integrations_reports_each_failure_once(
    tmp_path: Path, server: Sink
) -> None:
    """From a child process, too; the log of failures is not reported on top of them."""
    server.bodies.clear()
    (tmp_path / "shop.py").write_text(PROGRAM)

    done = subprocess.run(
        [sys.executable, "shop.py"],
        cwd=tmp_path,
        env={**os.environ, "SINK": server.dsn, "CODE": "sesame-1", "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    events = {event["transaction"].rpartition(".")[2]: event for event in server.items("event")}
    assert {*events} == {"in_child", "on_loop"}, done.stderr
    assert len(server.items("event")) == 2
    child = events["in_child"]["exception"]["values"]
    assert (child[-1]["type"], child[-1]["value"]) == ("ValueError", "wrong code [secret]")
    assert "in in_child" in child[0]["value"]
    assert "about to fail" in [one["message"] for one in events["on_loop"]["breadcrumbs"]["values"]]
    assert not [body for body in server.bodies if b"sesame" in body]
