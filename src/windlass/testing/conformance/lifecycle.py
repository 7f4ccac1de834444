"""Lifecycle: every transition of the table is possible; every other is refused and changes nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace as changed

from ..._ids import new_id
from ..._model.filter import MAX_PAGE, Replay
from ..._model.lease import Claimed, Lease
from ..._model.state import ENDED, TRANSITIONS, State, Verb, allowed
from ..._model.task import TaskId
from ..._model.verdict import Receipt, Settlement
from ..._store.protocol import Store
from ..clock import ManualClock
from .steps import (
    ENDINGS,
    LEASE,
    OPERATOR,
    ManualWorker,
    StoreTest,
    a_task,
    act,
    bury,
    cancel,
    complete,
    discard,
    dump,
    enqueue_and_claim,
    exists,
    load,
    release,
    replay,
    retry,
    settle,
    snooze,
    some_tasks,
    state_of,
    stop,
    worker_on,
)

QUEUE = "life"
LATER = timedelta(seconds=5)


@dataclass
class Scene:
    """A task, a worker that will stop sending heartbeats, and one that will not."""

    store: Store
    clock: ManualClock
    silent: ManualWorker
    lively: ManualWorker
    predecessor: Claimed | None = None
    task_id: TaskId = field(default_factory=new_id)


Move = Callable[[Scene], Awaitable[object]]
"""Applies a verb; returns something true if it had an effect on the task."""


async def enqueue(scene: Scene, **changes: Any) -> bool:
    fields = {"id": scene.task_id, "queue": QUEUE, **changes}
    (result,) = await scene.store.enqueue([a_task(**fields)])
    return result.created


async def enqueue_behind(scene: Scene, **changes: Any) -> bool:
    scene.predecessor = await enqueue_and_claim(scene.store, scene.lively)
    return await enqueue(scene, after=(scene.predecessor.task.id,), **changes)


enqueue_later = partial(enqueue, delay=LATER)


async def unblock(scene: Scene) -> bool:
    assert scene.predecessor is not None
    return await settle(scene.store, complete(scene.predecessor)) == (Receipt.APPLIED,)


async def promote(scene: Scene) -> int:
    scene.clock.advance(LATER)
    return (await scene.store.promote(limit=10)).number


async def claim(scene: Scene) -> object:
    return await scene.silent.claim(1, QUEUE)


async def claim_again(scene: Scene) -> object:
    return await scene.lively.claim(10, QUEUE)


async def rescue(scene: Scene) -> object:
    scene.clock.advance(LEASE)
    return await scene.lively.rescue()


async def hand_back(scene: Scene) -> bool:
    return (await scene.silent.beat(through=scene.silent.claims)).alive


async def operator_cancels(scene: Scene) -> object:
    return await cancel(scene.store, scene.task_id)


async def operator_replays(scene: Scene, payload: bytes | None = None) -> object:
    return await replay(scene.store, scene.task_id, payload=payload)


async def operator_replays_later(scene: Scene) -> object:
    action = Replay(by=OPERATOR, run_at=await scene.store.now() + LATER)
    return await act(scene.store, action, scene.task_id)


async def operator_discards(scene: Scene) -> object:
    return await discard(scene.store, scene.task_id)


def settling(ending: Callable[[Lease], Settlement], *, any_fence: bool = False) -> Move:
    """Settle with the newest lease; if `any_fence`, also with the one before and the next."""

    async def move(scene: Scene) -> bool:
        newest = (await load(scene.store, scene.task_id)).fence
        fences = (newest - 1, newest, newest + 1) if any_fence else (newest,)
        batch = [ending(Lease(scene.task_id, fence)) for fence in fences]
        return Receipt.APPLIED in await settle(scene.store, *batch)

    return move


async def cancel_or_stop(scene: Scene) -> object:
    return await operator_cancels(scene) or await settling(stop, any_fence=True)(scene)


def retry_later(lease: Lease) -> Settlement:
    return retry(lease, LATER)


ROUTES: dict[str, tuple[State, tuple[Move, ...]]] = {
    "waiting": (State.WAITING, (enqueue_behind,)),
    "scheduled": (State.SCHEDULED, (enqueue_later,)),
    "retrying": (State.SCHEDULED, (enqueue, claim, settling(retry_later))),
    "ready": (State.READY, (enqueue,)),
    "released": (State.READY, (enqueue, claim, settling(release))),
    "snoozed": (State.READY, (enqueue, claim, settling(snooze))),
    "handed back": (State.READY, (enqueue, claim, hand_back)),
    "replayed": (State.READY, (enqueue, claim, settling(bury), operator_replays)),
    "running": (State.RUNNING, (enqueue, claim)),
    "flagged": (State.RUNNING, (enqueue, claim, operator_cancels)),
    "rescued": (State.RUNNING, (enqueue, claim, rescue)),
    "completed": (State.COMPLETED, (enqueue, claim, settling(complete))),
    "cancelled": (State.CANCELLED, (enqueue, operator_cancels)),
    "stopped": (State.CANCELLED, (enqueue, claim, operator_cancels, settling(stop))),
    "dead": (State.DEAD, (enqueue, claim, settling(bury))),
    "dead after a rescue": (State.DEAD, (enqueue, claim, rescue, settling(bury))),
}

LEGAL: dict[tuple[State | None, Verb, State | None], tuple[Move, ...]] = {
    (None, Verb.ENQUEUE, State.WAITING): (enqueue_behind,),
    (None, Verb.ENQUEUE, State.SCHEDULED): (enqueue_later,),
    (None, Verb.ENQUEUE, State.READY): (enqueue,),
    (State.WAITING, Verb.UNBLOCK, State.SCHEDULED): (partial(enqueue_behind, delay=LATER), unblock),
    (State.WAITING, Verb.UNBLOCK, State.READY): (enqueue_behind, unblock),
    (State.SCHEDULED, Verb.PROMOTE, State.READY): (enqueue_later, promote),
    (State.READY, Verb.CLAIM, State.RUNNING): (enqueue, claim),
    (State.RUNNING, Verb.RESCUE, State.RUNNING): (enqueue, claim, rescue),
    (State.RUNNING, Verb.COMPLETE, State.COMPLETED): (enqueue, claim, settling(complete)),
    (State.RUNNING, Verb.POSTPONE, State.SCHEDULED): (enqueue, claim, settling(retry_later)),
    (State.RUNNING, Verb.POSTPONE, State.READY): (enqueue, claim, settling(retry)),
    (State.RUNNING, Verb.BURY, State.DEAD): (enqueue, claim, settling(bury)),
    (State.RUNNING, Verb.CANCEL, State.CANCELLED): (enqueue, claim, settling(stop)),
    (State.WAITING, Verb.CANCEL, State.CANCELLED): (enqueue_behind, operator_cancels),
    (State.SCHEDULED, Verb.CANCEL, State.CANCELLED): (enqueue_later, operator_cancels),
    (State.READY, Verb.CANCEL, State.CANCELLED): (enqueue, operator_cancels),
    (State.DEAD, Verb.REPLAY, State.READY): (enqueue, claim, settling(bury), operator_replays),
    (State.DEAD, Verb.REPLAY, State.SCHEDULED): (enqueue, claim, settling(bury), operator_replays_later),
    (State.CANCELLED, Verb.REPLAY, State.READY): (enqueue, operator_cancels, operator_replays),
    (State.CANCELLED, Verb.REPLAY, State.SCHEDULED): (enqueue, operator_cancels, operator_replays_later),
    (State.DEAD, Verb.DISCARD, None): (enqueue, claim, settling(bury), operator_discards),
}


IN_VAIN: dict[Verb, Move] = {
    Verb.ENQUEUE: partial(enqueue, queue="elsewhere"),
    Verb.PROMOTE: promote,
    Verb.CLAIM: claim_again,
    Verb.RESCUE: rescue,
    Verb.COMPLETE: settling(lambda lease: complete(lease, b"1", a_task()), any_fence=True),
    Verb.POSTPONE: settling(retry, any_fence=True),
    Verb.BURY: settling(bury, any_fence=True),
    Verb.CANCEL: cancel_or_stop,
    Verb.REPLAY: partial(operator_replays, payload=b"{}"),
    Verb.DISCARD: operator_discards,
}
"""How each verb is tried in states that it does not apply to."""


async def brought_to(scene: Scene, route: str) -> None:
    """Bring the task into a state; then let the silent worker's lease and every delay expire."""
    state, moves = ROUTES[route]
    for move in moves:
        assert await move(scene)
    assert await state_of(scene.store, scene.task_id) is state
    scene.clock.advance(timedelta(hours=1))


