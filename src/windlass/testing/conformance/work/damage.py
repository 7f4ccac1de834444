"""Damaged tasks: one that cannot be read hides no other, and can be claimed, settled, shown and discarded."""

from typing import Any

import pytest

from ...._model.filter import Filter, Page
from ...._model.limit import Limit
from ...._model.record import Audit
from ...._model.state import State
from ...._model.task import DAMAGED
from ...._model.verdict import Receipt
from ....errors import InvalidOption, InvalidPayload, StoreError
from ..steps import EVERYTHING, StoreTest, a_task, bury, complete

BAD: list[dict[str, Any]] = [
    {"payload": b"boo"},
    {"payload": b""},
    {"payload": b"\xff\xfe"},
    {"payload": b'{"x":"\xff"}'},
    {"payload": b"[]"},
    {"payload": b"null", "secret": ("card",)},
    {"payload": b"[" * 5_000},
    {"next": b"boo"},
    {"next": b"\xff"},
    {"next": b'[{"id":1}]'},
    {"next": b"[" * 5_000},
]
REFUSED = (InvalidOption, InvalidPayload, StoreError)


class TestDamage(StoreTest):
    @pytest.mark.parametrize("number", range(len(BAD)))
    async def test_a_damaged_task_hides_no_other_and_can_be_discarded(self, number: int) -> None:
        batch = [a_task(), bad := a_task(**BAD[number]), a_task()]
        try:
            await self.store.enqueue(batch)
        except REFUSED:  # over HTTP it is refused
            assert not (await self.store.find(EVERYTHING, Page())).items
            return

        found = (await self.store.find(EVERYTHING, Page())).items
        documents = {task.id: task.as_dict() for task in found}
        claimed = await (await self.new_worker()).claim(10)
        settled = await self.store.settle(
            [bury(one) if one.task.id == bad.id else complete(one) for one in claimed]
        )

        assert [task.id for task in found] == [new.id for new in batch]
        assert documents[bad.id]["error"]["type"] == DAMAGED
        assert [documents[new.id]["error"] for new in (batch[0], batch[2])] == [None, None]
        assert len(claimed) == 3
        assert set(settled.receipts) == {Receipt.APPLIED}
        assert [task.state for task in await self.all_dead()] == [State.DEAD]
        await self.replay(bad.id)
        again = await (await self.new_worker("again")).claim_one()
        await self.settle_now(bury(again))
        assert await self.discard(bad.id)
        assert [line.action for line in await self.all_records(Audit)] == ["replay", "discard"]

    @pytest.mark.parametrize("payload", [b"boo", b"[]", b"\xff"])
    async def test_a_damaged_task_does_not_stop_a_limited_queue(self, payload: bytes) -> None:
        await self.store.put(Limit(name="calls", by="customer", running=5))
        try:
            await self.store.enqueue([a_task(payload=payload), a_task()])
        except REFUSED:
            return

        assert len(await (await self.new_worker()).claim(10)) == 2

    async def all_dead(self) -> Any:
        return (await self.store.find(Filter(states=(State.DEAD,)), Page())).items
