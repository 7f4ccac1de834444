"""OpenTelemetry: one trace from the producer to the handler, its logs and its chain."""

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.loops import traced_tasks
from tests.loops.workers import drained, eventually, sessions, watched, working
from windlass import (
    App,
    Backoff,
    Context,
    Fatal,
    InvalidOption,
    Retry,
    Snooze,
    StoreError,
    WorkerSettings,
    chain,
)
from windlass._model.record import Session
from windlass._observe.logs import JsonFormatter
from windlass._observe.tracing import attempt_span
from windlass._policy.input.trace import parse_trace
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock
from windlass.testing.faults import Fault

AT_ONCE = Backoff(base=0, jitter=0)
CANARY = "canary-7f3a-sings"
THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

Spans = InMemorySpanExporter


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """An SDK that is set up for one test; OpenTelemetry itself lets it be set up only once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=AT_ONCE)


def request() -> Any:
    """A span of the program's own, as an HTTP framework's instrumentation makes one."""
    return trace.get_tracer("test").start_as_current_span("request")


def named(spans: Spans, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def one(spans: Spans, name: str) -> ReadableSpan:
    (found,) = named(spans, name)
    return found


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def ids_in(text: str | None) -> tuple[int, int]:
    found = parse_trace(text)
    assert found is not None
    return int(found.trace_id, 16), int(found.span_id, 16)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {**(span.attributes or {})}


# -- sending -----------------------------------------------------------------------------------------


async def test_one_trace_goes_from_the_request_through_the_handler_to_the_end_of_its_chain(
    app: App, spans: Spans
) -> None:
    @app.task(name="charge", queue="shop")
    async def charge() -> None: ...

    @app.task(name="ship")
    def ship() -> None: ...

    @app.task(name="thank")
    async def thank() -> None: ...

    with request():
        handle = await app.client.enqueue(chain(charge.step(), ship.step(), thank.step()))
    await drained(app, queues=("shop", "default"))

    made, sent = one(spans, "request"), one(spans, "send charge")
    ran = [one(spans, f"process {name}") for name in ("charge", "ship", "thank")]
    assert (parent(sent), sent.kind) == (ids(made), SpanKind.PRODUCER)
    assert [parent(span) for span in ran] == [ids(sent), ids(ran[0]), ids(ran[1])]
    assert [links(span) for span in ran] == [[ids(sent)], [ids(ran[0])], [ids(ran[1])]]
    assert {span.kind for span in ran} == {SpanKind.CONSUMER}
    assert {span.status.status_code for span in (sent, *ran)} == {StatusCode.UNSET}
    assert len({ids(span)[0] for span in (made, sent, *ran)}) == 1
    assert ids_in((await handle.task()).trace) == ids(sent)


async def test_spans_say_what_the_conventions_ask_for(app: App, spans: Spans) -> None:
    @app.task(name="charge", queue="shop", priority=7, max_attempts=5)
    async def charge() -> None: ...

    with request():
        handle = await charge.using(tenant="acme").aenqueue()
    await drained(app, name="alice")

    sent, ran = one(spans, "send charge"), one(spans, "process charge")
    assert attributes(sent) == {
        "messaging.system": "windlass",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "shop",
        "messaging.message.id": handle.id,
        "windlass.task.type": "charge",
    }
    told = attributes(ran)
    assert 0 <= told.pop("windlass.task.queue_wait_ms") < 60_000
    assert told == {
        "messaging.system": "windlass",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "shop",
        "messaging.message.id": handle.id,
        "messaging.message.conversation_id": handle.id,
        "messaging.client.id": "alice",
        "windlass.task.type": "charge",
        "windlass.task.tenant": "acme",
        "windlass.task.priority": 7,
        "windlass.task.attempt": 1,
        "windlass.task.max_attempts": 5,
        "windlass.task.outcome": "returned",
    }
    scope = ran.instrumentation_scope
    assert scope is not None
    assert scope.name == "windlass"
    assert "/schemas/" in (scope.schema_url or "")


async def test_a_blocking_caller_hands_on_the_span_of_its_own_thread(app: App, spans: Spans) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    def view() -> str:
        with request():
            return note.enqueue().id

    first, second = await asyncio.gather(asyncio.to_thread(view), asyncio.to_thread(view))
    await drained(app)

    requests = {ids(span) for span in named(spans, "request")}
    assert len(requests) == 2
    assert {parent(span) for span in named(spans, "send note")} == requests
    assert {ids(span)[0] for span in named(spans, "process note")} == {trace_id for trace_id, _ in requests}
    assert {attributes(span)["messaging.message.id"] for span in named(spans, "send note")} == {first, second}


async def test_a_batch_is_sent_in_one_span_whose_context_all_its_tasks_carry(app: App, spans: Spans) -> None:
    @app.task(name="note")
    async def note(n: int) -> None: ...

    with request():
        await note.aenqueue_many({"n": n} for n in range(3))
    await drained(app)

    sent = one(spans, "send note")
    told = attributes(sent)
    assert told["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in told
    assert [parent(span) for span in named(spans, "process note")] == [ids(sent)] * 3


async def test_a_batch_of_several_types_and_queues_names_neither(app: App, spans: Spans) -> None:
    @app.task(name="one", queue="a")
    async def first() -> None: ...

    @app.task(name="two", queue="b")
    async def second() -> None: ...

    with request():
        await app.client.enqueue_many([first.step(), second.step()])

    told = attributes(one(spans, "send"))
    assert told["messaging.batch.message_count"] == 2
    assert not told.keys() & {"messaging.destination.name", "windlass.task.type"}


async def test_a_trace_of_the_callers_choice_wins(app: App, spans: Spans) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    with request():
        handle = await note.using(trace=THEIRS).aenqueue()
    await drained(app)

    assert (await handle.task()).trace == THEIRS
    assert not named(spans, "send note")
    ran = one(spans, "process note")
    assert parent(ran) == ids_in(THEIRS)
    assert ran.parent is not None
    assert ran.parent.is_remote


async def test_in_a_batch_only_what_goes_on_with_the_current_span_is_sent_in_one(
    app: App, spans: Spans
) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    with request():
        batch = [app.builder.task(note.step()), app.builder.task(note.step(), {"trace": THEIRS})]
        ours, theirs = await app.client.enqueue_tasks(batch)

    assert ids_in((await ours.task()).trace) == ids(one(spans, "send note"))
    assert (await theirs.task()).trace == THEIRS


async def test_what_nobody_traced_is_processed_in_a_trace_of_its_own(app: App, spans: Spans) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    handle = await note.aenqueue()
    await drained(app)

    made_up = parse_trace((await handle.task()).trace)
    ran = one(spans, "process note")
    assert made_up is not None
    assert made_up.is_synthetic
    assert (parent(ran), links(ran)) == (None, [])
    assert [span.name for span in spans.get_finished_spans()] == ["process note"]


async def test_a_decision_against_sampling_holds_all_the_way(app: App, spans: Spans) -> None:
    seen: list[trace.SpanContext] = []

    @app.task
    async def quiet() -> None:
        seen.append(trace.get_current_span().get_span_context())

    await quiet.using(trace=THEIRS[:-1] + "0", next=quiet.step()).aenqueue()
    await drained(app)

    assert not spans.get_finished_spans()
    assert {context.trace_id for context in seen} == {ids_in(THEIRS)[0]}
    assert [context.trace_flags.sampled for context in seen] == [False, False]


async def test_a_span_names_the_task_that_stands_not_the_one_that_was_asked_for(
    app: App, spans: Spans
) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    with request():
        handles = [await note.using(idempotency_key="k").aenqueue() for _ in range(2)]

    assert [attributes(span)["messaging.message.id"] for span in named(spans, "send note")] == [
        handles[0].id
    ] * 2


async def test_an_enqueue_that_fails_ends_its_span_with_the_errors_type(spans: Spans) -> None:
    app, watch = watched()

    @app.task(name="note")
    async def note() -> None: ...

    watch.then("enqueue", Fault.BEFORE, Fault.BEFORE)
    with request(), pytest.raises(StoreError) as failed:
        await note.aenqueue()

    sent = one(spans, "send note")
    assert sent.status.status_code is StatusCode.ERROR
    assert sent.status.description is None
    assert attributes(sent)["error.type"] == failed.type.__name__


async def test_inserting_in_the_callers_transaction_is_sending_too(spans: Spans, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'tasks.db'}")

    @app.task(name="note")
    async def note() -> None: ...

    await app.open()
    with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as mine:
        mine.execute("BEGIN IMMEDIATE")
        with request():
            handle = note.using(within=mine).enqueue()
        mine.execute("COMMIT")

    task = await asyncio.to_thread(handle.task)
    assert ids_in(task.trace) == ids(one(spans, "send note"))
    await app.close()


# -- processing --------------------------------------------------------------------------------------


async def test_a_retry_begins_a_trace_that_is_linked_to_the_request(app: App, spans: Spans) -> None:
    @app.task(name="flaky")
    async def flaky(*, ctx: Context) -> None:
        if not ctx.is_last_attempt:
            raise Retry("busy", after=0)

    with request():
        await flaky.using(max_attempts=2).aenqueue()  # type: ignore[call-arg]
    await drained(app)

    sent, (first, second) = one(spans, "send flaky"), named(spans, "process flaky")
    assert (parent(first), parent(second)) == (ids(sent), None)
    assert links(first) == links(second) == [ids(sent)]
    assert ids(second)[0] != ids(sent)[0]
    assert [attributes(span)["windlass.task.attempt"] for span in (first, second)] == [1, 2]


async def test_a_scheduled_task_and_the_last_of_a_group_are_linked(spans: Spans) -> None:
    clock = ManualClock()
    app = App(MemoryStore(clock=clock))

    @app.task(name="later")
    async def later() -> None: ...

    @app.task(name="gather")
    async def gather() -> None: ...

    with request():
        await later.using(delay="1h").aenqueue()
        await app.client.enqueue_group([later.step(), later.step()], gather.step())
    clock.advance(timedelta(hours=2))
    await app.store.promote(10)
    await drained(app)

    waited = [span for span in named(spans, "process later") if span.parent is None]
    assert [links(span) for span in waited] == [[ids(one(spans, "send later"))]]
    assert len(named(spans, "process later")) == 3
    last = one(spans, "process gather")
    assert (parent(last), links(last)) == (None, [ids(one(spans, "send"))])


@pytest.mark.parametrize(
    ("relation", "children"), [("auto", [True, False]), ("parent", [True, True]), ("link", [False, False])]
)
async def test_how_attempts_belong_to_the_trace_can_be_chosen(
    app: App, spans: Spans, relation: str, children: list[bool]
) -> None:
    @app.task(name="flaky", max_attempts=2)
    async def flaky() -> None:
        raise ValueError("again")

    with request():
        await flaky.aenqueue()
    await drained(app, tracing=relation)

    sent, ran = one(spans, "send flaky"), named(spans, "process flaky")
    assert [parent(span) == ids(sent) for span in ran] == children
    assert [links(span) for span in ran] == [[ids(sent)]] * 2


def test_a_relation_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidOption, match="tracing must be one of auto, parent, link, not 'none'"):
        WorkerSettings(tracing="none")


async def test_a_failure_is_told_by_its_type_and_never_by_its_message(app: App, spans: Spans) -> None:
    @app.task(name="fail", max_attempts=1, secret=("card",))
    async def fail(card: str) -> None:
        raise ValueError(f"declined: {card}")

    with request():
        await fail.aenqueue(card=CANARY)
    await drained(app)

    ran = one(spans, "process fail")
    assert ran.status.status_code is StatusCode.ERROR
    assert (ran.status.description, list(ran.events)) == (None, [])
    assert attributes(ran)["error.type"] == "ValueError"
    assert attributes(ran)["windlass.task.outcome"] == "failed"
    assert all(CANARY not in span.to_json() for span in spans.get_finished_spans())


@pytest.mark.parametrize(
    ("raised", "outcome", "error"),
    [
        (Snooze(60), "snoozed", None),
        (Fatal("hopeless"), "failed", "windlass.signals.Fatal"),
        (None, "timedout", "TimedOut"),
    ],
)
async def test_every_outcome_is_told(
    app: App, spans: Spans, raised: Exception | None, outcome: str, error: str | None
) -> None:
    @app.task(name="end", timeout=0.05, max_attempts=1)
    async def end() -> None:
        if raised is not None:
            raise raised
        await asyncio.Event().wait()

    await end.aenqueue()
    await drained(app)

    ran = one(spans, "process end")
    assert attributes(ran)["windlass.task.outcome"] == outcome
    assert attributes(ran).get("error.type") == error
    assert (ran.status.status_code is StatusCode.ERROR) == (error is not None)


async def test_an_attempt_whose_lease_was_lost_says_so(app: App, spans: Spans) -> None:
    begun = asyncio.Event()

    @app.task(name="lose")
    async def lose(*, ctx: Context) -> None:
        begun.set()
        if ctx.fence == 1:
            await asyncio.Event().wait()

    await lose.aenqueue()  # type: ignore[call-arg]
    async with working(app):
        await begun.wait()
        (held,) = await sessions(app)
        await app.store.remove(Session, held.id)
        await eventually(lambda: named(spans, "process lose"))

    assert attributes(named(spans, "process lose")[0])["windlass.task.outcome"] == "lost"


@pytest.mark.parametrize("name", ["in_loop", "in_thread", "in_child", "in_childs_loop"])
async def test_the_span_is_current_wherever_a_handler_runs(spans: Spans, name: str) -> None:
    app, task_type = traced_tasks.app, getattr(traced_tasks, name)
    before = app.use_store(MemoryStore())
    with request():
        handle = await task_type.aenqueue()
    await drained(app)
    found = await handle.result(timeout=1)
    app.use_store(before)

    trace_id, span_id = ids(one(spans, f"process {task_type.name}"))
    here = f"{trace_id:032x}-{span_id:016x}"
    assert found == {"current": here, "parent": f"{span_id:016x}", "origin": here}


@pytest.mark.parametrize("blocking", [False, True])
async def test_what_a_handler_enqueues_goes_on_with_its_span(app: App, spans: Spans, blocking: bool) -> None:
    @app.task(name="inner")
    async def inner() -> None: ...

    if blocking:

        @app.task(name="outer")
        def outer() -> None:
            inner.enqueue()
    else:

        @app.task(name="outer")
        async def outer() -> None:  # type: ignore[misc]
            await inner.aenqueue()

    with request():
        await outer.aenqueue()  # type: ignore[unused-awaitable]
    await drained(app)

    assert parent(one(spans, "send inner")) == ids(one(spans, "process outer"))
    assert parent(one(spans, "process inner")) == ids(one(spans, "send inner"))


async def test_a_worker_that_was_started_in_a_span_does_not_put_its_tasks_there(
    app: App, spans: Spans
) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    await note.aenqueue()
    with request():
        await drained(app)

    assert (parent(one(spans, "process note")), links(one(spans, "process note"))) == (None, [])


async def test_sending_and_attempts_leave_the_current_span_as_it_was(app: App, spans: Spans) -> None:
    @app.task
    async def note() -> None: ...

    with request() as mine:
        handle = await note.aenqueue()
        assert trace.get_current_span() is mine
        attempt = attempt_span(await handle.task(), "auto")
        assert attempt is not None
        assert trace.get_current_span() is not mine
        attempt.end(None)
        assert trace.get_current_span() is mine


@pytest.mark.parametrize("blocking", [False, True])
async def test_completing_in_a_transaction_hands_the_span_on_as_well(
    spans: Spans, tmp_path: Path, blocking: bool
) -> None:
    app = App(f"sqlite:///{tmp_path / 'tasks.db'}")

    @app.task(name="after")
    async def after() -> None: ...

    if blocking:

        @app.task(name="pay")
        def pay(*, ctx: Context) -> None:
            with ctx.transaction():
                pass
    else:

        @app.task(name="pay")
        async def pay(*, ctx: Context) -> None:  # type: ignore[misc]
            async with ctx.transaction():
                pass

    with request():
        await pay.using(next=after.step()).aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert parent(one(spans, "process after")) == ids(one(spans, "process pay"))
    await app.close()


async def test_an_sdk_that_is_set_up_later_is_noticed(app: App, request: pytest.FixtureRequest) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    async with working(app):
        first = await note.aenqueue()
        await first.result(timeout=5)
        spans: Spans = request.getfixturevalue("spans")
        assert not spans.get_finished_spans()
        second = await note.aenqueue()
        await second.result(timeout=5)

    assert attributes(one(spans, "process note"))["messaging.message.id"] == second.id


class Broken(SpanProcessor):
    """A processor of the program's own, with a bug."""

    def __init__(self, when: str) -> None:
        self._when = when

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self._when == "start" and span.name != "request":
            raise RuntimeError("a bug")

    def on_end(self, span: Any) -> None:
        if self._when == "end" and span.name != "request":
            raise RuntimeError("a bug")


