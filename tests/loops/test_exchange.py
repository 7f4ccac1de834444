"""The exchange with the store in outages: nothing is lost, nothing is settled twice, and work resumes."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loops.workers import (
    BrokenFor,
    Watch,
    assert_nothing_held,
    drained,
    eventually,
    pause,
    sessions,
    tasks,
    watched,
    working,
)
from windlass import RESULT, App, Backoff, Context, State, chain
from windlass._model.lease import Claim
from windlass._model.verdict import Complete, Settled, Settlement
from windlass._store import outage
from windlass._store.forward import ForwardingStore
from windlass._stores.memory import MemoryStore
from windlass.errors import StoreError
from windlass.testing.faults import Fault, FaultyStore, Hold, seeded


async def test_tasks_granted_in_a_lost_reply_are_handed_back_uncounted_and_run() -> None:
    app, watch = watched()
    seen: list[tuple[int, int]] = []

    @app.task
    async def quick(n: int, *, ctx: Context) -> int:
        seen.append((n, ctx.attempt))
        return n

    handles = await quick.aenqueue_many([{"n": n} for n in range(4)])
    watch.then("settle", Fault.AFTER)
    async with working(app, slots=4):
        results = [await handle.result(timeout=5) for handle in handles]

    assert results == [0, 1, 2, 3]
    assert sorted(seen) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert {(await handle.task()).fence for handle in handles} == {3}


async def test_a_settlement_whose_reply_was_lost_is_repeated_and_its_successors_are_not_doubled() -> None:
    app, watch = watched()
    ran: Counter[str] = Counter()

    @app.task
    async def first() -> int:
        ran["first"] += 1
        watch.then("settle", Fault.AFTER, Fault.AFTER, Fault.AFTER)
        return 1

    @app.task
    async def second(n: int) -> int:
        ran["second"] += 1
        return n + 1

    await app.client.enqueue(chain(first.step(), second.step(n=RESULT)))
    async with working(app):
        await eventually(lambda: _completed(app, 2))

    assert ran == {"first": 1, "second": 1}
    assert [task.attempt for task in await tasks(app)] == [1, 1]
    await assert_nothing_held(app)


@pytest.mark.parametrize("when", list(Fault))
@pytest.mark.parametrize(
    "verb", ["settle", "heartbeat", "lead", "promote", "rescue", "prune", "remove", "wakes", "records"]
)
async def test_an_outage_of_any_verb_loses_nothing_and_settles_nothing_twice(verb: str, when: Fault) -> None:
    app, watch = watched()
    ran: Counter[int] = Counter()

    @app.task(backoff=Backoff(base=0.01, jitter=0))
    async def quick(n: int, *, ctx: Context) -> int:
        ran[n] += 1
        if n % 5 == 0 and ctx.attempt == 1:
            raise ValueError("the first time")
        return n

    await quick.aenqueue_many([{"n": n} for n in range(20)])
    watch.then(verb, when, when)
    async with working(app, keeper=True, poll=0.05):
        await pause(0.02)
        await quick.aenqueue_many([{"n": n} for n in range(20, 40)])
        await eventually(lambda: _completed(app, 40))

    assert ran == {n: 2 if n % 5 == 0 else 1 for n in range(40)}
    for task in await tasks(app):
        outcomes = [line.outcome for line in await app.operator.attempts(task.id)]
        assert outcomes.count("returned") == 1
    assert await tasks(app, State.RUNNING) == []


async def test_settlements_wait_out_an_outage_and_all_arrive() -> None:
    app, watch = watched()
    finished = asyncio.Event()
    done = 0

    @app.task
    async def quick() -> None:
        nonlocal done
        watch.down.add("settle")
        done += 1
        if done == 4:
            finished.set()

    handles = await quick.aenqueue_many([{} for _ in range(4)])
    async with working(app, slots=4):
        await asyncio.wait_for(finished.wait(), 5)
        before = watch.calls["settle"]
        await eventually(lambda: watch.calls["settle"] >= before + 2)
        assert {await handle.state() for handle in handles} == {State.RUNNING}
        watch.down.clear()
        for handle in handles:
            await handle.wait(timeout=5)

    assert [len(await app.operator.attempts(handle.id)) for handle in handles] == [1, 1, 1, 1]


async def test_a_worker_claims_no_more_than_it_can_hold_while_it_cannot_settle() -> None:
    app, watch = watched()
    started = 0

    @app.task
    async def quick() -> None:
        nonlocal started
        started += 1

    holds = Hold(), Hold()  # one for each round trip that is under way at a time
    watch.then("settle", *[None] * 8, *holds)
    await quick.aenqueue_many([{} for _ in range(200)])
    async with working(app, slots=2):
        for hold in holds:
            await asyncio.wait_for(hold.reached(), 5)
        before = started
        assert 0 < before < 100
        await pause(0.1)
        assert started - before <= 4
        for hold in holds:
            hold.let_go()
        await eventually(lambda: _completed(app, 200))


class TwoAtOnce(ForwardingStore):
    """Claims at most two tasks by one settle, and says if there may be more."""

    def another(self) -> "TwoAtOnce":
        return TwoAtOnce(self.inner.another())

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        if claim is None or claim.limit <= 2:
            return await self.inner.settle(batch, claim)
        settled = await self.inner.settle(batch, replace(claim, limit=2))
        return replace(settled, may_claim_more=len(settled.claimed) == 2)


async def test_a_store_that_claims_few_tasks_at_once_is_asked_for_the_others() -> None:
    app = App(TwoAtOnce(MemoryStore()))
    gate = asyncio.Event()

    @app.task
    async def wait() -> None:
        await gate.wait()

    handles = await wait.aenqueue_many([{} for _ in range(7)])
    async with working(app, slots=8, poll=3600):  # No wake and no poll helps: they were enqueued before.
        await eventually(lambda: _running(app, 7))
        gate.set()
        for handle in handles:
            await handle.wait(timeout=30)


async def test_a_settlement_that_the_store_cannot_take_is_buried_and_holds_up_no_other() -> None:
    def is_bad(settlement: Any) -> bool:
        return isinstance(settlement.verdict, Complete) and settlement.verdict.result == b'"poison"'

    app = App(BrokenFor(MemoryStore(), Watch(), is_bad))
    gate = asyncio.Event()

    @app.task
    async def echo(word: str) -> str:
        await gate.wait()
        return word

    async with working(app, slots=8):
        handles = [await echo.aenqueue(word) for word in ("a", "b", "poison", "c")]
        await eventually(lambda: _running(app, 4))
        gate.set()
        ended = [await handle.wait(timeout=5) for handle in handles]

    assert [task.state for task in ended] == [State.COMPLETED, State.COMPLETED, State.DEAD, State.COMPLETED]
    assert ended[2].error is not None
    assert ended[2].error.type == "Unsettled"
    await assert_nothing_held(app)


async def test_a_task_that_cannot_even_be_buried_holds_up_no_other() -> None:
    poisoned: set[str] = set()
    app = App(BrokenFor(MemoryStore(), Watch(), lambda settlement: settlement.lease.task_id in poisoned))
    gate = asyncio.Event()

    @app.task
    async def echo(n: int) -> int:
        await gate.wait()
        return n

    handles = [await echo.aenqueue(n) for n in range(4)]
    poisoned.add(handles[0].id)
    async with working(app, slots=4):
        await eventually(lambda: _running(app, 4))
        gate.set()
        ended = [await handle.wait(timeout=5) for handle in handles[1:]]
        more = [await echo.aenqueue(n) for n in range(10, 40)]
        ended += [await handle.wait(timeout=5) for handle in more]
        assert {task.state for task in ended} == {State.COMPLETED}
        poisoned.clear()

    # Its lease ended with the worker; the next one's keeper takes it over.
    gate.set()
    async with working(app, keeper=True):
        task = await eventually(lambda: _settled_once(app, handles[0].id))
    assert task[0].outcome == "crashed"
    assert await tasks(app, State.RUNNING) == []


async def _settled_once(app: App, task_id: str) -> Any:
    return await app.operator.attempts(task_id)


async def test_a_lost_listener_is_replaced_and_the_poll_covers_the_meantime() -> None:
    app, watch = watched()

    @app.task
    async def quick() -> None: ...

    watch.then("wakes", Fault.BEFORE)
    async with working(app, poll=0.2):
        await (await quick.aenqueue()).wait(timeout=5)
        await (await quick.aenqueue()).wait(timeout=2)


@pytest.mark.parametrize("seed", range(3))
async def test_a_store_that_fails_one_call_in_five_still_gets_everything_done(seed: int) -> None:
    plan = seeded(seed, rate=0.2)
    app = App(FaultyStore(MemoryStore(), plan))
    quiet = App(app.store.inner.inner)  # type: ignore[attr-defined]
    ran: Counter[int] = Counter()

    @app.task(backoff=Backoff(base=0.01, jitter=0), max_attempts=100)
    async def flaky(n: int, *, ctx: Context) -> int:
        ran[n] += 1
        await pause(0.001 * (n % 4))
        if n % 3 == 0 and ctx.attempt == 1:
            raise ValueError
        return n

    quiet_flaky = quiet.task(flaky._function)  # type: ignore[arg-type]
    await quiet.client.enqueue_many([quiet_flaky.using(max_attempts=100).step(n) for n in range(60)])
    async with working(app, keeper=True, lease=1.5, heartbeat=0.05, poll=0.05):
        # Its keeper pauses longer after each fault, and it is the keeper that promotes.
        await eventually(lambda: _completed(quiet, 60), within=30)

    for task in await tasks(quiet):
        outcomes = [line.outcome for line in await quiet.operator.attempts(task.id)]
        assert outcomes.count("returned") == 1, outcomes
    assert await tasks(quiet, State.RUNNING) == []


async def test_stopping_while_the_store_is_down_ends_and_leaves_nothing_undecided() -> None:
    app, watch = watched()

    @app.task(backoff=lambda _attempt, _draw: timedelta(0))
    async def quick(*, ctx: Context) -> str:
        if ctx.attempt == 1:
            watch.down.update({"settle", "heartbeat", "remove", "lead"})
        return "done"

    handle = await quick.aenqueue()  # type: ignore[call-arg]
    async with working(app, lease=0.3, heartbeat=0.1):
        await eventually(lambda: watch.down)
    assert await handle.state() is State.RUNNING

    watch.down.clear()
    async with working(app, lease=0.3, heartbeat=0.1, keeper=True):
        await eventually(lambda: _settled_once(app, handle.id))
        lines = await app.operator.attempts(handle.id)
        assert lines[0].outcome == "crashed"


async def test_a_claim_under_way_at_the_stop_is_handed_back_uncounted() -> None:
    app, watch = watched()
    ran = False

    @app.task
    async def quick() -> None:
        nonlocal ran
        ran = True

    hold = Hold()
    watch.then("settle", hold)
    handle = await quick.aenqueue()
    async with working(app) as worker:
        await asyncio.wait_for(hold.reached(), 5)
        worker.stop()
        await pause(0.02)
        hold.let_go()

    task = await handle.task()
    assert (ran, task.state, task.attempt) == (False, State.READY, 0)
    await assert_nothing_held(app)


async def test_a_claim_whose_reply_is_lost_at_the_stop_is_handed_back_uncounted() -> None:
    app, watch = watched()

    @app.task
    async def quick() -> None: ...

    watch.then("settle", Fault.AFTER)
    handle = await quick.aenqueue()
    async with working(app, heartbeat=1.5, lease=5) as worker:
        await eventually(lambda: watch.calls["settle"])
        worker.stop()

    task = await handle.task()
    assert (task.state, task.attempt) == (State.READY, 0)
    assert await sessions(app) == []


async def test_draining_waits_for_a_claim_that_is_under_way() -> None:
    app, watch = watched()

    @app.task
    async def quick() -> None: ...

    for _ in range(30):
        await quick.aenqueue()
        await drained(app)
    assert len(await tasks(app, State.COMPLETED)) == 30
    await assert_nothing_held(app)
    assert watch.calls["settle"] < 200


async def test_an_outage_that_the_driver_reports_in_its_own_words_buries_nothing() -> None:
    down = False
    app = App(BrokenFor(MemoryStore(), Watch(), lambda _: down, ConnectionResetError("by peer")))

    @app.task
    async def quick() -> str:
        nonlocal down
        down = True
        return "done"

    async with working(app):
        handle = await quick.aenqueue()
        await eventually(lambda: down)
        await pause(0.5)
        assert await handle.state() is State.RUNNING
        down = False
        assert await handle.result(timeout=5) == "done"
    assert [line.outcome for line in await app.operator.attempts(handle.id)] == ["returned"]


async def test_a_store_that_refuses_for_good_is_told_of_in_a_line_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0

    def refuse(_: Any) -> bool:
        nonlocal refused
        refused += 1
        return down

    down = True
    app = App(BrokenFor(MemoryStore(), Watch(), refuse, StoreError("the key was revoked")))

    @app.task
    async def quick() -> str:
        return "done"

    def lines() -> list[logging.LogRecord]:
        return [one for one in caplog.records if "the key was revoked" in one.getMessage()]

    async with working(app):
        handle = await quick.aenqueue()
        await eventually(lambda: refused > 8)
        (line,) = lines()
        assert (line.levelname, line.exc_info, "\n" in line.getMessage()) == ("ERROR", None, False)
        monkeypatch.setattr(outage, "REMIND_OF_REFUSAL_AFTER", 0.0)
        await eventually(lambda: len(lines()) > 1)
        down = False
        assert await handle.result(timeout=5) == "done"


async def _completed(app: App, number: int) -> bool:
    return len(await tasks(app, State.COMPLETED)) == number


async def _running(app: App, number: int) -> bool:
    return len(await tasks(app, State.RUNNING)) == number
