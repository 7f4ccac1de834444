"""Several handles at once: commits on outdated readings are refused and done again, and nothing gets lost."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.stores.redis.conftest import Peek
from windlass._model.filter import Filter, Page
from windlass._model.lease import Claimed
from windlass._model.limit import Limit, Usage
from windlass._model.queue import Fairness, QueueSettings, Retention
from windlass._model.state import State
from windlass._model.verdict import Receipt, Settled
from windlass._stores.redis import RedisStore, leases
from windlass._stores.redis.claim import claimer
from windlass._stores.redis.database import Database
from windlass.errors import StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    OPERATOR,
    ManualWorker,
    a_task,
    all_records,
    all_tasks,
    bury,
    cancel,
    complete,
    enqueue_and_claim,
    enqueue_one,
    load,
    release,
    retry,
    settle,
    settle_now,
    some_tasks,
    worker_on,
)

NOTHING = Retention(completed=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))
FAIR = QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN)


@pytest.mark.parametrize("settings", [QueueSettings(name="q"), FAIR], ids=["fifo", "fair"])
async def test_claims_of_several_handles_are_disjoint(store: RedisStore, settings: QueueSettings) -> None:
    await store.put(settings)
    await store.enqueue([a_task(queue="q", tenant=f"t{number % 7}") for number in range(120)])
    handles = [store.another() for _ in range(4)]
    workers = [await worker_on(handle, f"w{number}") for number, handle in enumerate(handles)]

    async def drain(number: int) -> list[str]:
        got: list[str] = []
        while claimed := await workers[number].claim(7, "q"):
            got += [one.task.id for one in claimed]
            await settle_now(handles[number], *map(complete, claimed))
        return got

    shares = await asyncio.gather(*map(drain, range(4)))
    for handle in handles:
        await handle.close()

    ids = [one for share in shares for one in share]
    assert len(ids) == len(set(ids)) == 120
    assert {task.state for task in await all_tasks(store)} == {State.COMPLETED}


@pytest.mark.parametrize(
    ("limit", "most"),
    [(Limit(name="calls", running=3), 3), (Limit(name="calls", rate=1.0, burst=5), 5)],
    ids=["cap", "rate"],
)
@pytest.mark.parametrize("queues", [1, 5], ids=["one queue", "a queue each"])
async def test_a_limit_holds_between_several_handles(
    store: RedisStore, limit: Limit, most: int, queues: int
) -> None:
    """Also where they do not want the same tasks, and each wants more than are allowed."""
    await store.put(limit, OPERATOR)
    await store.enqueue([a_task(queue=f"q{number % queues}") for number in range(30)])
    handles = [store.another() for _ in range(5)]
    workers = [await worker_on(handle, f"w{number}") for number, handle in enumerate(handles)]

    claimed = await asyncio.gather(
        *(worker.claim(4, f"q{number % queues}") for number, worker in enumerate(workers))
    )
    for handle in handles:
        await handle.close()

    assert sum(map(len, claimed)) == most


async def test_no_token_is_spent_on_a_task_that_was_cancelled_while_its_claim_was_planned(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(Limit(name="calls", queue="q", rate=1.0, burst=5), OPERATOR)
    batch = some_tasks(2, queue="q")
    await store.enqueue(batch)
    worker = await worker_on(store)
    before_the_next_grant(monkeypatch, lambda: cancel(store, batch[0].id))

    assert [one.task.id for one in await worker.claim(2, "q")] == [batch[1].id]
    assert [usage.tokens for usage in await all_records(store, Usage)] == [4.0]


async def test_permits_that_others_took_while_a_claim_was_planned_are_not_given_twice(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(Limit(name="calls", running=3), OPERATOR)
    await store.enqueue([*some_tasks(3, queue="q"), *some_tasks(1, queue="r")])
    worker, quicker = await worker_on(store), await worker_on(store, "quicker")
    before_the_next_grant(monkeypatch, lambda: quicker.claim(1, "r"))

    assert len(await worker.claim(3, "q")) == 2


async def test_a_task_that_expired_while_its_claim_was_planned_takes_no_permit(
    store: RedisStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would give it back: the task never ran."""
    await store.put(Limit(name="calls", queue="q", running=1), OPERATOR)
    await store.enqueue([a_task(queue="q", expires_at=clock.now() + timedelta(seconds=1))])
    worker = await worker_on(store, lease_for=timedelta(hours=1))

    async def too_late() -> None:
        clock.advance(2)

    before_the_next_grant(monkeypatch, too_late)
    assert not await worker.claim(1, "q")
    await store.enqueue([a_task(queue="q")])

    assert len(await worker.claim(1, "q")) == 1


