"""The heartbeat: keeps leases alive, reports progress, and stops tasks before others take them over."""

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

from tests.loops.workers import (
    assert_nothing_held,
    block,
    drained,
    eventually,
    pause,
    sessions,
    settings,
    tasks,
    watched,
    working,
)
from windlass import App, Backoff, Context, State
from windlass._model.lease import Heartbeat, HeartbeatReply, Lease, ProgressReport
from windlass._model.record import Session
from windlass._model.record import Worker as WorkerRecord
from windlass._model.task import Progress
from windlass._model.verdict import Postpone, Reason, Settlement
from windlass._store.forward import ForwardingStore
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.errors import InvalidOption
from windlass.testing.faults import Hold


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_progress_reaches_the_store_long_before_the_next_heartbeat(app: App) -> None:
    gate = asyncio.Event()

    @app.task
    async def long(*, ctx: Context) -> None:
        ctx.progress(0.1)
        ctx.progress(0.5, "half way")
        await gate.wait()

    async with working(app, heartbeat=60, lease=180):
        handle = await long.aenqueue()  # type: ignore[call-arg]

        async def is_half_way() -> bool:
            progress = await handle.progress()
            return progress is not None and (progress.fraction, progress.message) == (0.5, "half way")

        await eventually(is_half_way, within=30)
        gate.set()


@pytest.mark.parametrize("way", ["returns", "fails", "in its transaction"])
async def test_the_last_progress_is_stored_with_the_end_of_the_task(tmp_path: Path, way: str) -> None:
    app = App(f"sqlite:///{tmp_path}/windlass.db")

    @app.task(max_attempts=1)
    async def tiles(*, ctx: Context) -> None:
        for n in range(1, 11):
            ctx.progress(n / 10, f"{n} of 10")
        if way == "fails":
            raise ValueError
        if way == "in its transaction":
            async with ctx.transaction():
                pass

    handle = await tiles.aenqueue()  # type: ignore[call-arg]
    await drained(app, heartbeat=1)
    progress = await handle.progress()
    await app.close()

    assert progress is not None
    assert (progress.fraction, progress.message) == (1.0, "10 of 10")


async def test_progress_of_a_thread_reaches_the_store(app: App) -> None:
    gate = threading.Event()

    @app.task
    def long(*, ctx: Context) -> None:
        ctx.progress(1, "x" * 1000)
        gate.wait(5)

    async with working(app):
        handle = await long.aenqueue()  # type: ignore[call-arg]
        progress = await eventually(handle.progress)
        gate.set()

    assert progress.fraction == 1
    assert len(progress.message) == 500


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
async def test_progress_beyond_all_bounds_is_refused(app: App, fraction: float) -> None:
    @app.task(max_attempts=1)
    async def odd(*, ctx: Context) -> None:
        ctx.progress(fraction)

    async with working(app):
        handle = await odd.aenqueue()  # type: ignore[call-arg]
        task = await handle.wait(timeout=5)

    assert task.error is not None
    assert "a fraction from 0 to 1" in task.error.message


async def test_progress_is_fenced(app: App) -> None:
    gate = asyncio.Event()

    @app.task
    async def long() -> None:
        await gate.wait()

    async with working(app):
        handle = await long.aenqueue()
        task = await eventually(lambda: _running(app))
        await app.store.heartbeat(
            Heartbeat(
                session="stranger",
                worker=WorkerRecord(name="stranger"),
                lease_for=timedelta(seconds=1),
                opening=True,
                progress=(ProgressReport(Lease(task.id, task.fence - 1), Progress(fraction=0.9)),),
            )
        )

        assert await handle.progress() is None
        await app.store.remove(Session, "stranger")
        gate.set()


async def _running(app: App) -> "object":
    found = await tasks(app, State.RUNNING)
    return found[0] if found else None


@pytest.mark.parametrize("spin", [False, True], ids=["blocked", "computing"])
async def test_a_blocked_loop_loses_no_lease(app: App, spin: bool) -> None:
    """A bad handler keeps the loop for two leases; another worker's keeper is ready to rescue."""
    attempts: list[int] = []

    @app.task(backoff=lambda _attempt, _draw: timedelta(0))
    async def bad(*, ctx: Context) -> str:
        attempts.append(ctx.attempt)
        until = monotonic() + 1.2
        while monotonic() < until:
            if not spin:
                block(0.2)
        return "mine"

    keeper = threading.Thread(target=_keep_house, args=(app, stop := threading.Event()))
    keeper.start()
    try:
        async with working(app, lease=0.6, heartbeat=0.1):
            handle = await bad.aenqueue()  # type: ignore[call-arg]
            result = await handle.result(timeout=10)
    finally:
        stop.set()
        keeper.join()

    assert (result, attempts) == ("mine", [1])
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["returned"]


