"""The keeper: promotes on time, rescues only expired sessions, prunes, and is replaced when it goes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.loops.workers import (
    Watch,
    assert_nothing_held,
    dead_worker,
    drained,
    eventually,
    pause,
    sessions,
    tasks,
    watched,
    working,
)
from windlass import App, Backoff, Context, Retention, State
from windlass._keeper import chores as chores_module
from windlass._keeper import due_tasks as due_tasks_module
from windlass._keeper import keeper as keeper_module
from windlass._keeper import prune as prune_module
from windlass._keeper.chores import Chore, Chores
from windlass._keeper.due_tasks import cancel_expired
from windlass._keeper.keeper import Keeper
from windlass._model.alert import Alert
from windlass._model.task import Error
from windlass._store.outage import Outage
from windlass._stores.memory import MemoryStore
from windlass.errors import StoreUnavailable
from windlass.testing.clock import START, ManualClock
from windlass.testing.conformance.steps import a_task, bury, settle_now, worker_on
from windlass.testing.faults import Fault, FaultyStore, Hold

AT_ONCE = Backoff(base=0, jitter=0)


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=AT_ONCE)


def keeper_of(app: App, *, lease: float = 1.0) -> Keeper:
    return app.keeper(lease=timedelta(seconds=lease), name="test")


@asynccontextmanager
async def keeping(app: App, keeper: Keeper | None = None) -> AsyncIterator[Keeper]:
    """A keeper at work, for an app that a worker or server has published."""
    await app.publish()
    keeper = keeper or keeper_of(app)
    run = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


async def test_a_scheduled_task_runs_when_it_is_due_and_not_before(app: App) -> None:
    @app.task
    async def note() -> None: ...

    async with working(app, keeper=True, poll=30):
        handles = [await note.using(delay=delay).aenqueue() for delay in (0.1, 0.25, 0.4)]
        ended = [await handle.wait(timeout=25) for handle in handles]

    late = [(task.claimed_at - task.run_at).total_seconds() for task in ended if task.claimed_at]
    assert all(0 <= seconds < 20 for seconds in late), late  # without waiting for the poll


async def test_a_task_scheduled_after_the_keeper_looked_is_not_late(app: App) -> None:
    @app.task
    async def note() -> None: ...

    await note.using(delay=3600).aenqueue()
    async with working(app, keeper=True, poll=30):
        await pause(0.3)
        handle = await note.using(delay=0.15).aenqueue()
        task = await handle.wait(timeout=5)

    assert task.claimed_at is not None
    assert 0 <= (task.claimed_at - task.run_at).total_seconds() < 2


async def test_a_task_scheduled_while_the_keeper_looks_is_not_late() -> None:
    app, watch = watched()

    @app.task
    async def note() -> None: ...

    hold = Hold()
    async with working(app, keeper=True, poll=30):
        watch.then("rescue", hold)  # it has not promoted yet
        await asyncio.wait_for(hold.reached(), 10)
        handle = await note.using(delay=0.05).aenqueue()
        hold.let_go()
        task = await handle.wait(timeout=5)

    assert task.claimed_at is not None
    assert (task.claimed_at - task.run_at).total_seconds() < 2


async def test_the_tasks_of_a_silent_worker_are_rescued_after_their_lease_and_not_before() -> None:
    clock = ManualClock()
    app = App(MemoryStore(clock=clock), backoff=AT_ONCE)

    @app.task
    async def note() -> None: ...

    handle = await note.aenqueue()
    (claimed,) = await dead_worker(app, lease=30)
    async with keeping(app):
        clock.advance(29.9)
        await pause(0.5)
        assert (await handle.task()).fence == claimed.task.fence
        clock.advance(0.2)
        task = await eventually(lambda: _in_state(app, State.READY))

    assert (task.attempt, task.error.type) == (1, "WorkerLost")
    assert "worker ghost sent no heartbeat" in task.error.message
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["crashed"]


async def test_a_task_that_kills_every_worker_dies_in_the_end(app: App) -> None:
    @app.task(max_attempts=3)
    async def poison() -> None: ...

    handle = await poison.aenqueue()
    async with keeping(app):
        for _ in range(3):
            await eventually(lambda: _in_state(app, State.READY))
            await dead_worker(app)
        task = await handle.wait(timeout=5)

    assert (task.state, task.attempt) == (State.DEAD, 3)
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["crashed"] * 3


async def test_a_rescued_task_that_was_to_be_cancelled_is_cancelled(app: App) -> None:
    @app.task
    async def note() -> None: ...

    handle = await note.aenqueue()
    await dead_worker(app)
    await handle.cancel()
    async with keeping(app):
        task = await handle.wait(timeout=5)

    assert task.state is State.CANCELLED
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["stopped"]


@pytest.mark.parametrize("when", list(Fault))
@pytest.mark.parametrize("verb", ["settle", "rescue"])
async def test_a_keeper_that_fails_in_the_middle_of_a_rescue_leaves_nothing_in_limbo(
    verb: str, when: Fault
) -> None:
    app, watch = watched()

    @app.task(max_attempts=5)
    async def note() -> None: ...

    await note.aenqueue_many([{} for _ in range(5)])
    await dead_worker(app, limit=5)
    watch.then(verb, when)
    async with keeping(app):
        await eventually(lambda: _all_in(app, 5, State.READY))

    assert {task.attempt for task in await tasks(app)} == {1}
    assert await sessions(app) == []


async def test_a_keeper_stopped_in_the_middle_of_a_rescue_leaves_nothing_in_limbo() -> None:
    app, watch = watched()

    @app.task
    async def note() -> None: ...

    handle = await note.aenqueue()
    await dead_worker(app)
    hold = Hold()
    watch.then("settle", hold)
    async with keeping(app):
        await asyncio.wait_for(hold.reached(), 5)
    hold.let_go()
    assert await sessions(app) == []

    async with keeping(app):
        await eventually(lambda: _in_state(app, State.READY))
    assert (await handle.task()).attempt == 1
    await assert_nothing_held(app)


async def test_a_backoff_that_raises_stops_no_keeper(app: App) -> None:
    def broken(_attempt: int, _draw: float) -> timedelta:
        raise ZeroDivisionError

    @app.task(backoff=broken)
    async def note() -> None: ...

    await note.aenqueue()
    await dead_worker(app)
    async with working(app, keeper=True, queues=("nothing",)) as worker:
        task = await eventually(lambda: _in_state(app, State.SCHEDULED))

        assert task.error.type == "WorkerLost"
        assert worker.held.opened


async def test_one_keeper_leads_and_another_takes_over_when_it_resigns(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "LEAD_FOR", timedelta(seconds=0.4))
    first, second = keeper_of(app), keeper_of(app)
    async with keeping(app, second):
        async with keeping(app, first):
            await eventually(lambda: first.leads or second.leads)
            leader, other = (first, second) if first.leads else (second, first)
            await pause(0.3)
            assert (leader.leads, other.leads) == (True, False)
        await eventually(lambda: second.leads)


async def test_a_leader_that_dies_is_replaced_when_its_lead_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "LEAD_FOR", timedelta(seconds=0.2))
    clock = ManualClock()
    app = App(MemoryStore(clock=clock))
    assert await app.store.lead("one that has died", keeper_module.LEAD_FOR)
    async with keeping(app) as keeper:
        await pause(0.2)
        assert not keeper.leads
        clock.advance(keeper_module.LEAD_FOR)

        await eventually(lambda: keeper.leads)


async def test_what_retention_no_longer_covers_is_pruned_and_the_rest_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper_module, "_PRUNE_EVERY", 0.05)
    clock = ManualClock()
    retention = Retention(completed=timedelta(days=1), dead=None)
    app = App(MemoryStore(clock=clock), retention=retention)

    @app.task(max_attempts=1)
    async def note(fail: bool) -> None:
        assert not fail

    handles = [await note.aenqueue(fail=False), await note.aenqueue(fail=True)]
    async with working(app, keeper=True, lease=300):
        for handle in handles:
            await handle.wait(timeout=5)
        await pause(0.2)
        assert len(await tasks(app)) == 2
        clock.advance(timedelta(days=1, seconds=1))
        await eventually(lambda: _number(app, 1))
        await pause(0.2)

    assert [task.state for task in await tasks(app)] == [State.DEAD]


async def test_a_keeper_prunes_by_the_retention_of_each_tasks_app(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper_module, "_PRUNE_EVERY", 0.05)
    caplog.set_level("INFO", "windlass")
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    shop = App(store, retention=Retention(dead=None))

    @shop.task(max_attempts=1, aliases=("formerly.pay",))
    async def pay() -> None:
        raise ValueError

    await pay.aenqueue()
    for name in ("formerly.pay", "unknown"):
        await shop.client.send(name, max_attempts=1)
    worker = await worker_on(shop.store)
    await settle_now(shop.store, *map(bury, await worker.claim(3)))
    clock.advance(timedelta(days=3650))
    await shop.publish()
    stranger = App(store, retention=Retention(dead=timedelta(0)), backoff=AT_ONCE)
    async with keeping(stranger):
        await eventually(lambda: _number(shop, 2))
        await pause(0.2)

    assert [task.type for task in await tasks(shop)] == [pay.name, "formerly.pay"]
    assert "pruned 1 dead" in caplog.text


async def test_a_crashed_task_is_retried_by_the_backoff_of_its_type() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    shop = App(store)

    @shop.task(backoff=Backoff(base=3600, jitter=0), aliases=("formerly.pay",))
    async def pay() -> None: ...

    @shop.task(backoff=lambda attempt, _: timedelta(seconds=500 * attempt))
    async def custom() -> None: ...

    await shop.publish()
    for name in (pay.name, "formerly.pay", custom.name):
        await shop.client.send(name)
    await dead_worker(shop, limit=3)
    stranger = App(store, backoff=AT_ONCE)
    async with keeping(stranger):
        await eventually(lambda: _all_in(shop, 3, State.SCHEDULED))

    delays = {task.type: round((task.run_at - clock.now()).total_seconds()) for task in await tasks(shop)}
    assert delays == {pay.name: 3600, "formerly.pay": 3600, custom.name: 500}


@pytest.mark.parametrize("verb", ["lead", "promote", "rescue", "prune"])
async def test_a_keeper_gets_over_an_outage(verb: str) -> None:
    app, watch = watched()

    @app.task
    async def note() -> None: ...

    watch.then(verb, Fault.BEFORE, Fault.AFTER)
    await note.using(delay=0.1).aenqueue()
    async with keeping(app):
        await eventually(lambda: _in_state(app, State.READY))


async def test_a_chore_with_a_bug_does_not_keep_the_others_from_being_done(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> int:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(prune_module, "prune_expired", broken)

    @app.task
    async def note() -> None: ...

    await note.using(delay=0.1).aenqueue()
    async with keeping(app):
        await eventually(lambda: _in_state(app, State.READY))


@pytest.mark.parametrize("slow", ["prune", "heartbeat", "apply", "count"])
async def test_a_slow_chore_delays_neither_promotion_nor_the_others(slow: str) -> None:
    app, watch = watched()
    await app.client.send("t", delay=0.1)
    hold = Hold()
    watch.then(slow, hold)
    async with keeping(app):
        await asyncio.wait_for(hold.reached(), 20)
        await eventually(lambda: _in_state(app, State.READY))
        done = {"promote", "lead", "heartbeat", "apply", "prune"} - {slow}
        await eventually(lambda: all(watch.calls[verb] for verb in done))
        assert watch.calls[slow] == 1
        hold.let_go()


async def test_a_slow_prune_delays_no_rescue(app: App) -> None:
    app, watch = watched()
    await app.client.send("t")
    hold = Hold()
    watch.then("prune", hold)
    async with keeping(app):
        await asyncio.wait_for(hold.reached(), 10)
        await dead_worker(app)
        await eventually(lambda: _rescued(app))
        hold.let_go()


async def _rescued(app: App) -> bool:
    return any(task.error is not None for task in await tasks(app, State.READY, State.SCHEDULED))


async def test_patient_chores_use_one_connection_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "_HISTORY_AFTER", 0.0)
    app, watch = watched()
    await app.store.put(Alert(name="any"))
    hold = Hold()
    watch.then("prune", hold)
    async with keeping(app):
        await asyncio.wait_for(hold.reached(), 10)
        await eventually(lambda: watch.calls["promote"] >= 2)
        assert watch.calls["count"] == 0  # by neither alerts nor history
        hold.let_go()
        await eventually(lambda: watch.calls["count"] >= 2)


async def test_a_chore_that_exceeds_its_budget_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app, watch = watched()
    hold = Hold()
    watch.then("prune", hold)
    monkeypatch.setattr(chores_module, "_BUDGET", 0.02)
    monkeypatch.setattr(keeper_module, "_PRUNE_EVERY", 0.01)
    async with keeping(app):
        await eventually(lambda: "the keeper's chore prune has taken 0.0 s so far" in caplog.text)
        again = Hold()
        watch.then("prune", again)
        hold.let_go()
        await asyncio.wait_for(again.reached(), 10)
        await pause(0.05)
        again.let_go()

    assert caplog.text.count("the keeper's chore prune has taken") == 1
    assert "more than its budget of 0.02 s" in caplog.text


@pytest.mark.parametrize("broken", ["promote", "rescue", "prune", "apply"])
async def test_a_chore_that_fails_for_ever_is_logged_once_and_the_others_go_on(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chores_module, "_LAST_RETRY_AFTER", 0.05)
    monkeypatch.setattr(keeper_module, "_PRUNE_EVERY", 0.05)
    monkeypatch.setattr(keeper_module, "_EXPIRE_EVERY", 0.05)
    app, watch = watched()
    watch.down.add(broken)
    name = {"apply": "expire"}.get(broken, broken)
    async with keeping(app) as keeper:
        await eventually(
            lambda: all(watch.calls[verb] >= 3 for verb in ("promote", "rescue", "prune", "apply"))
        )
        assert keeper.leads
        watch.down.clear()
        calls = watch.calls[broken]
        await eventually(lambda: watch.calls[broken] > calls)

    problems = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert problems == [
        f"the keeper cannot finish the chore {name}, retrying: a planned fault before {broken}"
    ]


async def test_a_leader_that_cannot_renew_its_lead_stops_its_chores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "LEAD_FOR", timedelta(seconds=0.3))
    app, watch = watched()
    hold = Hold()
    async with keeping(app) as keeper:
        await eventually(lambda: keeper.leads)
        watch.then("lead", hold)  # and gets no reply
        await eventually(lambda: not keeper.leads)
        promotions = watch.calls["promote"]
        watch.down.add("lead")
        hold.let_go()
        await pause(0.1)
        assert watch.calls["promote"] == promotions
        watch.down.clear()
        await eventually(lambda: keeper.leads and watch.calls["promote"] > promotions)


async def test_a_deposed_leader_leaves_no_outage_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "LEAD_FOR", timedelta(seconds=0.3))
    app, watch = watched()
    outage = Outage()
    async with keeping(app, app.keeper(lease=timedelta(seconds=1), outage=outage)) as keeper:
        await eventually(lambda: keeper.leads)
        watch.down |= {"lead", "promote", "rescue", "apply"}
        await eventually(lambda: outage.is_open)
        await eventually(lambda: not keeper.leads)
        watch.down.discard("lead")
        monkeypatch.setattr(MemoryStore, "lead", _refused)  # another leads by now
        await eventually(lambda: not outage.is_open)


async def _refused(*_: object) -> bool:
    return False


async def test_a_chore_that_fails_on_after_an_outage_does_not_keep_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper_module, "_PRUNE_EVERY", 0.05)
    app, watch = watched()
    outage = Outage()
    async with keeping(app, app.keeper(lease=timedelta(seconds=30), outage=outage)) as keeper:
        await eventually(lambda: keeper.leads)
        watch.down |= {"lead", "prune"}
        await eventually(lambda: outage.is_open)
        watch.down.discard("lead")
        calls = watch.calls["prune"]
        await eventually(lambda: watch.calls["prune"] > calls)
        await eventually(lambda: not outage.is_open)
        assert "prune" in watch.down


async def test_a_renewal_with_a_bug_does_not_keep_the_other_chores_from_being_done() -> None:
    done, failed = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        failed.set()
        raise StoreUnavailable("always")

    async def work() -> None:
        if failed.is_set():
            done.set()

    async def renew() -> None:
        raise ZeroDivisionError("a bug")

    duties = [
        Chore(name="broken", turn=fail, every=0.01, is_urgent=True),
        Chore(name="sound", turn=work, every=0.05, is_urgent=True),
    ]
    run = asyncio.create_task(Chores(Outage(), renew, duties).run())
    await asyncio.wait([run, asyncio.create_task(done.wait())], return_when=asyncio.FIRST_COMPLETED)

    assert not run.done()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


def test_slices_grow_while_they_are_quick_and_shrink_when_they_are_slow() -> None:
    assert prune_module.next_size(200, 0.01) == 400
    assert prune_module.next_size(400, 0.01) == prune_module.PRUNE_BATCH
    assert prune_module.next_size(300, 0.1) == 300
    assert prune_module.next_size(500, 0.5) == 250
    assert prune_module.next_size(250, 5.0) == 200


async def test_more_than_one_round_can_prune_is_pruned_soon_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_module, "PRUNE_BATCH", 2)
    monkeypatch.setattr(prune_module, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(prune_module, "_AGAIN_AFTER", 0.02)
    app = App("memory://", retention=Retention(completed=timedelta(0)))

    @app.task
    async def note(n: int) -> None: ...

    await note.aenqueue_many([{"n": n} for n in range(11)])
    await drained(app)
    async with keeping(app):
        await eventually(lambda: _number(app, 0))


async def test_a_step_of_the_clock_lets_live_workers_renew_before_any_is_rescued(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    app = App(MemoryStore(clock=clock), backoff=AT_ONCE)
    entered, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def long(*, ctx: Context) -> int:
        entered.set()
        await gate.wait()
        return ctx.attempt

    # Its heartbeat is slower than rescues are looked for, so the keeper sees the step first.
    async with working(app, lease=3, heartbeat=0.9), keeping(app, keeper_of(app, lease=3)) as keeper:
        handle = await long.aenqueue()  # type: ignore[call-arg]
        await asyncio.wait_for(entered.wait(), 5)
        await eventually(lambda: keeper.leads)
        await pause(0.1)
        clock.advance(3600)
        await eventually(lambda: "the store's clock was set forward by 3" in caplog.text)
        await pause(1.8)  # rescues have begun again
        gate.set()

        assert await handle.result(timeout=5) == 1
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["returned"]


async def test_a_new_leader_has_seen_the_step_that_ended_its_predecessors_lead() -> None:
    clock = ManualClock()
    app, watch = watched(MemoryStore(clock=clock))
    assert await app.store.lead("another", keeper_module.LEAD_FOR)
    async with keeping(app, keeper_of(app, lease=20)) as keeper:
        await eventually(lambda: watch.calls["lead"] >= 2)
        clock.advance(3600)
        await eventually(lambda: keeper.leads)
        await eventually(lambda: watch.calls["promote"])
        await pause(0.05)

    assert watch.calls["rescue"] == 0


async def test_a_listener_that_breaks_takes_nobody_down() -> None:
    class Deaf(FaultyStore):
        async def wakes(self, queues: Any) -> Any:
            raise OSError("the socket is gone")
            yield

        def another(self) -> "Deaf":
            return Deaf(self.inner.another(), self._plan)

    app = App(Deaf(MemoryStore(), Watch()))

    @app.task
    async def note() -> None: ...

    async with working(app, keeper=True):
        await pause(0.05)
        await (await note.aenqueue()).wait(timeout=5)


async def _in_state(app: App, state: State) -> Any:
    found = await tasks(app, state)
    return found[0] if found else None


async def _all_in(app: App, number: int, state: State) -> bool:
    return len(await tasks(app, state)) == number


async def _number(app: App, number: int) -> bool:
    return len(await tasks(app)) == number


async def test_an_expired_task_and_its_successors_end_within_a_second_or_so(app: App) -> None:
    now = await app.store.now()
    first = a_task(queue="nobody", expires_at=now + timedelta(seconds=0.2))
    second = a_task(queue="nobody", after=(first.id,))
    await app.store.enqueue([first, second])

    async with keeping(app):
        await eventually(lambda: _all_cancelled(app))

    ended = {task.id: task for task in await tasks(app)}
    assert ended[first.id].error == Error(
        type="Expired", message=f"had not started by {first.expires_at.isoformat()}"
    )
    assert first.id in ended[second.id].error.message
    late = ended[first.id].finished_at - first.expires_at
    assert timedelta(0) <= late < timedelta(seconds=2)


async def test_a_backlog_of_expired_tasks_is_cancelled_in_batches(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_tasks_module, "EXPIRE_BATCH", 3)
    await app.store.enqueue([a_task(expires_at=START) for _ in range(10)])

    await cancel_expired(app.store)

    assert await _all_cancelled(app)


async def _all_cancelled(app: App) -> bool:
    return {task.state for task in await tasks(app)} == {State.CANCELLED}