class TestLifecycle:
    @pytest.fixture
    async def scene(self, store: Store, clock: ManualClock) -> Scene:
        lively = await worker_on(store, lease_for=timedelta(days=9))
        return Scene(store, clock, silent=await worker_on(store), lively=lively)

    def test_every_transition_of_the_table_has_a_scenario(self) -> None:
        rows = {(row.source, row.verb, target) for row in TRANSITIONS for target in row.targets or (None,)}

        assert set(LEGAL) == rows
        assert set(IN_VAIN) == set(Verb) - {Verb.UNBLOCK}
        assert {state for state, _ in ROUTES.values()} == set(State)

    @pytest.mark.parametrize("row", LEGAL, ids=lambda row: "-".join(str(part) for part in row))
    async def test_every_transition_of_the_table_is_possible(
        self, scene: Scene, row: tuple[State | None, Verb, State | None]
    ) -> None:
        source, _, target = row
        *before, move = LEGAL[row]
        for earlier in before:
            assert await earlier(scene)
        assert source is None or await state_of(scene.store, scene.task_id) is source

        assert await move(scene)

        assert await exists(scene.store, scene.task_id) == (target is not None)
        assert target is None or await state_of(scene.store, scene.task_id) is target
        has_ended = target is None or target in ENDED
        assert [*await scene.store.ended((scene.task_id,))] == [scene.task_id] * has_ended

    @pytest.mark.parametrize("route", ROUTES)
    async def test_every_other_transition_is_refused_and_changes_nothing(
        self, scene: Scene, route: str
    ) -> None:
        await brought_to(scene, route)
        for verb in [verb for verb in IN_VAIN if not allowed(ROUTES[route][0], verb)]:
            before = await dump(scene.store)

            assert not await IN_VAIN[verb](scene)

            after = await dump(scene.store)
            if verb is Verb.RESCUE:  # A rescue may delete sessions without leases.
                after = changed(after, sessions=before.sessions)
            assert after == before, f"to {verb} has changed something"

    @pytest.mark.parametrize("route", [r for r, (state, _) in ROUTES.items() if state is not State.RUNNING])
    async def test_only_a_running_task_is_settled(self, scene: Scene, route: str) -> None:
        await brought_to(scene, route)
        before = await dump(scene.store)
        for name, ending in ENDINGS.items():
            assert not await settling(ending, any_fence=True)(scene)

            assert await dump(scene.store) == before, f"to {name} it has changed something"

    @pytest.mark.parametrize("route", [route for route, (_, moves) in ROUTES.items() if moves[0] is enqueue])
    async def test_only_a_waiting_task_is_unblocked(self, scene: Scene, route: str) -> None:
        """A task that was to wait was cancelled and replayed, and no longer waits."""
        state, moves = ROUTES[route]
        for move in (enqueue_behind, operator_cancels, operator_replays, *moves[1:]):
            assert await move(scene)
        before = await load(scene.store, scene.task_id)
        assert before.state is state

        assert await unblock(scene)

        assert await load(scene.store, scene.task_id) == before


class TestEnded(StoreTest):
    """Which tasks have ended; of every state, see `TestLifecycle`."""

    async def test_of_many_tasks_those_that_have_ended_or_are_unknown(self) -> None:
        batch = some_tasks(MAX_PAGE - 2)
        await self.store.enqueue(batch)
        ids = [new.id for new in batch]
        await self.cancel(*ids[::3])
        unknown = [new_id(), "no such id"]

        assert sorted(await self.store.ended((*ids, *unknown))) == sorted((*ids[::3], *unknown))
        assert list(await self.store.ended(())) == []

    async def test_another_handle_sees_them(self, other: Store, worker: ManualWorker) -> None:
        open_still = await self.enqueue_one()
        done = (await self.enqueue_and_settle(worker, complete)).task.id

        assert list(await other.ended((open_still, done))) == [done]
