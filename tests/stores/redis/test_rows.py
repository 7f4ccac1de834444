"""Rows: documents inside them and outside, and rows that are damaged."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from tests.stores.redis.conftest import Peek
from windlass._ids import new_ids
from windlass._model.filter import Filter, Page, Rewrite, Rewritten, TaskDocuments, documents_of
from windlass._model.lease import ProgressReport
from windlass._model.limit import Limit
from windlass._model.queue import Retention
from windlass._model.task import DAMAGED, Progress, synthetic_trace
from windlass._stores.redis import RedisStore
from windlass._stores.redis.keys import Keys, packed, unpacked
from windlass._stores.redis.rows import LONGEST_INSIDE
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    OPERATOR,
    all_tasks,
    bury,
    cancel,
    complete,
    discard,
    enqueue_and_claim,
    enqueue_and_settle,
    enqueue_one,
    load,
    settle_now,
    take_over,
    worker_on,
)

NOTHING = Retention(completed=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))
SHORT = b'{"text":"short"}'
LONG = b'{"text":"' + b"x" * LONGEST_INSIDE + b'"}'


@pytest.mark.parametrize(("payload", "other"), [(SHORT, LONG), (LONG, SHORT)], ids=["short", "long"])
async def test_a_payload_of_any_length_stays_with_its_task(
    store: RedisStore, clock: ManualClock, left: Callable[[], set[str]], payload: bytes, other: bytes
) -> None:
    before = left()
    held = await enqueue_and_claim(store, await worker_on(store), payload=payload)
    task_id = held.task.id
    assert held.task.payload == (await load(store, task_id)).payload == payload
    assert (f"d:{task_id}" in left()) == (payload is LONG)

    await rewrite(store, task_id, other)
    assert (await load(store, task_id)).payload == other
    assert (f"d:{task_id}" in left()) == (other is LONG)

    _, rescued = await take_over(store, clock, held)
    assert rescued.task.payload == other
    await settle_now(store, complete(rescued))
    assert (await load(store, task_id)).payload == other

    clock.advance(60)
    await store.prune(NOTHING, 10)
    assert not any(task_id in name for name in left() - before)


async def rewrite(store: RedisStore, task_id: str, payload: bytes) -> None:
    task = await load(store, task_id)
    new = Rewritten(id=task_id, before=documents_of(task), after=TaskDocuments(payload=payload))
    assert (await store.apply(Rewrite(by=OPERATOR, tasks=(new,)), Filter(), 1)).ids == (task_id,)


@pytest.mark.parametrize("payload", [SHORT, LONG], ids=["short", "long"])
async def test_a_heartbeat_changes_the_progress_and_nothing_else(store: RedisStore, payload: bytes) -> None:
    worker = await worker_on(store)
    held = await enqueue_and_claim(store, worker, payload=payload)
    await cancel(store, held.task.id)
    before = await load(store, held.task.id)
    half = Progress(fraction=0.5, message="half")

    reply = await worker.report(ProgressReport(held.lease, half), held=[held.lease])

    after = await load(store, held.task.id)
    assert after.progress == half
    assert replace(after, progress=None) == before
    assert [(one.by, one.reason) for one in reply.cancel] == [(before.cancelled_by, before.cancel_reason)]


@pytest.mark.parametrize("kept", [0, 3, 55, 60], ids=lambda kept: f"{kept} bytes")
async def test_a_row_that_was_cut_off_hides_no_other(store: RedisStore, peek: Peek, kept: int) -> None:
    damaged, other = [await enqueue_one(store), await enqueue_one(store)]
    key = Keys(store.address.name).task(damaged)
    peek("SET", key, peek("GETRANGE", key, 0, kept - 1) if kept else b"")

    found = {task.id: task for task in await all_tasks(store)}
    claimed = await (await worker_on(store)).claim(10)

    assert found[damaged].error is not None
    assert found[damaged].error.type == DAMAGED
    assert found[other].error is None
    assert other in {one.task.id for one in claimed}


async def test_a_damaged_task_gives_back_its_permits(store: RedisStore, peek: Peek) -> None:
    await store.put(Limit(name="calls", running=1))
    worker = await worker_on(store)
    held = await enqueue_and_claim(store, worker)
    key = Keys(store.address.name).task(held.task.id)
    row = peek("GET", key)
    peek("SET", key, row[:-5] + b"\xc1" * 5)  # \xc1 is no MessagePack
    await settle_now(store, bury(held))

    assert held.task.id in {task.id for task in await all_tasks(store)}
    assert await enqueue_and_claim(store, worker)


async def test_a_damaged_join_that_is_discarded_keeps_no_results(
    store: RedisStore, clock: ManualClock, peek: Peek
) -> None:
    """Whether it takes results is part of what cannot be read."""
    worker = await worker_on(store)
    done = await enqueue_and_settle(store, worker, complete)
    held = await enqueue_and_claim(store, worker, after=(done.task.id,), result_into="results")
    await settle_now(store, bury(held))
    key = Keys(store.address.name).task(held.task.id)
    row = peek("GET", key)
    peek("SET", key, row[:-5] + b"\xc1" * 5)

    assert await discard(store, held.task.id)

    clock.advance(1)
    assert (await store.prune(NOTHING, limit=10)).number == 1
    assert await all_tasks(store) == []


@pytest.mark.parametrize(
    "trace",
    [
        f"00-{'0af7651916cd43dd8448eb211c80319c'}-b7ad6b7169203331-01",
        f"00-{'0AF7651916CD43DD8448EB211C80319C'}-b7ad6b7169203331-01",
        synthetic_trace(0x0AF7651916CD43DD8448EB211C80319C),
        synthetic_trace(0x3DF7651916CD43DD8448EB211C80319C),  # begins with what marks other text
        "0" * 55,
        f"{'0' * 53}é",
        "anything",
        None,
    ],
)
async def test_a_trace_stays_as_it_is(store: RedisStore, trace: str | None) -> None:
    assert (await load(store, await enqueue_one(store, trace=trace))).trace == trace


def test_an_id_is_packed_in_16_bytes_in_the_order_of_its_text() -> None:
    ids = [*(str(UUID(int=number << 60)) for number in range(40)), *new_ids(40)]

    assert [unpacked(packed(one)) for one in ids] == ids
    assert {len(packed(one)) for one in ids} == {16}
    assert sorted(ids, key=packed) == sorted(ids)


@pytest.mark.parametrize("text", ["", "nobody", "\x00" * 16, "x" * 16, str(UUID(int=11)).upper(), "ü" * 8])
async def test_an_id_that_is_no_uuid_is_never_taken_for_another(store: RedisStore, text: str) -> None:
    await enqueue_one(store)

    assert unpacked(packed(text)) == text
    assert len(packed(text)) != 16
    assert (await store.find(Filter(ids=(text,)), Page(limit=10))).items == ()


async def test_the_leases_of_a_session_are_no_list(store: RedisStore, peek: Peek) -> None:
    worker = await worker_on(store)
    await enqueue_and_claim(store, worker)

    held = f"{{{store.address.name}}}:h:{worker.session}"
    assert peek("OBJECT", "ENCODING", held) == b"hashtable"
    assert [int(number) for number in peek("HVALS", held)] == [1]