def _keep_house(app: App, stop: threading.Event) -> None:
    async def keep() -> None:
        worker = app.worker(settings(queues=("nothing",), keeper=True, lease=0.6, heartbeat=0.1, name="bob"))
        run = asyncio.create_task(worker.run())
        await eventually(stop.is_set, within=20)
        worker.stop()
        await run

    asyncio.run(keep())


async def test_a_worker_that_cannot_renew_stops_itself_before_its_lease_runs_out() -> None:
    app, watch = watched()
    stopped_at: list[float] = []
    entered = asyncio.Event()

    @app.task(backoff=Backoff(base=0))
    async def long() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped_at.append(monotonic())

    async with working(app, lease=3, heartbeat=0.3) as worker:
        handle = await long.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        entered.clear()
        watch.down.add("heartbeat")
        (session,) = await sessions(app)
        cut = monotonic()
        await eventually(lambda: stopped_at)

        assert 1.8 < stopped_at[0] - cut < 3
        watch.down.clear()
        await asyncio.wait_for(entered.wait(), 5)  # claimed and begun again
        task = await handle.task()
        assert task.attempt == 2  # It may be the task that silences its worker: it counts.
        assert task.fence == 2
        assert session.id == worker.held.session
        await handle.cancel()
        await handle.wait(timeout=5)


