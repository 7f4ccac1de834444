"""Exactly-once effects: completing a task in its own transaction, and `ctx.once` keys."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.loops import child_tasks
from tests.loops.workers import (
    BrokenFor,
    Watch,
    assert_nothing_held,
    drained,
    eventually,
    sessions,
    tasks,
    watched,
    working,
)
from tests.unit.samples import running
from windlass import RESULT, App, Backoff, Context, NotFound, Refused, State, TaskFinished, UsageError, chain
from windlass._model.lease import CancelRequest, Lease
from windlass._model.record import Session
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass._worker.exactly_once import _uncancelled
from windlass.errors import InvalidOption, LeaseLost, NotSupported
from windlass.testing.conformance.steps import release
from windlass.testing.faults import Fault, FaultyStore

AT_ONCE = Backoff(base=0, jitter=0)

each_kind = pytest.mark.parametrize("blocking", [False, True], ids=["in the loop", "in a thread"])


@pytest.fixture(autouse=True)
def _all_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="windlass")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
async def app(path: Path, watch: Watch) -> AsyncIterator[App]:
    """An app on a SQLite file that has a table of the program's own; the store fails when told to."""
    app = App(FaultyStore(SQLiteStore(path), watch), backoff=AT_ONCE)
    await app.open()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE orders (number INTEGER)")
    yield app
    await app.close()


@pytest.fixture
def orders(path: Path) -> Callable[[], list[int]]:
    def look() -> list[int]:
        with closing(sqlite3.connect(path)) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM orders ORDER BY rowid")]

    return look


Orders = Callable[[], list[int]]


def events(caplog: pytest.LogCaptureFixture, task_id: str) -> list[str]:
    found = [record for record in caplog.records if record.name == "windlass.events"]
    return [one.event for one in found if one.task_id == task_id]  # type: ignore[attr-defined]  # extras


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    return [one for one in found if "no live worker serves queue" not in one]  # the worker starts later


def declare(
    app: App,
    blocking: bool,
    within: Callable[[Context, Any], None],
    after: Callable[[Context], Any] = lambda _: "not kept",
    **options: Any,
) -> Any:
    """A task type that does this within its transaction and that after it, in the loop or in a thread."""

    def order(*, ctx: Context) -> Any:
        with ctx.transaction(result={"attempt": ctx.attempt}) as connection:
            within(ctx, connection)
        return after(ctx)

    async def aorder(*, ctx: Context) -> Any:
        async with ctx.transaction(result={"attempt": ctx.attempt}) as connection:
            within(ctx, connection)
        return after(ctx)

    return app.task(name="order", **options)(order if blocking else aorder)


class SlowCommit(FaultyStore):
    """A store whose transactions do not commit until they may go on."""

    def __init__(self, inner: Any, plan: Any) -> None:
        super().__init__(inner, plan)
        self.committing, self.go_on = asyncio.Event(), asyncio.Event()

    def transaction(self) -> Any:
        return self._slowly()

    @asynccontextmanager
    async def _slowly(self) -> AsyncIterator[Any]:
        async with self.inner.transaction() as connection:
            yield connection
            self.committing.set()
            await self.go_on.wait()


def insert(ctx: Context, connection: Any) -> None:
    connection.execute("INSERT INTO orders VALUES (?)", (ctx.attempt,))


# -- a transaction -----------------------------------------------------------------------------------


@each_kind
async def test_writes_and_completion_stand_together_and_are_told_once(
    app: App, orders: Orders, caplog: pytest.LogCaptureFixture, blocking: bool
) -> None:
    handle = await declare(app, blocking, insert).aenqueue()
    worker = await drained(app)

    task = await handle.task()
    (line,) = await app.operator.attempts(handle.id)
    assert (task.state, task.result, orders()) == (State.COMPLETED, b'{"attempt":1}', [1])
    assert (line.outcome, line.number, line.error) == ("returned", 1, None)
    assert events(caplog, handle.id) == ["enqueued", "claimed", "completed"]
    assert warnings(caplog) == []
    assert worker.ran == 1
    await assert_nothing_held(app)


