"""Opening, closing, further handles and a store's health."""

from ..._model.state import State
from ..._store.protocol import Severity, Store
from ..clock import ManualClock
from .steps import applied, complete, dump, get, running, stand, state_of, worker_on


class TestHandles:
    async def test_opening_and_closing_twice_is_harmless(self, store: Store) -> None:
        task_id = await stand(store)
        await store.open()
        assert await state_of(store, task_id) is State.READY

        await store.close()
        await store.close()

    async def test_another_handle_sees_the_same_tasks(self, store: Store) -> None:
        task_id = await stand(store)
        other = store.another()
        await other.open()

        seen = await dump(other)
        await other.close()

        assert seen == await dump(store)
        assert [task.id for task in seen.tasks] == [task_id]

    async def test_a_lease_is_settled_through_any_handle(self, store: Store) -> None:
        held = await running(store, await worker_on(store))
        other = store.another()
        await other.open()

        await applied(other, complete(held))
        await other.close()

        assert await state_of(store, held.task.id) is State.COMPLETED

    async def test_closing_one_handle_leaves_the_others_open(self, store: Store) -> None:
        other = store.another()
        await other.open()
        await other.close()

        assert (await get(store, await stand(store))).state is State.READY

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
