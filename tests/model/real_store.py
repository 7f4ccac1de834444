"""Plays steps of the lease model on a real store, and compares replies and contents with the model's."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tests.model.checker import Step
from tests.model.lease_protocol import World
from tests.model.lease_rules import BACKOFF, MAX_ATTEMPTS, Beat, BeatReply, Outcome, Verdict
from windlass._ids import new_id
from windlass._model import outcome as outcomes
from windlass._model.filter import By, CancelTasks, Filter, Page
from windlass._model.lease import Claim, Claimed, Heartbeat, Lease
from windlass._model.record import Session, Worker
from windlass._model.state import State
from windlass._model.task import Error, NewTask, Task
from windlass._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settlement
from windlass._policy.verdict import decide
from windlass._store.protocol import Store
from windlass.errors import SessionLost
from windlass.testing.clock import ManualClock

TICK = timedelta(seconds=1)
ERROR = Error(type="E", message="m")
ALL = Page(limit=100)
PLAYED: dict[Outcome, outcomes.Outcome] = {
    Outcome.RETURNED: outcomes.Returned(),
    Outcome.FAILED: outcomes.Failed(error=ERROR),
    Outcome.STOPPED: outcomes.Stopped(),
    Outcome.INTERRUPTED: outcomes.Interrupted(),
    Outcome.CRASHED: outcomes.Crashed(error=ERROR),
}


async def play(store: Store, clock: ManualClock, steps: Iterable[Step[World]]) -> None:
    """Play steps on a store that is empty and not open yet; raises AssertionError where it differs."""
    await store.open()
    try:
        real = RealStore(store, clock)
        for step in steps:
            await real.play(step)
    finally:
        await store.close()


class RealStore:
    """One run of the model, on a store that is empty."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store, self._clock = store, clock
        self._ids: dict[int, str] = {}
        self._leased: dict[tuple[int, int], Task] = {}

    async def play(self, step: Step[World]) -> None:
        """Play a step; raises AssertionError if the store replies or contains anything else."""
        if step.call is None:
            return
        verb, *arguments = step.call
        reply = await getattr(self, f"_{verb}")(*arguments)
        assert reply == step.reply, f"{step.text}: the model has {step.reply}, the store {reply}"
        contents = await self._contents(step.state)
        expected = _expected(step.state)
        assert contents == expected, f"{step.text}: the model has {expected}, the store {contents}"

    # -- verbs -------------------------------------------------------------------------------------------

    async def _enqueue(self, task: int) -> bool:
        task_id = self._ids.setdefault(task, new_id())
        new = NewTask(
            id=task_id,
            type="t",
            payload=b"{}",
            root=task_id,
            queue=_queue(task),
            max_attempts=MAX_ATTEMPTS,
        )
        return (await self._store.enqueue([new]))[0].created

    async def _claim(self, session: int, task: int, number: int) -> bool | None:
        claim = Claim(session=_session(session), queues=(_queue(task),), limit=1, number=number)
        try:
            claimed = await self._store.claim(claim)
        except SessionLost:
            return None
        self._note(claimed)
        return bool(claimed)

    async def _settle(self, task: int, fence: int, outcome: Outcome, verdict: Verdict) -> Receipt:
        decided = decide(self._leased[task, fence], PLAYED[outcome], lambda *_: TICK * BACKOFF, 0.0)
        assert _name(decided) == verdict, f"policy decides {decided}, the model {verdict}"
        lease = Lease(self._ids[task], fence)
        return (
            await self._store.settle([Settlement(lease=lease, verdict=decided, outcome=outcome)])
        ).receipts[0]

    async def _heartbeat(self, *fields: Any) -> BeatReply:
        beat = Beat(*fields)
        reply = await self._store.heartbeat(
            Heartbeat(
                session=_session(beat.session),
                worker=Worker(name=f"process {beat.session}"),
                lease_for=TICK,
                opening=beat.opening,
                held=tuple(Lease(self._ids[task], fence) for task, fence in beat.held),
                through=beat.through,
            )
        )
        numbers = {task_id: task for task, task_id in self._ids.items()}
        return BeatReply(
            reply.alive,
            tuple((numbers[lease.task_id], lease.fence) for lease in reply.lost),
            tuple(numbers[request.task_id] for request in reply.cancel),
        )

    async def _rescue(self, session: int) -> tuple[int, ...] | None:
        try:
            rescued = await self._store.rescue(_session(session), 100)
        except SessionLost:
            return None
        self._note(rescued)
        return tuple(sorted(self._number(one.task) for one in rescued))

    async def _promote(self) -> int:
        return (await self._store.promote(100)).number

    async def _cancel(self, task: int) -> bool:
        where = Filter(queues=(_queue(task),))
        return bool((await self._store.apply(CancelTasks(by=By(who="operator")), where, 1)).ids)

    async def _tick(self, beats: tuple[Any, ...]) -> tuple[BeatReply, ...]:
        self._clock.advance(TICK / 2)
        replies = [await self._heartbeat(*beat[1:]) for beat in beats]
        self._clock.advance(TICK / 2)
        return tuple(replies)

    # -- contents ----------------------------------------------------------------------------------------

    async def _contents(self, world: World) -> tuple[Any, ...]:
        """What the store contains, as the model describes it."""
        now = self._clock.now()
        sessions = {one.id: one.expires_at > now for one in (await self._store.records(Session, ALL)).items}
        names = [_session(number) for number in range(len(world.stored.sessions))]
        tasks: list[Any] = [None] * len(world.stored.tasks)
        for task in (await self._store.find(Filter(), ALL)).items:
            wait = max(round((task.run_at - now) / TICK), 0) if task.state is State.SCHEDULED else 0
            holder = None
            if task.state is State.RUNNING and task.session is not None:
                holder = (names.index(task.session), task.cancel_requested)
            tasks[self._number(task)] = (task.state, task.fence, task.attempt, wait, holder)
        return tasks, [sessions.get(name) for name in names]

    def _note(self, claimed: Any) -> None:
        for one in claimed:
            assert isinstance(one, Claimed)
            self._leased[self._number(one.task), one.task.fence] = one.task

    def _number(self, task: Task) -> int:
        return next(number for number, task_id in self._ids.items() if task_id == task.id)


def _queue(task: int) -> str:
    """Each task has a queue of its own, so that a claim can choose it."""
    return f"queue{task}"


def _session(number: int) -> str:
    return f"session{number}"


def _expected(world: World) -> tuple[Any, ...]:
    tasks = [
        None
        if task.state is None
        else (
            task.state,
            task.fence,
            task.attempt,
            task.wait if task.state is State.SCHEDULED else 0,
            (task.session, task.cancel_requested) if task.state is State.RUNNING else None,
        )
        for task in world.stored.tasks
    ]
    return tasks, list(world.stored.sessions)


def _name(verdict: Any) -> Verdict:
    match verdict:
        case Complete():
            return Verdict.COMPLETE
        case Bury():
            return Verdict.BURY
        case Cancel():
            return Verdict.CANCEL
        case Postpone(reason=Reason.RETRY):
            return Verdict.RETRY
        case Postpone(reason=Reason.RELEASE):
            return Verdict.RELEASE
        case _:
            raise AssertionError(verdict)
