"""Handles, capabilities and health: opening, closing, and refusing what a store cannot do."""

from contextlib import suppress

import pytest

from ..._model.state import State
from ..._store.protocol import Capability, Durability, Severity, Store, require
from ...errors import NotSupported
from ..clock import ManualClock
from .steps import complete, dump, enqueue_and_claim, enqueue_one, load, settle_now, state_of, worker_on


class TestHandles:
    async def test_opening_and_closing_twice_is_harmless(self, store: Store) -> None:
        task_id = await enqueue_one(store)
        await store.open()
        assert await state_of(store, task_id) is State.READY

        await store.close()
        await store.close()

    async def test_another_handle_sees_the_same_tasks(self, store: Store) -> None:
        task_id = await enqueue_one(store)
        other = store.another()
        await other.open()

        seen = await dump(other)
        await other.close()

        assert seen == await dump(store)
        assert [task.id for task in seen.tasks] == [task_id]

    async def test_a_lease_is_settled_through_any_handle(self, store: Store) -> None:
        held = await enqueue_and_claim(store, await worker_on(store))
        other = store.another()
        await other.open()

        await settle_now(other, complete(held))
        await other.close()

        assert await state_of(store, held.task.id) is State.COMPLETED

    async def test_closing_one_handle_leaves_the_others_open(self, store: Store) -> None:
        other = store.another()
        await other.open()
        await other.close()

        assert (await load(store, await enqueue_one(store))).state is State.READY

    async def test_handles_share_the_clock(self, store: Store, clock: ManualClock) -> None:
        other = store.another()
        await other.open()
        clock.advance(1)

        assert await other.now() == await store.now() == clock.now()
        await other.close()


class TestCheck:
    async def test_a_fresh_store_has_no_errors(self, store: Store) -> None:
        findings = await store.check()

        assert [finding for finding in findings if finding.severity is Severity.ERROR] == []
        assert all(finding.subject and finding.message for finding in findings)


class TestCapabilities:
    async def test_a_foreign_connection_cannot_be_joined(self, store: Store) -> None:
        """Whether or not the store supports joins, this is not its connection."""
        with pytest.raises(NotSupported):
            store.join(object())

    async def test_a_store_without_transactions_refuses_one(self, store: Store) -> None:
        if Capability.JOIN in store.capabilities:
            async with store.transaction() as connection:
                store.join(connection)
        else:
            with pytest.raises(NotSupported):
                store.transaction()

    async def test_a_store_without_a_schema_has_no_migrations(self, store: Store) -> None:
        if Capability.MIGRATE in store.capabilities:
            assert [step for step in await store.migrations() if not step.applied] == []
            assert list(await store.migrate()) == []
        else:
            assert list(await store.migrations()) == []
            with pytest.raises(NotSupported):
                await store.migrate()

    @pytest.mark.parametrize("capability", list(Capability), ids=lambda one: str(one.name).lower())
    async def test_require_refuses_capabilities_that_the_store_lacks(
        self, store: Store, capability: Capability
    ) -> None:
        if capability in store.capabilities:
            require(store, capability, "be refused")
        else:
            with pytest.raises(NotSupported, match="this store cannot"):
                require(store, capability, "do that")

    async def test_a_refusal_changes_nothing(self, store: Store) -> None:
        before = await dump(store)

        with suppress(NotSupported):
            store.join(object())
        with suppress(NotSupported):
            await store.migrate()

        assert await dump(store) == before

    async def test_a_store_declares_the_durability_of_its_writes(self, store: Store) -> None:
        assert store.promise.durability in Durability
        assert store.promise.why
