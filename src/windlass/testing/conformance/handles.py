"""Handles, capabilities and health: opening, closing, and refusing what a store cannot do."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from ..._model.lease import Claimed
from ..._model.state import State
from ..._model.task import Enqueued, NewTask
from ..._store.protocol import Capability, Durability, Severity, Store, require
from ...errors import NotSupported
from .steps import StoreTest, all_tasks, complete, dump, settle_now, some_tasks


class TestHandles(StoreTest):
    async def test_opening_and_closing_twice_is_harmless(self) -> None:
        task_id = await self.enqueue_one()
        await self.store.open()
        assert await self.state_of(task_id) is State.READY

        await self.store.close()
        await self.store.close()

    async def test_another_handle_sees_the_same_tasks(self, other: Store) -> None:
        task_id = await self.enqueue_one()

        seen = await dump(other)

        assert seen == await self.dump()
        assert [task.id for task in seen.tasks] == [task_id]

    async def test_a_lease_is_settled_through_any_handle(self, held: Claimed, other: Store) -> None:
        await settle_now(other, complete(held))

        assert await self.state_of(held.task.id) is State.COMPLETED

    async def test_closing_one_handle_leaves_the_others_open(self, other: Store) -> None:
        await other.close()

        assert (await self.load(await self.enqueue_one())).state is State.READY

    async def test_handles_share_the_clock(self, other: Store) -> None:
        self.clock.advance(1)

        assert await other.now() == await self.store.now() == self.clock.now()


class TestCheck(StoreTest):
    async def test_a_fresh_store_has_no_errors(self) -> None:
        findings = await self.store.check()

        assert [finding for finding in findings if finding.severity is Severity.ERROR] == []
        assert all(finding.subject and finding.message for finding in findings)


class TestCapabilities(StoreTest):
    async def test_a_foreign_connection_cannot_be_joined(self) -> None:
        """Whether or not the store supports joins, this is not its connection."""
        with pytest.raises(NotSupported):
            self.store.join(object())

    async def test_a_store_without_transactions_refuses_one(self) -> None:
        if Capability.JOIN in self.store.capabilities:
            async with self.store.transaction() as connection:
                self.store.join(connection)
        else:
            with pytest.raises(NotSupported):
                self.store.transaction()

    async def test_a_store_without_a_schema_has_no_migrations(self) -> None:
        if Capability.MIGRATE in self.store.capabilities:
            assert [step for step in await self.store.migrations() if not step.applied] == []
            assert list(await self.store.migrate()) == []
        else:
            assert list(await self.store.migrations()) == []
            with pytest.raises(NotSupported):
                await self.store.migrate()

    @pytest.mark.parametrize("capability", list(Capability), ids=lambda one: str(one.name).lower())
    async def test_require_refuses_capabilities_that_the_store_lacks(self, capability: Capability) -> None:
        if capability in self.store.capabilities:
            require(self.store, capability, "be refused")
        else:
            with pytest.raises(NotSupported, match="this store cannot"):
                require(self.store, capability, "do that")

    async def test_a_store_that_can_block_enqueues_without_an_event_loop(self) -> None:
        """In threads of their own, each with a call that never waits for an event loop."""
        if Capability.BLOCK not in self.store.capabilities:
            pytest.skip("this store needs an event loop")
        tasks = some_tasks(20)
        keyed = [replace(new, idempotency_key=f"key {n % 10}") for n, new in enumerate(some_tasks(20))]

        calls = [self._open_and_enqueue(new) for new in (*tasks, *keyed)]
        results = await asyncio.gather(*[asyncio.to_thread(_run_without_loop, call) for call in calls])

        assert [one.id for one in results[:20] if one.created] == [new.id for new in tasks]
        assert {one.id for one in results} == {task.id for task in await all_tasks(self.store)}
        assert sum(one.created for one in results) == 30

    async def _open_and_enqueue(self, new: NewTask) -> Enqueued:
        await self.store.open()
        return (await self.store.enqueue([new]))[0]

    async def test_a_refusal_changes_nothing(self) -> None:
        async with self.unchanged():
            with suppress(NotSupported):
                self.store.join(object())
            with suppress(NotSupported):
                await self.store.migrate()

    async def test_a_store_declares_the_durability_of_its_writes(self) -> None:
        assert self.store.promise.durability in Durability
        assert self.store.promise.why


def _run_without_loop(call: Coroutine[Any, Any, Enqueued]) -> Enqueued:
    with pytest.raises(StopIteration) as end:
        call.send(None)
    result: Enqueued = end.value.value
    return result
