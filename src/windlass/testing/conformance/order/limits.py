"""Limits: caps are never exceeded, and tasks that they hold up do not block others."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ...._model.limit import Limit
from ...._model.queue import Fairness, Level, QueueSettings
from ...._model.record import Session
from ...._store.protocol import Store
from ..steps import ENDINGS, LEASE, ManualWorker, StoreTest, a_task, complete, release, some_tasks, worker_on

ONE = Limit(name="one", queue="q", running=1)
BY_ACCOUNT = Limit(name="account", type="ledger.post", by="account", running=1)


def posting(account: object, **changes: Any) -> Any:
    """Return a task with an account in its payload."""
    payload = msgspec.json.encode({"account": account, "cents": 5})
    return a_task(**{"queue": "q", "type": "ledger.post", "payload": payload, **changes})


async def started(worker: ManualWorker, limit: int = 100, *queues: str) -> int:
    """Claim from queue q and return the number of tasks."""
    return len(await worker.claim(limit, *(queues or ("q",))))


class LimitTest(StoreTest):
    """Base of the test classes on limits."""

    async def limit(self, limit: Limit, tasks: int) -> None:
        """Put the limit, and enqueue tasks in queue q."""
        await self.store.put(limit)
        await self.store.enqueue(some_tasks(tasks, queue="q"))


class TestCaps(LimitTest):
    async def test_a_cap_on_a_queue(self, worker: ManualWorker) -> None:
        await self.limit(replace(ONE, running=3), tasks=10)

        assert [await started(worker), await started(worker)] == [3, 0]

    async def test_a_cap_on_a_type(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="mail", type="mail.send", running=2))
        await self.store.enqueue([a_task(queue=queue) for queue in ("q", "p") for _ in range(3)])
        await self.store.enqueue(some_tasks(3, queue="q", type="other"))

        claimed = await worker.claim(100, "q", "p")

        assert Counter(one.task.type for one in claimed) == {"mail.send": 2, "other": 3}

    async def test_a_cap_on_one_tenant(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="bob", tenant="bob", running=1))
        for tenant in ("bob", "ada"):
            await self.store.enqueue(some_tasks(4, queue="q", tenant=tenant))

        assert Counter(one.task.tenant for one in await worker.claim(100, "q")) == {"bob": 1, "ada": 4}

    @pytest.mark.parametrize("fairness", list(Fairness), ids=lambda one: one.value)
    async def test_a_cap_on_each_tenant(self, worker: ManualWorker, fairness: Fairness) -> None:
        await self.store.put(QueueSettings(name="q", fairness=fairness))
        await self.store.put(Limit(name="each", by="tenant", running=2))
        for number in range(5):
            await self.store.enqueue(some_tasks(4, queue="q", tenant=f"t{number}"))

        claimed = [*await worker.claim(100, "q"), *await worker.claim(100, "q")]

        assert Counter(one.task.tenant for one in claimed) == {f"t{number}": 2 for number in range(5)}

    async def test_a_cap_on_each_value_of_a_payload_field(self, worker: ManualWorker) -> None:
        await self.store.put(BY_ACCOUNT)
        accounts = ["a", "b", 7, None, "x" * 500, {"deep": [1]}]
        await self.store.enqueue([posting(account) for account in accounts for _ in range(3)])

        first = await worker.claim(100, "q")
        paid = [msgspec.json.decode(one.task.payload)["account"] for one in first]

        assert sorted(map(str, paid)) == sorted(map(str, accounts))
        assert await started(worker) == 0

    async def test_a_cap_on_each_host_of_urls(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="polite", by="url.host", running=1))
        urls = [f"https://{host}/{page}" for host in ("a.example", "b.example:81") for page in range(3)]
        payloads = [msgspec.json.encode({"url": url}) for url in urls]
        await self.store.enqueue([a_task(queue="q", payload=payload) for payload in payloads])

        first = await worker.claim(100, "q")
        hosts = [msgspec.json.decode(one.task.payload)["url"].split("/")[2] for one in first]

        assert sorted(hosts) == ["a.example", "b.example:81"]
        assert await started(worker) == 0

    async def test_tasks_without_the_field_are_counted_together(self, worker: ManualWorker) -> None:
        await self.store.put(BY_ACCOUNT)
        await self.store.enqueue(some_tasks(3, queue="q", type="ledger.post", payload=b"{}"))

        assert await started(worker) == 1

    async def test_several_limits_apply_together(self, worker: ManualWorker) -> None:
        await self.store.put(Limit(name="all", queue="q", running=4))
        await self.store.put(Limit(name="each", queue="q", by="tenant", running=3))
        await self.store.put(BY_ACCOUNT)
        await self.store.enqueue([posting("same", tenant="ada") for _ in range(5)])
        await self.store.enqueue(some_tasks(5, queue="q", tenant="ada"))
        await self.store.enqueue(some_tasks(5, queue="q", tenant="bob"))

        claimed = await worker.claim(100, "q")

        assert len(claimed) == 4
        assert Counter(one.task.tenant for one in claimed)["ada"] <= 3
        assert Counter(one.task.type for one in claimed)["ledger.post"] <= 1

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_every_verdict_returns_the_permit(self, worker: ManualWorker, ending: str) -> None:
        await self.limit(ONE, tasks=2)
        (first,) = await worker.claim(5, "q")

        await self.settle_now(ENDINGS[ending](first))

        assert await started(worker) == 1

    async def test_permits_of_tasks_settled_in_the_same_call_are_free(self, worker: ManualWorker) -> None:
        await self.limit(ONE, tasks=2)
        (first,) = await worker.claim(5, "q")

        settled = await self.store.settle([complete(first)], worker.next_claim(5, "q"))

        assert len(settled.claimed) == 1

    async def test_a_stale_settlement_returns_no_permit(self, worker: ManualWorker) -> None:
        await self.limit(ONE, tasks=2)
        (stale,) = await worker.claim(1, "q")
        rescuer, rescued = await self.take_over(stale)

        await self.store.settle([complete(stale)])
        before = await started(rescuer)
        await self.settle_now(complete(rescued))

        assert [before, await started(rescuer)] == [0, 1]

    async def test_a_dead_workers_permit_is_returned_after_its_rescue(self, worker: ManualWorker) -> None:
        await self.limit(ONE, tasks=2)
        await worker.claim(1, "q")
        self.clock.advance(LEASE)
        rescuer = await self.new_worker("rescuer")

        before = await started(rescuer)  # It may still be running.
        (rescued,) = await rescuer.rescue()
        still = await started(rescuer)
        await self.settle_now(release(rescued))

        assert [before, still, await started(rescuer)] == [0, 0, 1]

    async def test_a_forgotten_session_still_holds_its_permits(self, worker: ManualWorker) -> None:
        await self.limit(ONE, tasks=2)
        await worker.claim(1, "q")

        await self.store.remove(Session, worker.session)

        assert await started(await self.new_worker("another")) == 0

    async def test_a_claim_whose_reply_was_lost_is_released_with_its_permit(
        self, worker: ManualWorker
    ) -> None:
        await self.limit(ONE, tasks=2)
        await worker.claim(1, "q")  # The reply is lost.

        await worker.beat(through=worker.claims)

        assert await started(worker) == 1


class TestLimitChanges(LimitTest):
    async def test_a_lowered_cap_applies_at_once(self, worker: ManualWorker) -> None:
        await self.limit(replace(ONE, running=3), tasks=10)
        claimed = await worker.claim(5, "q")

        await self.store.put(replace(ONE, running=2))
        await self.settle_now(complete(claimed[0]))
        full = await started(worker)
        await self.settle_now(complete(claimed[1]))

        assert [len(claimed), full, await started(worker)] == [3, 0, 1]

    async def test_raising_or_removing_a_cap_applies_at_once(self, worker: ManualWorker) -> None:
        await self.limit(ONE, tasks=10)
        numbers = [await started(worker)]

        await self.store.put(replace(ONE, running=4))
        numbers.append(await started(worker))
        await self.store.remove(Limit, "one")

        assert [*numbers, await started(worker)] == [1, 3, 6]

    async def test_a_cap_of_zero_stops_everything(self, worker: ManualWorker) -> None:
        await self.limit(replace(ONE, running=0), tasks=1)

        assert await started(worker) == 0

    async def test_a_new_limit_counts_tasks_that_are_already_running(self, worker: ManualWorker) -> None:
        await self.store.enqueue(some_tasks(10, queue="q"))
        claimed = await worker.claim(3, "q")

        await self.store.put(replace(ONE, running=2))
        numbers = [await started(worker)]
        await self.settle_now(*map(complete, claimed[:2]))
        numbers.append(await started(worker))
        await self.settle_now(complete(claimed[2]))

        assert [*numbers, await started(worker)] == [0, 1, 1]

    async def test_a_new_limit_applies_to_tasks_that_are_already_waiting(self, worker: ManualWorker) -> None:
        await self.store.enqueue([posting("a") for _ in range(50)] + [posting("b") for _ in range(2)])

        await self.store.put(BY_ACCOUNT)

        assert await started(worker) == 2

    async def test_a_limit_set_through_one_handle_applies_to_another(self, other: Store) -> None:
        worker = await worker_on(other)
        await self.store.enqueue(some_tasks(10, queue="q"))
        before = await started(worker, 1)

        await self.store.put(replace(ONE, running=2))

        assert [before, await started(worker)] == [1, 1]

    async def test_removing_a_limit_loses_no_waiting_task(self, worker: ManualWorker) -> None:
        await self.store.put(BY_ACCOUNT)
        new = [posting(number % 3) for number in range(30)]
        await self.store.enqueue(new)
        claimed = await worker.claim_ids(100, "q")
        await self.store.remove(Limit, BY_ACCOUNT.name)

        while more := await worker.claim_ids(7, "q"):
            claimed += more

        assert sorted(claimed) == sorted(task.id for task in new)


class TestOthersUnaffected(LimitTest):
    """Tasks that a limit holds up do not block others."""

    async def test_other_tasks_of_the_queue_are_claimed(self, worker: ManualWorker) -> None:
        await self.store.put(BY_ACCOUNT)
        await self.store.enqueue([posting("a") for _ in range(300)])
        others = some_tasks(5, queue="q")
        await self.store.enqueue([*others, posting("b")])

        claimed = {one.task.id for one in await worker.claim(10, "q")}

        assert len(claimed) == 7
        assert {task.id for task in others} <= claimed

    async def test_many_limited_tasks_do_not_hide_one_that_may_start(self, worker: ManualWorker) -> None:
        await self.store.put(BY_ACCOUNT)
        await self.store.enqueue([posting(number) for number in range(200)])
        running = 0
        while running < 200:
            running += len(claimed := await worker.claim(100, "q"))
            assert claimed
        await self.store.enqueue([posting(number) for number in range(200)])
        free = await self.enqueue_one(queue="q", type="ledger.post", payload=b'{"account":"new"}')

        claimed = await worker.claim(5, "q")
        for _ in range(5):  # A claim may examine only some of them.
            claimed = claimed or await worker.claim(5, "q")

        assert [one.task.id for one in claimed] == [free]

    async def test_other_queues_are_claimed(self, worker: ManualWorker) -> None:
        await self.store.put(replace(ONE, running=0))
        await self.store.enqueue([*some_tasks(50, queue="q"), *some_tasks(5, queue="p")])

        assert await started(worker, 100, "q", "p") == 5

    async def test_the_oldest_task_that_may_start_is_claimed_first(self, worker: ManualWorker) -> None:
        await self.store.put(BY_ACCOUNT)
        order = [posting(account) for account in "abab"]
        await self.store.enqueue(order)

        assert await worker.claim_ids(10, "q") == [order[0].id, order[1].id]

    async def test_claims_for_a_level_respect_limits(self, worker: ManualWorker) -> None:
        await self.store.put(ONE)
        await self.store.enqueue(some_tasks(3, queue="q", priority=-5))
        claims = [replace(worker.next_claim(5, "q"), level=Level.LOW) for _ in range(2)]

        assert [len(await self.store.claim(one)) for one in claims] == [1, 0]