@pytest.mark.parametrize("when", ["start", "end"])
async def test_tracing_that_fails_fails_no_task(
    app: App, spans: Spans, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    @app.task(name="note")
    async def note() -> str:
        return "noted"

    provider: Any = trace.get_tracer_provider()
    provider.add_span_processor(Broken(when))
    with request():
        handle = await note.aenqueue()
    await drained(app)

    assert await handle.result(timeout=1) == "noted"
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["returned"]
    assert sum(record.name == "windlass.tracing" for record in caplog.records) == 2


# -- without -----------------------------------------------------------------------------------------


async def test_without_an_sdk_a_trace_is_carried_on_all_the_same(app: App) -> None:
    carried: list[str | None] = []

    @app.task
    async def inner(*, ctx: Context) -> None:
        carried.append(ctx.task.trace)

    @app.task
    def outer() -> None:
        inner.enqueue()  # type: ignore[call-arg]

    await outer.using(trace=THEIRS, next=inner.step()).aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert carried == [THEIRS, THEIRS]
    assert app.builder.origin().trace != THEIRS


async def test_without_an_sdk_a_context_that_came_from_elsewhere_is_carried_on(app: App) -> None:
    """OpenTelemetry's API alone can take a context in and hand it on; so can we."""

    @app.task
    async def note() -> None: ...

    trace_id, span_id = ids_in(THEIRS)
    remote = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(remote)):
        handle = await note.aenqueue()

    assert (await handle.task()).trace == THEIRS