@pytest.mark.parametrize("is_fair", [True, False], ids=["fair", "limited"])
async def test_claims_of_one_handle_at_the_same_time_pick_different_tasks(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, *, is_fair: bool
) -> None:
    """Otherwise the second plan is in vain, as a worker has two claims under way."""
    if is_fair:
        await store.put(QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN), OPERATOR)
    else:
        await store.put(Limit(name="calls", queue="q", running=10), OPERATOR)
    batch = some_tasks(6, queue="q")
    await store.enqueue(batch)
    worker = await worker_on(store)
    meanwhile: list[Claimed] = []

    async def claim_too() -> None:
        meanwhile.extend(await worker.claim(3, "q"))

    before_the_next_grant(monkeypatch, claim_too)
    claimed = await worker.claim(3, "q")

    assert [one.task.id for one in (*claimed, *meanwhile)] == [one.id for one in batch]


def before_the_next_grant(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[object]]) -> None:
    """Act between the plan of the next claim and the script that leases what it picked."""
    commit = Database.commit
    waiting = [act]

    async def late(self: Database, script: str, *rest: Any) -> Any:
        if script == "grant" and waiting:
            await waiting.pop()()
        return await commit(self, script, *rest)

    monkeypatch.setattr(Database, "commit", late)


async def test_predecessors_that_complete_at_once_unblock_their_successor(store: RedisStore) -> None:
    worker = await worker_on(store)
    for _ in range(20):
        held = [await enqueue_and_claim(store, worker) for _ in range(3)]
        after = await enqueue_one(store, after=tuple(one.task.id for one in held))
        others = [store.another() for _ in held]

        await asyncio.gather(*(settle_now(one, complete(of)) for one, of in zip(others, held, strict=True)))
        for one in others:
            await one.close()

        assert (await load(store, after)).state is State.READY


async def test_a_large_group_that_several_handles_complete_unblocks_its_successor(store: RedisStore) -> None:
    members = some_tasks(300, queue="members")
    await store.enqueue(members)
    after = await enqueue_one(store, after=tuple(one.id for one in members))
    handles = [store.another() for _ in range(6)]
    workers = [await worker_on(handle, f"w{number}") for number, handle in enumerate(handles)]

    async def drain(number: int) -> None:
        while claimed := await workers[number].claim(7, "members"):
            await settle_now(handles[number], *map(complete, claimed))

    await asyncio.gather(*map(drain, range(6)))
    for handle in handles:
        await handle.close()

    assert (await load(store, after)).state is State.READY


async def test_completing_a_task_of_a_large_group_does_not_read_the_others(
    store: RedisStore, peek: Peek
) -> None:
    members = some_tasks(500, queue="members")
    await store.enqueue(members)
    await enqueue_one(store, after=tuple(one.id for one in members))
    (held,) = await (await worker_on(store)).claim(1, "members")
    before = peek("INFO", "stats")["total_net_output_bytes"]

    await settle_now(store, complete(held))

    assert peek("INFO", "stats")["total_net_output_bytes"] - before < 50_000


async def test_a_successor_enqueued_while_its_predecessor_completes_is_not_left_waiting(
    store: RedisStore,
) -> None:
    worker = await worker_on(store)
    other = store.another()
    for _ in range(20):
        held = await enqueue_and_claim(store, worker)
        late = a_task(after=(held.task.id,))

        await asyncio.gather(settle_now(store, complete(held)), other.enqueue([late]))

        assert (await load(store, late.id)).state is State.READY
    await other.close()


