"""Lead: one keeper at a time."""

import asyncio
from datetime import timedelta

from ..steps import StoreTest

TERM = timedelta(seconds=10)
NOTHING = timedelta(0)


class TestLead(StoreTest):
    async def test_only_one_holder_leads(self) -> None:
        assert await self.store.lead("a", TERM)
        assert not await self.store.lead("b", TERM)
        assert await self.store.lead("a", TERM)

    async def test_the_lead_expires(self) -> None:
        await self.store.lead("a", TERM)
        self.clock.advance(TERM - timedelta(microseconds=1))
        assert not await self.store.lead("b", TERM)
        self.clock.advance(timedelta(microseconds=1))

        assert await self.store.lead("b", TERM)
        assert not await self.store.lead("a", TERM)

    async def test_leading_again_renews_the_lead(self) -> None:
        await self.store.lead("a", TERM)
        self.clock.advance(TERM / 2)
        await self.store.lead("a", TERM)
        self.clock.advance(TERM / 2)

        assert not await self.store.lead("b", TERM)

    async def test_releasing_the_lead_frees_it_at_once(self) -> None:
        await self.store.lead("a", TERM)

        assert not await self.store.lead("a", NOTHING)
        assert await self.store.lead("b", TERM)

    async def test_only_the_leader_can_release_the_lead(self) -> None:
        await self.store.lead("a", TERM)

        assert not await self.store.lead("b", NOTHING)
        assert not await self.store.lead("c", TERM)
        assert await self.store.lead("a", TERM)

    async def test_releasing_a_lead_that_is_free_is_harmless(self) -> None:
        assert not await self.store.lead("a", NOTHING)
        assert await self.store.lead("b", TERM)

    async def test_a_clock_that_was_set_back_does_not_prolong_a_lead(self) -> None:
        await self.store.lead("a", TERM)
        self.clock.advance(timedelta(hours=-1))

        assert not await self.store.lead("b", NOTHING)
        assert await self.store.lead("b", TERM)
        assert not await self.store.lead("a", TERM)

    async def test_a_leader_keeps_its_lead_when_the_clock_is_set_back(self) -> None:
        await self.store.lead("a", TERM)
        self.clock.advance(timedelta(hours=-1))

        assert await self.store.lead("a", TERM)
        assert not await self.store.lead("b", TERM)

    async def test_only_one_of_many_concurrent_candidates_leads(self) -> None:
        handles = [self.store.another() for _ in range(5)]
        for handle in handles:
            await handle.open()

        answers = await asyncio.gather(
            *(handle.lead(f"keeper-{number}", TERM) for number, handle in enumerate(handles))
        )
        for handle in handles:
            await handle.close()

        assert sorted(answers) == [False, False, False, False, True]