@each_kind
async def test_an_exception_in_the_block_undoes_it_and_is_an_ordinary_failure(
    app: App, orders: Orders, caplog: pytest.LogCaptureFixture, blocking: bool
) -> None:
    def fail_at_first(ctx: Context, connection: Any) -> None:
        insert(ctx, connection)
        if ctx.attempt == 1:
            raise ValueError("not yet")

    handle = await declare(app, blocking, fail_at_first, backoff=AT_ONCE).aenqueue()
    await drained(app)

    assert orders() == [2]
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["failed", "returned"]
    assert events(caplog, handle.id) == ["enqueued", "claimed", "retried", "claimed", "completed"]


@each_kind
async def test_a_lost_lease_undoes_everything_and_ends_the_run_without_a_settlement(
    app: App, orders: Orders, caplog: pytest.LogCaptureFixture, blocking: bool
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def order(*, ctx: Context) -> None:
        if ctx.fence > 1:
            return
        entered.set()
        assert go_on.wait(10)
        try:
            with ctx.transaction() as connection:
                insert(ctx, connection)
        except BaseException as error:
            raised.append(error)
            raise

    async def aorder(*, ctx: Context) -> None:
        if ctx.fence > 1:
            return
        entered.set()
        await asyncio.to_thread(go_on.wait, 10)
        try:
            async with ctx.transaction() as connection:
                insert(ctx, connection)
        except BaseException as error:
            raised.append(error)
            raise

    kind = app.task(name="order", backoff=AT_ONCE)(order if blocking else aorder)
    async with working(app, heartbeat=20, lease=60) as alice:
        handle = await kind.aenqueue()
        await eventually(entered.is_set)
        await eventually(lambda: _has_beaten(app))  # the next one is far off
        await app.store.remove(Session, alice.held.session)
        async with working(app, keeper=True, name="bob"):
            await eventually(lambda: _is(handle, State.COMPLETED))  # rescued, retried and done by bob
            go_on.set()
            await eventually(lambda: raised)
            await eventually(lambda: "lost" in events(caplog, handle.id))

    assert isinstance(raised[0], LeaseLost)
    assert orders() == []
    told = events(caplog, handle.id)
    assert (told.count("completed"), told.count("lost")) == (1, 1)
    await assert_nothing_held(app)


@each_kind
async def test_an_attempt_has_one_transaction(
    app: App, orders: Orders, caplog: pytest.LogCaptureFixture, blocking: bool
) -> None:
    refusals: list[Exception] = []

    def again(ctx: Context) -> None:
        try:
            ctx.transaction()
        except Exception as error:
            refusals.append(error)
            raise

    handle = await declare(app, blocking, insert, again).aenqueue()
    await drained(app)

    assert isinstance(refusals[0], TaskFinished)
    assert (await handle.state(), orders()) == (State.COMPLETED, [1])
    assert events(caplog, handle.id).count("completed") == 1


async def test_one_that_was_undone_is_the_attempts_one_too(app: App, orders: Orders) -> None:
    @app.task(max_attempts=1)
    async def order(*, ctx: Context) -> None:
        with pytest.raises(ValueError, match="undone"):
            async with ctx.transaction():
                raise ValueError("undone")
        async with ctx.transaction() as connection:
            insert(ctx, connection)

    handle = await order.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    task = await handle.task()
    assert (task.state, orders()) == (State.DEAD, [])
    assert task.error is not None
    assert "has already used its transaction" in task.error.message


@pytest.mark.parametrize("blocking", [False, True])
async def test_the_same_transaction_cannot_be_entered_again(app: App, orders: Orders, blocking: bool) -> None:
    @app.task(name="async", max_attempts=1)
    async def order(*, ctx: Context) -> None:
        transaction = ctx.transaction()
        with suppress(ValueError):
            async with transaction:
                raise ValueError("undone")
        async with transaction as connection:
            insert(ctx, connection)

    @app.task(name="blocking", max_attempts=1)
    def order_in_thread(*, ctx: Context) -> None:
        transaction = ctx.transaction()
        with suppress(ValueError), transaction:
            raise ValueError("undone")
        with transaction as connection:
            insert(ctx, connection)

    handle = await (order_in_thread if blocking else order).aenqueue()  # type: ignore[call-arg]
    await drained(app)

    task = await handle.task()
    assert (task.state, orders()) == (State.DEAD, [])
    assert task.error is not None
    assert "has already used its transaction" in task.error.message


@each_kind
async def test_what_is_raised_after_the_block_is_only_a_warning(
    app: App, orders: Orders, caplog: pytest.LogCaptureFixture, blocking: bool
) -> None:
    def fail(_: Context) -> None:
        raise ValueError("too late\nto matter")

    handle = await declare(app, blocking, insert, fail).aenqueue()
    worker = await drained(app)

    assert (await handle.state(), orders(), worker.ran) == (State.COMPLETED, [1], 1)
    assert warnings(caplog) == [
        f"task {handle.id} completed, but its handler then failed: ValueError: too late"
    ]
    assert events(caplog, handle.id) == ["enqueued", "claimed", "completed"]
    assert len(await app.operator.attempts(handle.id)) == 1


async def test_what_is_returned_after_the_block_need_not_even_be_json(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await declare(app, False, insert, lambda _: object()).aenqueue()
    await drained(app)

    assert (await handle.task()).result == b'{"attempt":1}'
    assert warnings(caplog) == []


@each_kind
async def test_a_result_that_is_not_json_undoes_it_and_buries_the_task(
    app: App, orders: Orders, blocking: bool
) -> None:
    def order(*, ctx: Context) -> None:
        with ctx.transaction(result=object()) as connection:
            insert(ctx, connection)

    async def aorder(*, ctx: Context) -> None:
        async with ctx.transaction(result=object()) as connection:
            insert(ctx, connection)

    handle = await app.task(name="order")(order if blocking else aorder).aenqueue()  # type: ignore[attr-defined]
    await drained(app)

    assert (await handle.state(), orders()) == (State.DEAD, [])


async def test_a_result_may_be_filled_in_within_the_block(app: App) -> None:
    @app.task
    async def order(*, ctx: Context) -> None:
        answer: dict[str, int] = {}
        async with ctx.transaction(result=answer) as connection:
            answer["row"] = connection.execute("INSERT INTO orders VALUES (1)").lastrowid

    handle = await order.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert (await handle.task()).result == b'{"row":1}'


@pytest.mark.parametrize("why", ["timeout", "cancel"])
@each_kind
async def test_a_stop_during_the_block_undoes_it(app: App, orders: Orders, blocking: bool, why: str) -> None:
    entered = threading.Event()

    def order(*, ctx: Context) -> None:
        with ctx.transaction() as connection:
            insert(ctx, connection)
            entered.set()
            while not ctx.stopping:
                threading.Event().wait(0.01)

    async def aorder(*, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            insert(ctx, connection)
            entered.set()
            await asyncio.Event().wait()

    kind = app.task(name="order", max_attempts=1, timeout=0.4 if why == "timeout" else None)(
        order if blocking else aorder
    )
    async with working(app) as alice:
        handle = await kind.aenqueue()
        await eventually(entered.is_set)
        if why == "cancel":  # As a heartbeat would bring it, which waits for the block.
            alice._slots.cancel(CancelRequest(task_id=handle.id))
        await eventually(lambda: _has_ended(handle))

    assert await handle.state() is (State.DEAD if why == "timeout" else State.CANCELLED)
    assert orders() == []
    await assert_nothing_held(app)


async def test_a_timeout_after_the_block_ends_the_handler_and_not_the_task(
    app: App, orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(timeout=0.3)
    async def order(*, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            insert(ctx, connection)
        await asyncio.Event().wait()

    handle = await order.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert (await handle.state(), orders()) == (State.COMPLETED, [1])
    assert warnings(caplog) == [f"task {handle.id} completed, but its handler then was timedout"]


async def test_a_handler_may_go_on_after_its_task_has_ended(
    app: App, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """Heartbeats come and go meanwhile: the lease has ended, and is not lost."""
    committed, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.task
    async def order(*, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            insert(ctx, connection)
        committed.set()
        await go_on.wait()
        ended.set()

    async with working(app) as alice:
        handle = await order.aenqueue()  # type: ignore[call-arg]
        await asyncio.wait_for(committed.wait(), 10)
        assert len(alice.held) == 0
        before = watch.calls["heartbeat"]
        await eventually(lambda: watch.calls["heartbeat"] >= before + 3)
        # What the answer to a heartbeat may still say that was sent before the commit.
        assert not alice._slots.lose(Lease(handle.id, 1))
        alice._slots.cancel(CancelRequest(task_id=handle.id))
        go_on.set()
        await asyncio.wait_for(ended.wait(), 10)

    assert warnings(caplog) == []
    await assert_nothing_held(app)


@each_kind
async def test_a_chain_goes_on_from_it(app: App, orders: Orders, blocking: bool) -> None:
    seen: list[Any] = []

    @app.task
    async def ship(order: Any) -> None:
        seen.append(order)

    first = declare(app, blocking, insert)
    await app.client.enqueue(chain(first.step(), ship.step(order=RESULT)))
    await drained(app)

    assert seen == [{"attempt": 1}]
    assert [task.state for task in await tasks(app)] == [State.COMPLETED] * 2


@each_kind
async def test_what_is_enqueued_in_it_stands_and_is_told_with_it(
    app: App, caplog: pytest.LogCaptureFixture, blocking: bool
) -> None:
    handles: list[Any] = []

    @app.task
    async def ship() -> None: ...

    def order(ctx: Context, connection: Any) -> None:
        handles.append(ship.using(within=connection).enqueue())
        if ctx.attempt == 1:
            raise ValueError

    await declare(app, blocking, order, backoff=AT_ONCE).aenqueue()
    await drained(app)

    undone, made = [handle.id for handle in handles]
    assert events(caplog, undone) == []
    assert events(caplog, made) == ["enqueued", "claimed", "completed"]
    with pytest.raises(NotFound):
        await app.client.get(undone)


@each_kind
async def test_a_commit_whose_reply_is_lost_is_not_done_again(
    app: App, watch: Watch, orders: Orders, caplog: pytest.LogCaptureFixture, blocking: bool
) -> None:
    watch.then("transaction", Fault.AFTER)

    handle = await declare(app, blocking, insert, backoff=AT_ONCE).aenqueue()
    await drained(app)

    assert (await handle.state(), orders()) == (State.COMPLETED, [1])
    assert len(await app.operator.attempts(handle.id)) == 1
    assert events(caplog, handle.id) == ["enqueued", "claimed"]  # that it stands is not known here


@each_kind
async def test_a_store_that_cannot_be_had_costs_an_attempt(
    app: App, watch: Watch, orders: Orders, blocking: bool
) -> None:
    watch.then("transaction", Fault.BEFORE)

    handle = await declare(app, blocking, insert, backoff=AT_ONCE).aenqueue()
    await drained(app)

    assert (await handle.state(), orders()) == (State.COMPLETED, [2])


@each_kind
async def test_a_lease_that_was_settled_elsewhere_is_as_good_as_lost(
    app: App, orders: Orders, blocking: bool
) -> None:
    """Handed back in the meantime: the task will run again, so nothing of this run may stand."""
    raised: list[BaseException] = []

    def order(*, ctx: Context) -> None:
        asyncio.run(app.store.settle([release(Lease(ctx.task_id, ctx.fence))]))
        try:
            with ctx.transaction() as connection:
                insert(ctx, connection)
        except BaseException as error:
            raised.append(error)
            raise

    async def aorder(*, ctx: Context) -> None:
        await app.store.settle([release(Lease(ctx.task_id, ctx.fence))])
        try:
            async with ctx.transaction() as connection:
                insert(ctx, connection)
        except BaseException as error:
            raised.append(error)
            raise

    kind = app.task(name="order")(order if blocking else aorder)
    async with working(app, slots=1, heartbeat=20, lease=60) as alice:
        await eventually(lambda: _has_beaten(app))  # the next one is far off
        await kind.aenqueue()  # type: ignore[attr-defined]
        await eventually(lambda: raised)
        alice.stop()

    assert isinstance(raised[0], LeaseLost)
    assert orders() == []


async def test_the_worker_settles_nothing_of_its_own_afterwards(path: Path, watch: Watch) -> None:
    settled: list[Any] = []
    app = App(BrokenFor(SQLiteStore(path), watch, lambda settlement: bool(settled.append(settlement))))

    handle = await declare(app, False, lambda *_: None).aenqueue()
    await drained(app)

    assert await handle.state() is State.COMPLETED
    assert settled == []
    await app.close()


async def test_a_commit_that_is_under_way_is_waited_for(path: Path, watch: Watch) -> None:
    """The time is up while it commits: the task has completed, and the handler ends."""
    store = SlowCommit(SQLiteStore(path), watch)
    app = App(store)
    ended: list[BaseException] = []

    @app.task(timeout=0.2, max_attempts=1)
    async def order(*, ctx: Context) -> None:
        try:
            async with ctx.transaction():
                pass
        except BaseException as error:
            ended.append(error)
            raise

    async with working(app) as alice:
        handle = await order.aenqueue()  # type: ignore[call-arg]
        await asyncio.wait_for(store.committing.wait(), 10)
        run = alice._slots.running[handle.id]
        await eventually(lambda: run.stop)
        assert not ended
        store.go_on.set()
        await eventually(lambda: ended)

    assert isinstance(ended[0], asyncio.CancelledError)
    assert await handle.state() is State.COMPLETED
    await app.close()


async def test_a_thread_that_outlives_its_worker_settles_nothing_twice(app: App, orders: Orders) -> None:
    """Abandoned at shutdown: its task is handed back or completed, whichever comes first, and not both."""
    entered, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    @app.task
    def order(*, ctx: Context) -> None:
        entered.set()
        assert go_on.wait(10)
        try:
            with ctx.transaction() as connection:
                insert(ctx, connection)
        except BaseException as error:
            raised.append(error)
            raise

    async with working(app, grace=0):
        handle = await order.aenqueue()  # type: ignore[call-arg]
        await eventually(entered.is_set)
    assert await handle.state() is State.READY
    go_on.set()
    await eventually(lambda: raised)

    assert await handle.state() is State.READY
    assert orders() == []


async def test_a_loop_is_not_blocked_by_it(app: App) -> None:
    @app.task(max_attempts=1)
    async def order(*, ctx: Context) -> None:
        with pytest.raises(UsageError, match="async with"), ctx.transaction():
            pass

    handle = await order.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert await handle.state() is State.COMPLETED


async def test_a_store_without_transactions_refuses_at_the_call() -> None:
    app = App("memory://")

    @app.task(max_attempts=1)
    async def order(*, ctx: Context) -> None:
        ctx.transaction()

    handle = await order.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    task = await handle.task()
    assert task.error is not None
    assert task.error.type == "windlass.errors.NotSupported"
    assert "this store cannot complete a task inside a transaction" in task.error.message


@pytest.mark.parametrize("what", ["transaction", "once"])
async def test_a_child_process_has_neither(what: str) -> None:
    before = child_tasks.app.use_store(MemoryStore())
    handle = await child_tasks.effect.aenqueue(what)  # type: ignore[call-arg]
    await drained(child_tasks.app)
    task = await handle.task()
    child_tasks.app.use_store(before)

    assert task.error is not None
    assert task.error.type == "windlass.errors.NotSupported"
    assert "process=True" in task.error.message


async def test_leaving_is_not_cut_short_by_a_cancellation() -> None:
    go_on, left = asyncio.Event(), asyncio.Event()

    async def leave() -> None:
        await go_on.wait()
        left.set()

    leaving = asyncio.ensure_future(_uncancelled(leave()))
    for _ in range(3):
        await asyncio.sleep(0)
        leaving.cancel()
    assert not leaving.done()
    go_on.set()
    await asyncio.wait([leaving])

    assert left.is_set()
    assert leaving.cancelled()


# -- marks -------------------------------------------------------------------------------------------


@each_kind
async def test_only_one_attempt_is_told_that_it_is_the_first(blocking: bool) -> None:
    app = App("memory://", backoff=AT_ONCE)
    answers: list[tuple[int, bool]] = []

    def charge(*, ctx: Context) -> None:
        answers.extend((ctx.attempt, bool(ctx.once("charge"))) for _ in range(2))
        if ctx.attempt < 3:
            raise ValueError

    async def acharge(*, ctx: Context) -> None:
        answers.extend([(ctx.attempt, await ctx.once("charge")) for _ in range(2)])
        if ctx.attempt < 3:
            raise ValueError

    await app.task(name="charge")(charge if blocking else acharge).aenqueue()  # type: ignore[attr-defined]
    await drained(app)

    assert answers == [(1, True), *[(1, False)], *[(2, False)] * 2, *[(3, False)] * 2]


async def test_of_several_who_ask_at_once_one_is_the_first() -> None:
    app = App("memory://")
    answers: list[bool] = []

    @app.task
    async def charge(*, ctx: Context) -> None:
        async def ask() -> None:
            answers.append(await ctx.once("charge"))

        await asyncio.gather(*(ask() for _ in range(5)))

    await charge.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert sorted(answers) == [False] * 4 + [True]


@pytest.mark.parametrize("faults", [[Fault.AFTER], [Fault.BEFORE], [Fault.AFTER, Fault.AFTER]])
async def test_a_lost_reply_does_not_lose_the_first_time(faults: list[Fault]) -> None:
    """Asked once more by itself; if that fails as well the handler hears of it, and may ask again."""
    app, watch = watched()
    watch.then("once", *faults)
    answers: list[bool] = []

    @app.task
    async def charge(*, ctx: Context) -> None:
        if len(faults) > 1:
            with pytest.raises(Exception, match="planned"):
                await ctx.once("charge")
        answers.append(await ctx.once("charge"))

    await charge.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert answers == [True]


@each_kind
async def test_a_run_whose_lease_is_lost_marks_nothing(
    blocking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory://")
    entered, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def charge(*, ctx: Context) -> None:
        entered.set()
        assert go_on.wait(10)
        try:
            ctx.once("charge")
        except BaseException as error:
            raised.append(error)
            raise

    async def acharge(*, ctx: Context) -> None:
        entered.set()
        await asyncio.to_thread(go_on.wait, 10)
        try:
            await ctx.once("charge")
        except BaseException as error:
            raised.append(error)
            raise

    kind = app.task(name="charge", backoff=lambda *_: 3600)(charge if blocking else acharge)  # type: ignore[arg-type]
    async with working(app, heartbeat=20, lease=60) as alice:
        handle = await kind.aenqueue()  # type: ignore[attr-defined]
        await eventually(entered.is_set)
        await eventually(lambda: _has_beaten(app))  # the next one is far off
        await app.store.remove(Session, alice.held.session)
        async with working(app, keeper=True, queues=("nothing",), name="bob"):
            await eventually(lambda: _is(handle, State.SCHEDULED))
            go_on.set()
            await eventually(lambda: raised)

    assert isinstance(raised[0], LeaseLost)
    assert "completed" not in events(caplog, handle.id)
    await assert_nothing_held(app)


async def test_an_answer_that_is_not_waited_for_is_no_answer() -> None:
    app = App("memory://")
    outcomes: list[bool] = []

    @app.task
    async def charge(*, ctx: Context) -> None:
        with pytest.raises(UsageError, match=r"await ctx\.once"):
            bool(ctx.once("charge"))
        once = ctx.once("charge")
        assert await once
        for key in ("", "a\0b", "x" * 256, 7):
            with pytest.raises(InvalidOption):
                ctx.once(key)  # type: ignore[arg-type]  # what the test is about
        outcomes.append(bool(once))

    await charge.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert outcomes == [True]


async def test_marks_are_made_before_the_block_and_not_in_it_nor_after(app: App) -> None:
    refusals: list[type[Exception]] = []

    @app.task
    async def order(*, ctx: Context) -> None:
        async with ctx.transaction():
            try:
                await ctx.once("mail")
            except Refused as error:
                refusals.append(type(error))
        try:
            await ctx.once("mail")
        except Refused as error:
            refusals.append(type(error))

    await order.aenqueue()  # type: ignore[call-arg]
    await drained(app)

    assert refusals == [Refused, TaskFinished]


def test_a_context_that_no_worker_made_says_so() -> None:
    ctx: Context = Context(running())

    with pytest.raises(NotSupported, match="no worker runs this task"):
        ctx.transaction()
    with pytest.raises(NotSupported, match="no worker runs this task"):
        ctx.once("charge")


async def _is(handle: Any, state: State) -> bool:
    return await handle.state() is state


async def _has_beaten(app: App) -> bool:
    return any(session.beat_at > session.started_at for session in await sessions(app))


async def _has_ended(handle: Any) -> bool:
    return await handle.state() in (State.COMPLETED, State.CANCELLED, State.DEAD)