async def test_a_task_that_was_asked_to_stop_since_its_claim_is_cancelled(store: RedisStore) -> None:
    """The handle settles by the task as it claimed it, and must notice that this is outdated."""
    held = await enqueue_and_claim(store, await worker_on(store))
    other = store.another()
    await cancel(other, held.task.id)
    await other.close()

    assert await settle(store, retry(held)) == (Receipt.APPLIED,)
    assert (await load(store, held.task.id)).state is State.CANCELLED


@pytest.mark.parametrize("step", ["claim", "claim by plan", "rescue", "settle", "cancel"])
async def test_a_commit_is_refused_if_a_task_has_changed_since_it_was_read(
    store: RedisStore, clock: ManualClock, step: str
) -> None:
    if step == "claim by plan":
        await store.put(FAIR)
    worker = await worker_on(store)
    task_id = await enqueue_one(store, queue="q")
    held = await worker.claim(1, "q") if step in ("rescue", "settle") else ()
    if step == "rescue":
        clock.advance(60)
        worker = await worker_on(store, "another")
    unit = await store._database.begin()
    (task,) = (await unit.load([task_id])).values()

    match step:
        case "rescue":
            assert len(await store.rescue(worker.session, 1)) == 1
        case "settle":
            await settle_now(store, *map(complete, held))
        case "cancel":
            await cancel(store, task_id)
        case _:
            assert len(await worker.claim(1, "q")) == 1
    changed = await load(store, task_id)

    unit.update(task, cancel_requested=True)
    assert (await store._database.commit("commit", unit))[0] == 0
    assert await load(store, task_id) == changed


async def test_settings_changed_by_another_handle_apply_at_once(store: RedisStore) -> None:
    worker = await worker_on(store)
    await enqueue_one(store, queue="q")
    other = store.another()
    await other.put(QueueSettings(name="q", paused=True))

    assert not await worker.claim(1, "q")

    await other.put(FAIR)
    await enqueue_one(store, queue="q", tenant="b")
    assert {one.task.tenant for one in await worker.claim(2, "q")} == {"", "b"}
    await other.close()


async def test_settings_of_a_store_that_was_deleted_and_filled_again_apply_at_once(
    store: RedisStore, peek: Peek
) -> None:
    """A failover that loses the last change has the same effect: other rules after as many changes."""
    other = store.another()
    await store.put(Limit(name="calls", running=1), OPERATOR)
    await store.enqueue(some_tasks(1, queue="q"))
    assert len(await (await worker_on(other)).claim(3, "q")) == 1

    peek("DEL", *peek("KEYS", f"{{{store.address.name}}}:*"))
    await store.put(Limit(name="calls", running=2), OPERATOR)
    await store.enqueue(some_tasks(3, queue="q"))

    assert len(await (await worker_on(other, "again")).claim(3, "q")) == 2
    await other.close()


