"""Completing tasks by one script: it leaves exactly what the rules leave."""

from datetime import timedelta
from typing import Any

import pytest
import redis

from tests.servers.redis import Redis
from tests.stores.redis.conftest import Peek
from windlass._model.limit import Limit
from windlass._model.queue import Fairness, QueueSettings
from windlass._model.state import State
from windlass._model.task import synthetic_trace
from windlass._model.verdict import Receipt
from windlass._stores.redis import RedisStore, leases
from windlass._stores.redis.keys import Keys, packed
from windlass.testing.conformance.steps import (
    OPERATOR,
    cancel,
    complete,
    enqueue_and_claim,
    load,
    retry,
    settle,
    settle_now,
    some_tasks,
    worker_on,
)

TRACE = synthetic_trace(7)
FAIR = QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN)
CAPPED = Limit(name="calls", by="tenant", running=2)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"tenant": "t", "priority": 7},
        {"payload": b'{"text":"' + b"x" * 2_000 + b'"}'},
        {"idempotency_key": "key"},
        {"fingerprint": "print"},
        {"expires_in": timedelta(hours=1)},
        {"max_attempts": 1},
    ],
    ids=["plain", "tenant", "long", "key", "fingerprint", "expiry", "one attempt"],
)
@pytest.mark.parametrize("settings", [None, FAIR, CAPPED], ids=["fifo", "fair", "capped"])
async def test_it_leaves_what_the_rules_leave(
    store: RedisStore,
    peek: Peek,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    settings: QueueSettings | Limit | None,
) -> None:
    keys, rows, scores = Keys(store.address.name), [], []
    if settings is not None:
        await store.put(settings, OPERATOR)
    for number in (1, 2):
        if number == 2:
            monkeypatch.setattr(leases, "completions", lambda *_: None)
        other = {"idempotency_key": f"key {number}"} if "idempotency_key" in given else {}
        worker = await worker_on(store)
        held = await enqueue_and_claim(store, worker, queue="q", trace=TRACE, **given | other)

        assert await settle(store, complete(held, b"[1]")) == (Receipt.APPLIED,)

        rows.append(peek("GET", keys.task(held.task.id)).replace(f"key {number}".encode(), b"key"))
        sets = [name for name in peek("KEYS", f"{keys.prefix}*") if peek("TYPE", name) == b"zset"]
        found = {name: peek("ZSCORE", name, packed(held.task.id)) for name in sets}
        scores.append({name: score for name, score in found.items() if score is not None})
        assert peek("HLEN", keys.held(worker.session)) == 0
        assert not peek("KEYS", f"{keys.prefix}u:*")
        assert (await load(store, held.task.id)).state is State.COMPLETED
        assert await settle(store, complete(held, b"[1]")) == (Receipt.REPEATED,)

    assert rows[0] == rows[1]
    assert scores[0] == scores[1]
    assert {name.split(b":")[1] for name in scores[0]} == {b"ids", b"g", b"e"}


async def test_a_task_that_was_cancelled_meanwhile_completes_by_the_rules(store: RedisStore) -> None:
    worker = await worker_on(store)
    held = await enqueue_and_claim(store, worker)
    await cancel(store, held.task.id)

    assert await settle(store, complete(held)) == (Receipt.APPLIED,)

    task = await load(store, held.task.id)
    assert (task.state, task.cancel_requested) == (State.COMPLETED, True)


async def test_completions_and_other_verdicts_are_settled_together(store: RedisStore) -> None:
    await store.enqueue(some_tasks(3))
    worker = await worker_on(store)
    first, second, third = await worker.claim(3)

    receipts = await settle(store, complete(first), retry(second), complete(third))

    assert receipts == (Receipt.APPLIED,) * 3
    states = [(await load(store, one.task.id)).state for one in (first, second, third)]
    assert states == [State.COMPLETED, State.READY, State.COMPLETED]


async def test_a_permit_that_is_given_back_wakes_those_who_wait_for_it(
    store: RedisStore, valkey: Redis
) -> None:
    await store.put(Limit(name="calls", running=1), OPERATOR)
    await store.enqueue(some_tasks(2))
    worker = await worker_on(store)
    (held,) = await worker.claim(2)
    client: Any = redis.Redis(port=valkey.port)
    with client.pubsub() as listener:
        listener.subscribe(Keys(store.address.name).wakes)
        assert listener.get_message(timeout=10)["type"] == "subscribe"

        await settle_now(store, complete(held))

        assert listener.get_message(timeout=10)["data"] == b"r"
    client.close()
    assert len(await worker.claim(2)) == 1
