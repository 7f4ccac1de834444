"""Refusals: what a store cannot do it says, it never pretends."""

from contextlib import suppress

import pytest

from ..._store.protocol import Capability, Durability, Store, require
from ...errors import NotSupported
from .steps import dump


class TestRefusals:
    async def test_a_stranger_cannot_be_joined(self, store: Store) -> None:
        """Whether or not the store can join transactions, this is none of its own."""
        with pytest.raises(NotSupported):
            store.join(object())

    async def test_without_transactions_none_is_begun(self, store: Store) -> None:
        if Capability.JOIN in store.capabilities:
            async with store.transaction() as connection:
                store.join(connection)
        else:
            with pytest.raises(NotSupported):
                store.transaction()

    async def test_without_a_schema_there_is_nothing_to_migrate(self, store: Store) -> None:
        if Capability.MIGRATE in store.capabilities:
            assert [step for step in await store.migrations() if not step.applied] == []
            assert list(await store.migrate()) == []
        else:
            assert list(await store.migrations()) == []
            with pytest.raises(NotSupported):
                await store.migrate()

    @pytest.mark.parametrize("capability", list(Capability), ids=lambda one: str(one.name).lower())
    async def test_the_edge_refuses_what_the_store_lacks(self, store: Store, capability: Capability) -> None:
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

    async def test_a_store_says_what_its_writes_survive(self, store: Store) -> None:
        assert store.promise.durability in Durability
        assert store.promise.why