async def test_a_claim_beside_others_still_knows_when_to_try_again(
    store: RedisStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims of one handle share a claimer; one without a limit must not hide that another has to wait."""
    await store.put(Limit(name="calls", queue="slow", rate=1.0, burst=1), OPERATOR)
    await store.enqueue(some_tasks(2, queue="slow"))
    worker, waits = await worker_on(store), list[float]()
    shared = claimer.Claimer(Database(store.address, clock), waits.append)

    async def claim_from_another_queue() -> None:
        await shared.claim(worker.next_claim(1, "quick"))

    before_the_next_grant(monkeypatch, claim_from_another_queue)
    await shared.claim(worker.next_claim(2, "slow"))

    assert waits == [1.0]


async def test_a_retention_set_by_another_handle_is_respected(store: RedisStore, clock: ManualClock) -> None:
    await settle_now(store, complete(await enqueue_and_claim(store, await worker_on(store), queue="q")))
    other = store.another()
    await other.put(QueueSettings(name="q", retention=Retention(completed=timedelta(days=30))))
    await other.close()
    clock.advance(60)

    assert (await store.prune(NOTHING, 100)).number == 0


async def test_scripts_that_the_server_has_forgotten_are_sent_again(store: RedisStore, peek: Peek) -> None:
    worker = await worker_on(store)
    for _ in range(2):
        held = await enqueue_and_claim(store, worker)
        peek("SCRIPT FLUSH")
        await settle_now(store, complete(held))


async def test_nothing_is_left_of_tasks_that_were_pruned(
    store: RedisStore, clock: ManualClock, left: Callable[[], set[str]]
) -> None:
    """Whatever a task had: a key, a fingerprint, predecessors, marks, permits, attempts, lanes, an expiry."""
    await store.put(Limit(name="calls", by="tenant", running=9), OPERATOR)
    await store.remove(Limit, "calls", OPERATOR)
    await store.put(Limit(name="calls", by="tenant", running=9, rate=100.0, burst=9), OPERATOR)
    await store.put(FAIR)
    worker = await worker_on(store)
    before = left()
    first = a_task(queue="q", tenant="a", idempotency_key="k", fingerprint="f", expires_in=timedelta(hours=1))
    kept_key = a_task(queue="q", idempotency_key="l", idempotency_for=timedelta(hours=1))
    second = a_task(queue="q", root=first.id, after=(first.id, kept_key.id))
    await store.enqueue([first, kept_key, second, a_task(queue="q", delay=timedelta(seconds=9))])
    await store.promote(10)
    for claimed in await worker.claim(2, "q"):
        await store.once(claimed.lease, "mail")
        await settle_now(store, retry(claimed))
    for claimed in await worker.claim(2, "q"):
        await settle_now(store, complete(claimed))
    (last,) = await worker.claim(2, "q")
    await settle_now(store, bury(last))
    clock.advance(10)
    await store.promote(10)
    await cancel(store, *[task.id for task in await all_tasks(store, Filter(states=(State.READY,)))])
    assert left() > before

    clock.advance(7200)
    pruned = await store.prune(NOTHING, 1000)

    assert pruned.number == 4
    assert (await store.find(Filter(), Page())).items == ()
    assert left() - before == set()


@pytest.mark.parametrize("settings", [QueueSettings(name="q"), FAIR], ids=["fifo", "fair"])
async def test_batches_that_are_settled_and_claimed_in_parts_are_whole(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, settings: QueueSettings
) -> None:
    monkeypatch.setattr(claimer, "CLAIMED_AT_ONCE", 3)
    monkeypatch.setattr(leases, "CLAIMED_AT_ONCE", 3)
    await store.put(settings)
    batch = some_tasks(20, queue="q")
    await store.enqueue(batch)
    worker = await worker_on(store)

    first = await worker.claim(8, "q")
    settled = await store.settle([*map(complete, first[:7]), release(first[7])], worker.next_claim(10, "q"))
    second = await claim_the_rest(worker, settled, 10)
    rest = await store.settle(list(map(complete, second)), worker.next_claim(10, "q"))
    third = await claim_the_rest(worker, rest, 10)

    assert [one.task.id for one in first] == [new.id for new in batch[:8]]
    assert [one.task.id for one in second] == [new.id for new in batch[7:17]]
    assert [one.task.id for one in third] == [new.id for new in batch[17:]]
    assert set(settled.receipts + rest.receipts) == {Receipt.APPLIED}
    assert (len(settled.receipts), len(rest.receipts)) == (8, 10)


async def claim_the_rest(worker: ManualWorker, settled: Settled, limit: int) -> list[Claimed]:
    """Claim as a worker does while the store says that there may be more."""
    claimed = [*settled.claimed]
    while settled.may_claim_more:
        settled = await worker.store.settle([], worker.next_claim(limit - len(claimed), "q"))
        claimed += settled.claimed
    return claimed


async def test_a_part_that_fails_fails_the_call_and_repeating_it_is_harmless(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "CLAIMED_AT_ONCE", 3)
    await store.enqueue(some_tasks(8, queue="q"))
    worker = await worker_on(store)
    batch = list(map(complete, await worker.claim(8, "q")))
    run, calls = Database.run, 0

    async def one_fails(self: Database, script: str, *rest: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StoreUnavailable("the connection was lost")
        return await run(self, script, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "run", one_fails)
        with pytest.raises(StoreUnavailable):
            await store.settle(batch)
    again = await store.settle(batch)

    assert sorted(again.receipts) == sorted([Receipt.REPEATED] * 5 + [Receipt.APPLIED] * 3)
