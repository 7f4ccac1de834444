"""Lifecycle: every transition of the table is possible; every other is refused and changes nothing."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace as changed

from ..._ids import new_id
from ..._model.lease import Claimed, Lease
from ..._model.state import TRANSITIONS, State, Verb, allowed
from ..._model.task import TaskId
from ..._model.verdict import Receipt, Settlement
from ..._store.protocol import Store
from ..clock import ManualClock
from .steps import (
    LEASE,
    ManualWorker,
    a_task,
    bury,
    cancel,
    complete,
    discard,
    dump,
    enqueue_and_claim,
    enqueue_one,
    exists,
    load,
    release,
    replay,
    retry,
    settle,
    settle_now,
    snooze,
    state_of,
    stop,
    worker_on,
)

QUEUE = "life"
LATER = timedelta(seconds=5)


class Scene:
    """A task, a worker that will stop sending heartbeats, and one that will not."""

    def __init__(self, store: Store, clock: ManualClock, silent: ManualWorker, lively: ManualWorker) -> None:
        self.store = store
        self.clock = clock
        self.silent = silent
        self.lively = lively
        self.predecessor: Claimed | None = None
        self.task_id: TaskId = new_id()

    async def lease(self) -> Lease:
        """The task's newest lease."""
        return Lease(self.task_id, (await load(self.store, self.task_id)).fence)


Move = Callable[[Scene], Awaitable[object]]


async def scene_on(store: Store, clock: ManualClock) -> Scene:
    return Scene(store, clock, await worker_on(store), await worker_on(store, lease_for=timedelta(days=9)))


async def enqueue(scene: Scene) -> None:
    await enqueue_one(scene.store, id=scene.task_id, queue=QUEUE)


async def enqueue_later(scene: Scene) -> None:
    await enqueue_one(scene.store, id=scene.task_id, queue=QUEUE, delay=LATER)


async def enqueue_behind(scene: Scene, delay: timedelta | None = None) -> None:
    scene.predecessor = await enqueue_and_claim(scene.store, scene.lively)
    after = (scene.predecessor.task.id,)
    await enqueue_one(scene.store, id=scene.task_id, queue=QUEUE, after=after, delay=delay)


async def enqueue_behind_later(scene: Scene) -> None:
    await enqueue_behind(scene, LATER)


async def unblock(scene: Scene) -> None:
    assert scene.predecessor is not None
    await settle_now(scene.store, complete(scene.predecessor))


async def promote(scene: Scene) -> None:
    scene.clock.advance(LATER)
    assert (await scene.store.promote(limit=10)).number == 1


async def claim(scene: Scene) -> None:
    await scene.silent.claim_one(QUEUE)


async def rescue(scene: Scene) -> None:
    scene.clock.advance(LEASE)
    assert len(await scene.store.rescue(scene.lively.session, limit=10)) == 1


async def hand_back(scene: Scene) -> None:
    await scene.silent.beat(through=scene.silent.claims)


async def operator_cancels(scene: Scene) -> None:
    assert list(await cancel(scene.store, scene.task_id)) == [scene.task_id]


async def operator_replays(scene: Scene) -> None:
    assert list(await replay(scene.store, scene.task_id)) == [scene.task_id]


async def operator_discards(scene: Scene) -> None:
    assert list(await discard(scene.store, scene.task_id)) == [scene.task_id]


def settling(ending: Callable[[Lease], Settlement]) -> Move:
    async def move(scene: Scene) -> None:
        await settle_now(scene.store, ending(await scene.lease()))

    return move


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
    (State.WAITING, Verb.UNBLOCK, State.SCHEDULED): (enqueue_behind_later, unblock),
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
    (State.CANCELLED, Verb.REPLAY, State.READY): (enqueue, operator_cancels, operator_replays),
    (State.DEAD, Verb.DISCARD, None): (enqueue, claim, settling(bury), operator_discards),
}


def settling_in_vain(ending: Callable[[Lease], Settlement]) -> Move:
    """Settle with the newest lease, the one before and the next; none may be applied."""

    async def attempt(scene: Scene) -> None:
        newest = await scene.lease()
        leases = [Lease(newest.task_id, newest.fence + step) for step in (-1, 0, 1)]
        assert Receipt.APPLIED not in await settle(scene.store, *(ending(lease) for lease in leases))

    return attempt


async def enqueue_again(scene: Scene) -> None:
    (result,) = await scene.store.enqueue([a_task(id=scene.task_id, queue="elsewhere")])
    assert not result.created


async def promote_in_vain(scene: Scene) -> None:
    assert (await scene.store.promote(limit=10)).number == 0


