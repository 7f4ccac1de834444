"""Metrics: exact counts of what a worker did, and cheap scrapes."""

import asyncio
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.loops.workers import dead_worker, drained, eventually, watched, working
from windlass import App, Backoff, Context, Fatal, Filter, Retry, Snooze, chain
from windlass._model.filter import By
from windlass._model.lease import Heartbeat
from windlass._model.record import StuckHandler, Worker
from windlass._observe import cached_reads
from windlass._observe.labels import MAX_LABEL_PAIRS, MAX_LABEL_VALUES, LabelValues
from windlass._observe.metrics import Meter, Metrics
from windlass._observe.observed_store import ObservedStore
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task
from windlass.testing.faults import Fault

AT_ONCE = Backoff(base=0, jitter=0)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
TASK = {"queue": "mail", "type": "eventful"}


@pytest.fixture
def app() -> App:
    app = App("memory://", backoff=AT_ONCE)
    app.metrics()
    return app


async def scraped(app: App, accept: str = "") -> dict[str, float]:
    """Every sample, as `name{label=value,…}`."""
    body, _ = await app.metrics().exposition(accept)
    read = read_openmetrics if accept else read_text
    found = {}
    for family in read(body.decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def of(samples: dict[str, float], name: str, **labels: str) -> float:
    listed = ",".join(f"{key}={value}" for key, value in sorted({**TASK, **labels}.items()))
    return samples[f"windlass_{name}{{{listed}}}"]


async def test_every_step_of_a_life_is_counted_once(app: App) -> None:
    @app.task(name="eventful", queue="mail", max_attempts=2)
    async def eventful(*, ctx: Context) -> None:
        if ctx.fence == 1:
            raise Snooze(0)
        if ctx.fence == 2:
            raise Retry("busy", after=0)
        raise ValueError("the end")

    await eventful.aenqueue()  # type: ignore[call-arg]
    await drained(app)
    samples = await scraped(app)

    assert of(samples, "tasks_enqueued_total") == 1
    assert of(samples, "tasks_started_total") == 3
    assert of(samples, "tasks_postponed_total", reason="snooze") == 1
    assert of(samples, "tasks_postponed_total", reason="retry") == 1
    assert of(samples, "tasks_postponed_total", reason="release") == 0
    assert of(samples, "tasks_ended_total", state="dead") == 1
    assert of(samples, "tasks_ended_total", state="completed") == 0
    assert of(samples, "task_wait_seconds_count") == 3
    assert of(samples, "task_run_seconds_count") == 3
    assert of(samples, "tasks", state="dead") == 1
    assert of(samples, "tasks", state="ready") == 0


async def test_what_people_do_is_counted(app: App) -> None:
    @app.task(name="eventful", queue="mail")
    async def eventful() -> None:
        raise Fatal("no")

    by = By(who="ann", why="because")
    handle = await eventful.aenqueue()
    await drained(app)
    await app.operator.replay_one(handle.id, by=by)
    await handle.cancel()
    await app.operator.replay_one(handle.id, by=by)
    await drained(app)
    await app.operator.discard_one(handle.id, by=by)
    samples = await scraped(app)

    assert of(samples, "tasks_replayed_total") == 2
    assert of(samples, "tasks_ended_total", state="cancelled") == 1
    assert of(samples, "tasks_ended_total", state="dead") == 2
    assert of(samples, "tasks_discarded_total") == 1


async def test_the_steps_of_a_chain_count_as_enqueued(app: App) -> None:
    @app.task(name="eventful", queue="mail")
    async def eventful(n: int) -> int:
        return n

    await app.client.enqueue(chain(eventful.step(1), eventful.step(2)))
    await drained(app)
    samples = await scraped(app)

    assert of(samples, "tasks_enqueued_total") == 2
    assert of(samples, "tasks_ended_total", state="completed") == 2


async def test_a_rescue_counts_and_is_no_run(app: App) -> None:
    @app.task(name="eventful", queue="mail", max_attempts=1)
    async def eventful() -> None: ...

    await eventful.aenqueue()
    await dead_worker(app, queue="mail")
    async with working(app, keeper=True, queues=("nothing",)):
        await eventually(lambda: _is_dead(app))
    samples = await scraped(app)

    assert of(samples, "tasks_rescued_total") == 1
    assert of(samples, "tasks_ended_total", state="dead") == 1
    assert of(samples, "task_run_seconds_count") == 0


async def test_timers_counts_from_when_a_task_is_due() -> None:
    clock = ManualClock()
    app = App(MemoryStore(clock=clock), backoff=AT_ONCE)
    app.metrics()

    @app.task(name="eventful", queue="mail")
    async def eventful(*, ctx: Context) -> None:
        if ctx.attempt == 1:
            clock.advance(1)  # what it ran for is no waiting
            raise Retry("again", after=0)

    await eventful.using(delay="1h").aenqueue()  # type: ignore[call-arg]
    clock.advance(timedelta(hours=1, seconds=3))
    await app.store.promote(10)
    await drained(app)
    samples = await scraped(app)

    assert of(samples, "task_wait_seconds_count") == 2
    assert of(samples, "task_wait_seconds_sum") == 3.0
    assert of(samples, "task_wait_seconds_bucket", le="2.5") == 1
    assert of(samples, "task_wait_seconds_bucket", le="5.0") == 2


async def test_timers_for_predecessors_is_no_waiting_for_workers() -> None:
    clock = ManualClock()
    app = App(MemoryStore(clock=clock))
    app.metrics()

    @app.task(name="eventful", queue="mail")
    async def eventful() -> None:
        clock.advance(1)

    first = await eventful.aenqueue()
    await app.store.enqueue([a_task(**TASK, payload=b"{}", after=(first.id,))])
    await drained(app)
    samples = await scraped(app)

    assert of(samples, "tasks_started_total") == 2
    assert of(samples, "task_wait_seconds_count") == 1
    assert of(samples, "task_wait_seconds_sum") == 0


async def test_the_gauges_of_a_worker_at_work(app: App) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()
    app.limit("mail", queue="mail", running=2)

    @app.task(name="eventful", queue="mail", schedule="0 0 1 1 *")
    async def eventful() -> None:
        entered.set()
        await gate.wait()

    await app.operator.pause("idle", create=True)
    async with working(app, slots=4, keeper=True) as worker:
        app.metrics().meter.slots(4, lambda: len(worker.held))
        await eventful.aenqueue()
        await entered.wait()
        await eventually(lambda: _keeps(app))
        await eventually(lambda: _is_busy(app))
        samples = await scraped(app)
        gate.set()

    assert samples["windlass_store_up"] == 1
    assert samples["windlass_workers"] == 1
    assert samples["windlass_worker_slots{state=busy}"] == samples["windlass_slots{state=busy}"] == 1
    assert samples["windlass_worker_slots{state=free}"] == samples["windlass_slots{state=free}"] == 3
    assert samples["windlass_queue_workers{queue=mail}"] == 1
    assert samples["windlass_queue_workers{queue=idle}"] == 0
    assert samples["windlass_queue_paused{queue=idle}"] == 1
    assert samples["windlass_queue_paused{queue=mail}"] == 0
    assert samples["windlass_oldest_ready_seconds{queue=mail}"] == 0
    assert samples["windlass_keeper_alive"] == 1
    assert samples["windlass_limit_used_ratio{limit=mail}"] == 0.5
    assert samples["windlass_schedule_lag_seconds{schedule=eventful}"] == 0
    assert of(samples, "tasks", state="running") == 1


async def test_stuck_handlers_are_counted_by_type(app: App) -> None:
    def stuck(task_id: str, type_name: str) -> StuckHandler:
        return StuckHandler(task_id=task_id, type=type_name, attempt=1, overrun=2.0)

    for name, handlers in (("a", (stuck("1", "report"), stuck("2", "mail"))), ("b", (stuck("3", "report"),))):
        worker = Worker(name=name, stuck=handlers)
        beat = Heartbeat(session=name, worker=worker, lease_for=timedelta(minutes=1), opening=True)
        await app.store.heartbeat(beat)
    await app.client.send("resize", {})

    samples = await scraped(app)

    found = {
        name: samples[f"windlass_handlers_stuck{{type={name}}}"] for name in ("report", "mail", "resize")
    }
    assert found == {"report": 2, "mail": 1, "resize": 0}


async def test_the_store_is_timed_and_its_failures_counted() -> None:
    app, watch = watched()
    app.metrics()

    @app.task
    async def note() -> None: ...

    watch.then("enqueue", Fault.BEFORE)  # the client tries again
    for _ in range(3):
        await note.aenqueue()
    await drained(app, slots=1)
    samples = await scraped(app)

    assert samples["windlass_store_seconds_count{verb=enqueue}"] == 4
    assert samples["windlass_store_errors_total{code=store-unavailable,verb=enqueue}"] == 1
    assert samples["windlass_store_errors_total{code=store-unavailable,verb=settle}"] == 0
    assert samples["windlass_settle_batch_size_sum"] == 3
    assert samples["windlass_store_seconds_count{verb=heartbeat}"] >= 1  # of another handle


async def test_a_refusal_is_no_failure(app: App) -> None:
    @app.task(unique=True)
    async def note() -> None: ...

    await note.aenqueue()
    with pytest.raises(Exception, match="has not finished yet"):
        await note.aenqueue()

    samples = await scraped(app)
    assert samples["windlass_store_errors_total{code=store-unavailable,verb=enqueue}"] == 0
    assert not [name for name in samples if "duplicate" in name]


async def test_without_a_store_the_rest_is_told() -> None:
    app, watch = watched()
    app.metrics()
    await app.open()
    watch.down.add("count")

    samples = await scraped(app)

    assert samples["windlass_store_up"] == 0
    assert "windlass_workers" not in samples
    assert samples["windlass_store_errors_total{code=store-unavailable,verb=count}"] == 1


async def test_fifty_scrapers_make_one_look() -> None:
    app, watch = watched()
    app.metrics()
    await app.open()

    answers = await asyncio.gather(*(app.metrics().exposition() for _ in range(50)))
    later = await app.metrics().exposition(OPENMETRICS)

    assert watch.calls["count"] == 1
    assert all(b"windlass_workers 0.0" in body for body, _ in [*answers, later])


class Slow:
    """A collector that takes a second of its clock; keeps in which threads it was called."""

    def __init__(self) -> None:
        self.now = 0.0
        self.threads: list[int] = []

    def collect(self) -> list[Metric]:
        self.threads.append(threading.get_ident())
        self.now += 1
        return []


async def test_scrapes_share_an_exposition_and_none_is_made_in_the_event_loop() -> None:
    slow = Slow()
    metrics = Metrics(ObservedStore(MemoryStore()), clock=lambda: slow.now)
    metrics.meter.registry.register(slow)

    texts = {body for body, _ in await asyncio.gather(*(metrics.exposition() for _ in range(100)))}
    slow.now += 8  # of the nine seconds that follow one in which it was made
    texts.add((await metrics.exposition())[0])
    assert (len(texts), len(slow.threads)) == (1, 1)

    metrics.meter.rate_limited("tasks")
    slow.now += 1
    body, _ = await metrics.exposition()
    assert b'windlass_rate_limited_total{rate="tasks"} 1.0' in body
    assert threading.get_ident() not in slow.threads


def test_scrapes_of_a_worker_share_an_exposition() -> None:
    slow = Slow()
    metrics = Metrics(ObservedStore(MemoryStore()), clock=lambda: slow.now)
    metrics.meter.registry.register(slow)

    with ThreadPoolExecutor(8) as threads:
        texts = {body for body, _ in threads.map(metrics.own, [""] * 50)}
    assert (len(texts), len(slow.threads)) == (1, 1)

    metrics.meter.rate_limited("tasks")
    slow.now += 9
    assert b'windlass_rate_limited_total{rate="tasks"} 1.0' in metrics.own("")[0]
    assert metrics.own(OPENMETRICS)[0].endswith(b"# EOF\n")


async def test_gauges_are_collected_once_for_each_reading() -> None:
    metrics = Metrics(ObservedStore(MemoryStore()), clock=lambda: 0.0)
    await metrics.exposition()
    overview = await metrics.overviews.get()
    gauges = [*overview.documents.values()]

    await metrics.exposition(OPENMETRICS)

    assert gauges
    assert [*overview.documents.values()] == gauges


async def test_openmetrics_for_those_who_accept_it(app: App) -> None:
    for accept, kind in (
        ("", TEXT),
        ("text/html, */*", TEXT),
        (f"{OPENMETRICS},text/plain;q=0.5", f"{OPENMETRICS}; charset=utf-8"),
        (
            "application/openmetrics-text;version=x\n",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ):
        assert (await app.metrics().exposition(accept))[1] == kind
    assert (await scraped(app, OPENMETRICS))["windlass_store_up"] == 1
    assert not [name for name in await scraped(app) if "_created" in name]


def test_names_beyond_the_cap_share_one() -> None:
    names = LabelValues(2)

    assert [names(name) for name in ("a", "b", "c", "a", "d", "")] == [
        "a",
        "b",
        "other",
        "a",
        "other",
        "other",
    ]
    assert LabelValues()("") == "unknown"


async def test_types_and_queues_without_end_make_no_series_without_end(app: App) -> None:
    @app.task(name="eventful")
    async def eventful() -> None: ...

    for number in range(MAX_LABEL_VALUES + 20):
        await eventful.using(queue=f"q{number:03}").aenqueue()
    samples = await scraped(app)
    queues = {name for name in samples if name.startswith("windlass_tasks_enqueued_total")}

    assert len(queues) == MAX_LABEL_VALUES + 1
    assert samples["windlass_tasks_enqueued_total{queue=other,type=eventful}"] == 20
    assert samples["windlass_tasks{queue=other,state=ready,type=eventful}"] == 20
    assert len(app.metrics().meter._series) == MAX_LABEL_VALUES + 1


async def test_pairs_without_end_make_no_series_without_end() -> None:
    number = 40
    assert number**2 > MAX_LABEL_PAIRS
    store = MemoryStore()
    older, newer = (ObservedStore(store) for _ in range(2))
    metrics = Metrics(older)
    tasks = [a_task(queue=f"q{n:02}", type=f"t{m:02}") for n in range(number) for m in range(number)]
    for start in range(0, len(tasks), 200):
        await older.enqueue(tasks[start : start + 200])

    body, _ = await metrics.exposition()
    samples: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for family in read_text(body.decode()):
        for one in family.samples:
            if one.labels.get("state", "ready") == "ready" and {*one.labels} >= {"queue", "type"}:
                samples[one.name][one.labels["queue"], one.labels["type"]] = one.value

    for name in ("windlass_tasks_enqueued_total", "windlass_tasks", "windlass_tasks_unhandled"):
        assert MAX_LABEL_PAIRS <= len(samples[name]) <= MAX_LABEL_PAIRS + number
        for queue in {task.queue for task in tasks}:  # the sum of each is right
            values = [value for (its, _), value in samples[name].items() if its == queue]
            assert sum(values) == (0 if name == "windlass_tasks_unhandled" else number)
    assert (await Metrics(newer).exposition())[0].count(b"windlass_tasks{") == body.count(b"windlass_tasks{")


async def test_processes_that_met_queues_in_another_order_export_the_same_gauges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached_reads, "_SHARE", 1)  # else what took long is kept for nine times as long
    store = MemoryStore()
    number = MAX_LABEL_VALUES // 2 + 50
    late, early = ([a_task(queue=f"{x}{n:03}", type=f"{x}{n:03}") for n in range(number)] for x in "ba")
    older, newer = (Metrics(ObservedStore(store), max_age=timedelta()) for _ in range(2))
    await store.enqueue(late)
    await older.exposition()
    await store.enqueue(early)

    exported = []
    for metrics in (older, newer):
        lines = (await metrics.exposition())[0].decode().splitlines()
        exported.append({line for line in lines if 'state="ready"' in line})

    assert exported[0] == exported[1]
    assert len(exported[0]) == MAX_LABEL_VALUES + 1
    assert f'windlass_tasks{{queue="other",state="ready",type="other"}} {2 * number - 200}.0' in exported[0]


async def test_a_store_that_is_exchanged_is_timed_as_well(app: App) -> None:
    other = MemoryStore()
    before = app.use_store(other)

    assert isinstance(before, MemoryStore)
    await app.open()
    assert app.use_store(before) is other
    samples = await scraped(app)
    assert samples["windlass_store_seconds_count{verb=records}"] >= 1


async def test_there_is_one_set_of_metrics_an_app(app: App) -> None:
    assert app.metrics() is app.metrics()


def test_without_the_library_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from windlass import App, InvalidOption\n"
        "try: App('memory://').metrics()\n"
        "except InvalidOption as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "metrics need an extra: pip install 'windlass[metrics]'\n"


def test_nothing_is_loaded_that_nobody_wants() -> None:
    program = "import sys, windlass; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_a_meter_may_be_told_from_many_threads() -> None:
    meter = Meter()

    async def told() -> None:
        await asyncio.gather(*(asyncio.to_thread(meter.took, "find", 0.1) for _ in range(100)))

    asyncio.run(told())
    assert meter.registry.get_sample_value("windlass_store_seconds_count", {"verb": "find"}) == 100


async def _is_dead(app: App) -> bool:
    (count,) = await app.store.count(Filter(states=("dead",)), ())  # type: ignore[arg-type]
    return count.number == 1


async def _keeps(app: App) -> bool:
    return any(session.worker.keeper for session in await app.operator.workers())


async def _is_busy(app: App) -> Any:
    return [one for one in await app.operator.workers() if one.worker.busy]