def test_a_program_without_opentelemetry_never_loads_it() -> None:
    program = """
        import sys
        from windlass import App
        from windlass.testing.harness import harness

        app = App("memory://")

        @app.task
        def note() -> None: ...

        with harness(app) as tests:
            note.using(next=note.step()).enqueue()
            assert tests.run_until_idle() == 2

        print([name for name in sys.modules if name.startswith("opentelemetry")])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert done.stdout == "[]\n"


# -- logs --------------------------------------------------------------------------------------------


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What is logged, as lines of JSON, made in the thread that logs."""
    found: list[dict[str, Any]] = []

    class Handler(logging.StreamHandler[Any]):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(self.format(record)))

    handler = Handler()
    handler.setFormatter(JsonFormatter())
    loggers = [logging.getLogger("shop"), logging.getLogger("windlass")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield found
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def about(lines: list[dict[str, Any]], message: str) -> dict[str, Any]:
    (found,) = [line for line in lines if line["message"] == message]
    return found


async def test_what_a_handler_logs_says_in_which_task_and_span(
    app: App, spans: Spans, lines: list[dict[str, Any]]
) -> None:
    @app.task(name="shop.loop")
    async def in_loop(*, ctx: Context) -> None:
        logging.getLogger("shop").info("in the loop")
        ctx.logger.info("by the context")
        with trace.get_tracer("test").start_as_current_span("inner"):
            logging.getLogger("shop").info("in a span of its own")

    @app.task(name="shop.thread")
    def in_thread() -> None:
        logging.getLogger("shop").info("in a thread", extra={"task_id": "mine", "otelTraceID": "theirs"})

    with request():
        first, _ = await in_loop.aenqueue(), await in_thread.aenqueue()  # type: ignore[call-arg]
    await drained(app)
    logging.getLogger("shop").info("outside")

    in_span = [
        ("in the loop", "process shop.loop"),
        ("by the context", "process shop.loop"),
        ("in a span of its own", "inner"),
        ("in a thread", "process shop.thread"),
        (f"shop.loop {first.id} enqueued", "send shop.loop"),
    ]
    for message, name in in_span:
        trace_id, span_id = ids(one(spans, name))
        line = about(lines, message)
        assert (line["trace_id"], line["span_id"]) == (f"{trace_id:032x}", f"{span_id:016x}"), message
    assert {about(lines, message)["task_id"] for message, name in in_span[:3]} == {first.id}
    mine = about(lines, "in a thread")
    assert (mine["task_id"], mine["otelTraceID"]) == ("mine", "theirs")
    assert not about(lines, "outside").keys() & {"task_id", "trace_id", "span_id"}


async def test_without_an_sdk_logs_tell_the_task_and_its_trace(app: App, lines: list[dict[str, Any]]) -> None:
    @app.task(name="note")
    async def note() -> None:
        logging.getLogger("shop").info("noted")

    theirs = await note.using(trace=THEIRS).aenqueue()
    await drained(app)
    given = about(lines, "noted")
    lines.clear()
    nobodys = await note.aenqueue()
    await drained(app)
    made_up = about(lines, "noted")

    assert given["task_id"] == theirs.id
    assert (given["trace_id"], given["span_id"]) == (THEIRS[3:35], THEIRS[36:52])
    assert made_up["task_id"] == nobodys.id
    assert len(made_up["trace_id"]) == 32
    assert "span_id" not in made_up