@pytest.mark.parametrize("cause", ["no heartbeat", "has expired"])
async def test_a_worker_that_loses_its_leases_logs_which_tasks_it_stops(
    cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, watch = watched()
    stopped = 0

    @app.task
    async def long() -> None:
        nonlocal stopped
        try:
            await asyncio.Event().wait()
        finally:
            stopped += 1

    ids = [(await long.aenqueue()).id for _ in range(12)]
    async with working(app, slots=12, lease=1, heartbeat=0.1, grace=0) as worker:
        await eventually(lambda: len(worker.held) == 12)
        if cause == "has expired":
            await app.store.remove(Session, worker.held.session)
        else:
            watch.down.add("heartbeat")
        await eventually(lambda: stopped == 12)
        watch.down.clear()

    said = [one.getMessage() for one in caplog.records if one.name == "windlass.worker"]
    [line] = [one for one in said if cause in one]
    assert f"stopping 12 tasks ({', '.join(ids[:10])} and 2 more)" in line


async def test_a_heartbeat_that_hangs_is_as_good_as_none() -> None:
    app, watch = watched()
    stopped_at: list[float] = []
    entered = asyncio.Event()

    @app.task
    async def long() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped_at.append(monotonic())

    hold = Hold()
    async with working(app, lease=3, heartbeat=0.9):
        handle = await long.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        await eventually(lambda: watch.calls["heartbeat"] >= 2)  # the next one comes late in the lease
        watch.then("heartbeat", hold)
        await asyncio.wait_for(hold.reached(), 5)
        (session,) = await sessions(app)
        await eventually(lambda: stopped_at)
        left = (session.expires_at - await app.store.now()).total_seconds()

        assert left > 0, "it stopped after its lease had run out"
        hold.let_go()
        await handle.cancel()
        await handle.wait(timeout=5)


class Deaf(ForwardingStore):
    """A store whose heartbeats, once `deaf`, ignore that they are cancelled, or are cancelled themselves."""

    def __init__(self, inner: Store, deaf: threading.Event, way: str) -> None:
        super().__init__(inner)
        self._deaf, self._way = deaf, way

    def another(self) -> "Deaf":
        return Deaf(self.inner.another(), self._deaf, self._way)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        if self._deaf.is_set() and self._way == "is cancelled":
            waited = asyncio.get_running_loop().create_future()
            waited.cancel()
            await waited
        while self._deaf.is_set():
            with suppress(asyncio.CancelledError):
                await pause(0.05)
        return await self.inner.heartbeat(beat)


@pytest.mark.parametrize("way", ["ignores its time-out", "is cancelled"])
async def test_tasks_are_stopped_in_time_whatever_a_heartbeat_does(way: str) -> None:
    app = App("memory://")
    deaf, entered, stopped_at = threading.Event(), asyncio.Event(), list[float]()
    app.use_store(Deaf(MemoryStore(), deaf, way))

    @app.task(backoff=Backoff(base=0))
    async def long() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped_at.append(monotonic())

    async with working(app, lease=3, heartbeat=0.1):
        handle = await long.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        entered.clear()
        deaf.set()
        cut = monotonic()
        await eventually(lambda: stopped_at)

        assert stopped_at[0] - cut < 3
        deaf.clear()
        await asyncio.wait_for(entered.wait(), 5)  # the worker goes on
        await handle.cancel()
        await handle.wait(timeout=5)


async def test_a_session_that_the_store_gave_up_is_replaced_and_the_work_goes_on(app: App) -> None:
    runs: list[tuple[int, int]] = []
    dropped = asyncio.Event()

    @app.task(backoff=lambda _attempt, _draw: timedelta(0))
    async def long(*, ctx: Context) -> str:
        runs.append((ctx.attempt, ctx.fence))
        if len(runs) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                dropped.set()
                return "of a session that is gone"
        return "good"

    async with working(app, keeper=True, lease=2, heartbeat=0.05) as worker:
        handle = await long.aenqueue()  # type: ignore[call-arg]
        await eventually(lambda: runs)
        ended = worker.held.session
        await app.store.remove(Session, ended)
        await asyncio.wait_for(dropped.wait(), 5)

        assert await handle.result(timeout=8) == "good"
        assert worker.held.session != ended
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["crashed", "returned"]
    assert runs == [(1, 1), (2, 3)]
    await assert_nothing_held(app)


async def test_a_new_session_is_opened_without_waiting_for_the_next_heartbeat(app: App) -> None:
    @app.task
    async def quick() -> str:
        return "good"

    async with working(app, lease=30, heartbeat=4, poll=5) as worker:
        await app.store.remove(Session, worker.held.session)
        ended = worker.held.session
        await eventually(lambda: worker.held.session != ended)
        began = monotonic()
        await eventually(lambda: worker.held.opened)
        assert await (await quick.aenqueue()).result(timeout=5) == "good"

        assert monotonic() - began < 3.8


async def test_a_lease_that_became_anothers_stops_its_run_and_drops_its_outcome(app: App) -> None:
    entered, dropped = asyncio.Event(), asyncio.Event()

    @app.task
    async def long() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            dropped.set()
        return "of a lease that is another's"

    async with working(app, heartbeat=0.2):
        handle = await long.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        settlement = Settlement(
            lease=Lease(handle.id, 1),
            verdict=Postpone(delay=timedelta(hours=1), reason=Reason.RETRY),
            outcome="taken over",
        )
        await app.store.settle([settlement])
        await asyncio.wait_for(dropped.wait(), 5)
        await pause(0.1)

        assert await handle.state() is State.SCHEDULED
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["taken over"]
    await assert_nothing_held(app)


async def test_a_worker_tells_the_store_who_it_is(app: App) -> None:
    gate = asyncio.Event()

    @app.task(queue="mail")
    async def long() -> None:
        await gate.wait()

    async with working(app, slots=3, name="alice"):
        await long.aenqueue()
        (session,) = await sessions(app)
        await eventually(lambda: _is_busy(app))
        gate.set()

    assert (session.worker.name, session.worker.queues, session.worker.slots) == ("alice", ("mail",), 3)


async def _is_busy(app: App) -> bool:
    return (await sessions(app))[0].worker.busy == 1


def test_a_heartbeat_too_slow_for_its_lease_is_refused() -> None:
    with pytest.raises(InvalidOption, match="too slow"):
        settings(heartbeat=1, lease=2.9)


async def test_a_worker_waits_for_a_store_that_is_not_there_yet() -> None:
    app, watch = watched()
    watch.down.add("heartbeat")

    @app.task
    async def quick() -> str:
        return "at last"

    handle = await quick.aenqueue()
    worker = app.worker(settings())
    run = asyncio.create_task(worker.run())
    await eventually(lambda: watch.calls["heartbeat"] >= 2)
    watch.down.clear()

    assert await handle.result(timeout=5) == "at last"
    worker.stop()
    await run