async def claim_in_vain(scene: Scene) -> None:
    assert len(await scene.lively.claim(10, QUEUE)) == 0


async def rescue_in_vain(scene: Scene) -> None:
    assert len(await scene.store.rescue(scene.lively.session, limit=10)) == 0


async def cancel_in_vain(scene: Scene) -> None:
    assert len(await cancel(scene.store, scene.task_id)) == 0
    await settling_in_vain(stop)(scene)


async def replay_in_vain(scene: Scene) -> None:
    assert len(await replay(scene.store, scene.task_id, payload=b"{}")) == 0


async def discard_in_vain(scene: Scene) -> None:
    assert len(await discard(scene.store, scene.task_id)) == 0


IN_VAIN: dict[Verb, Move] = {
    Verb.ENQUEUE: enqueue_again,
    Verb.PROMOTE: promote_in_vain,
    Verb.CLAIM: claim_in_vain,
    Verb.RESCUE: rescue_in_vain,
    Verb.COMPLETE: settling_in_vain(lambda lease: complete(lease, b"1", a_task())),
    Verb.POSTPONE: settling_in_vain(retry),
    Verb.BURY: settling_in_vain(bury),
    Verb.CANCEL: cancel_in_vain,
    Verb.REPLAY: replay_in_vain,
    Verb.DISCARD: discard_in_vain,
}


async def brought_to(scene: Scene, route: str) -> None:
    """Bring the task into a state; then let the silent worker's lease and every delay expire."""
    state, moves = ROUTES[route]
    for move in moves:
        await move(scene)
    assert await state_of(scene.store, scene.task_id) is state
    scene.clock.advance(timedelta(hours=1))


class TestLifecycle:
    def test_every_transition_of_the_table_has_a_scenario(self) -> None:
        rows = {(row.source, row.verb, target) for row in TRANSITIONS for target in row.targets or (None,)}

        assert set(LEGAL) == rows
        assert set(IN_VAIN) == set(Verb) - {Verb.UNBLOCK}
        assert {state for state, _ in ROUTES.values()} == set(State)

    @pytest.mark.parametrize("row", LEGAL, ids=lambda row: "-".join(str(part) for part in row))
    async def test_every_transition_of_the_table_is_possible(
        self, store: Store, clock: ManualClock, row: tuple[State | None, Verb, State | None]
    ) -> None:
        source, _, target = row
        scene = await scene_on(store, clock)
        *before, move = LEGAL[row]
        for earlier in before:
            await earlier(scene)
        assert source is None or await state_of(store, scene.task_id) is source

        await move(scene)

        assert await exists(store, scene.task_id) == (target is not None)
        assert target is None or await state_of(store, scene.task_id) is target

    @pytest.mark.parametrize("route", ROUTES)
    async def test_every_other_transition_is_refused_and_changes_nothing(
        self, store: Store, clock: ManualClock, route: str
    ) -> None:
        scene = await scene_on(store, clock)
        await brought_to(scene, route)
        for verb in [verb for verb in IN_VAIN if not allowed(ROUTES[route][0], verb)]:
            before = await dump(store)

            await IN_VAIN[verb](scene)

            after = await dump(store)
            if verb is Verb.RESCUE:  # A rescue may delete sessions without leases.
                after = changed(after, sessions=before.sessions)
            assert after == before, f"to {verb} has changed something"

    @pytest.mark.parametrize("route", [r for r, (state, _) in ROUTES.items() if state is not State.RUNNING])
    async def test_only_a_running_task_is_settled(self, store: Store, clock: ManualClock, route: str) -> None:
        scene = await scene_on(store, clock)
        await brought_to(scene, route)
        before = await dump(store)
        for ending in (complete, retry, snooze, release, bury, stop):
            await settling_in_vain(ending)(scene)

            assert await dump(store) == before, f"to {ending.__name__} it has changed something"

    @pytest.mark.parametrize("route", [route for route, (_, moves) in ROUTES.items() if moves[0] is enqueue])
    async def test_only_a_waiting_task_is_unblocked(
        self, store: Store, clock: ManualClock, route: str
    ) -> None:
        """A task that was to wait was cancelled and replayed, and no longer waits."""
        scene = await scene_on(store, clock)
        await enqueue_behind(scene)
        await operator_cancels(scene)
        await operator_replays(scene)
        state, moves = ROUTES[route]
        for move in moves[1:]:
            await move(scene)
        before = await load(store, scene.task_id)
        assert before.state is state

        await unblock(scene)

        assert await load(store, scene.task_id) == before
