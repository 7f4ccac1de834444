"""What a store does with tasks, sessions and fences, in the model. Mutants replace one method.

`tests/stores/test_lease_model.py` compares it, step by step, with the stores.
"""

from enum import StrEnum
from typing import NamedTuple

from windlass._model.state import ENDED, PENDING, State
from windlass._model.verdict import Receipt

BACKOFF = 1  # ticks before a retry; a lease lasts one tick
MAX_ATTEMPTS = 2
RESCUED = 0  # the claim number of a rescued task


class Outcome(StrEnum):
    RETURNED = "returned"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    CRASHED = "crashed"


class Verdict(StrEnum):
    COMPLETE = "complete"
    RETRY = "retry"
    RELEASE = "release"
    BURY = "bury"
    CANCEL = "cancel"


def verdict_of(outcome: Outcome, attempt: int) -> Verdict:
    """What policy decides."""
    match outcome:
        case Outcome.RETURNED:
            return Verdict.COMPLETE
        case Outcome.STOPPED:
            return Verdict.CANCEL
        case Outcome.INTERRUPTED:
            return Verdict.RELEASE
        case _:
            return Verdict.RETRY if attempt < MAX_ATTEMPTS else Verdict.BURY


class Task(NamedTuple):
    """A task as it is stored; `settled` and `failed` are for the checks only."""

    state: State | None = None  # None: nobody has enqueued it
    fence: int = 0
    attempt: int = 0
    session: int | None = None
    number: int = RESCUED  # of the claim that it is held by
    cancel_requested: bool = False
    wait: int = 0  # ticks until it is due
    settled: tuple[int, ...] = ()  # the fences under which a settlement was applied
    failed: int = 0  # runs that failed or crashed


class Stored(NamedTuple):
    tasks: tuple[Task, ...]
    sessions: tuple[bool | None, ...]  # whether each is alive, or has expired; None: there is none


class Beat(NamedTuple):
    """A heartbeat."""

    session: int
    opening: bool
    held: tuple[tuple[int, int], ...]
    through: int


class BeatReply(NamedTuple):
    alive: bool
    lost: tuple[tuple[int, int], ...] = ()
    cancel: tuple[int, ...] = ()


def is_alive(stored: Stored, session: int | None) -> bool:
    return session is not None and bool(stored.sessions[session])


class LeaseRules:
    """The rules of the seam."""

    name = "the rules of the seam"

    # -- verbs -------------------------------------------------------------------------------------------

    def enqueue(self, stored: Stored, number: int) -> tuple[Stored, bool]:
        """Store a task unless it exists; return whether it was created."""
        if stored.tasks[number].state is not None and not self.enqueues_again():
            return stored, False
        return _with(stored, number, stored.tasks[number]._replace(state=State.READY)), True

    def claim(self, stored: Stored, session: int, number: int, claim: int) -> tuple[Stored, bool | None]:
        """Lease a ready task; return whether it was granted, or None if the session has expired."""
        task = stored.tasks[number]
        if not is_alive(stored, session):
            return stored, None
        if task.state is not State.READY:
            return stored, False
        leased = task._replace(
            state=State.RUNNING, fence=task.fence + 1, attempt=task.attempt + 1, session=session, number=claim
        )
        return _with(stored, number, leased), True

    def settle(
        self, stored: Stored, number: int, fence: int, outcome: Outcome, verdict: Verdict
    ) -> tuple[Stored, Receipt]:
        """Apply a verdict if its lease holds."""
        task = stored.tasks[number]
        if not self.is_fence_valid(task, fence):
            return stored, Receipt.LOST
        if not self.is_unsettled(task):
            return stored, Receipt.REPEATED
        return _with(stored, number, self.settled(task, fence, outcome, verdict)), Receipt.APPLIED

    def heartbeat(self, stored: Stored, beat: Beat) -> tuple[Stored, BeatReply]:
        """Open or renew a session, and release what was granted to it in replies that were lost."""
        sessions = list(stored.sessions)
        if sessions[beat.session] is None and not beat.opening:
            return stored, BeatReply(alive=False)
        sessions[beat.session] = True
        tasks = tuple(
            self.released(task) if self.is_unreceived(number, task, beat) else task
            for number, task in enumerate(stored.tasks)
        )
        held = [(lease, tasks[lease[0]]) for lease in beat.held]
        running = [lease for lease, task in held if (task.state, task.fence) == (State.RUNNING, lease[1])]
        return Stored(tasks, tuple(sessions)), BeatReply(
            alive=True,
            lost=tuple(lease for lease in beat.held if lease not in running),
            cancel=tuple(task for task, _ in running if tasks[task].cancel_requested),
        )

    def rescue(self, stored: Stored, session: int) -> tuple[Stored, tuple[int, ...] | None]:
        """Take over the tasks of expired sessions; None if this one has expired."""
        if not is_alive(stored, session):
            return stored, None
        rescued = tuple(
            number
            for number, task in enumerate(stored.tasks)
            if task.state is State.RUNNING and self.is_rescuable(stored, task)
        )
        for number in rescued:
            task = stored.tasks[number]
            taken = task._replace(fence=self.fence_of_rescue(task), session=session, number=RESCUED)
            stored = _with(stored, number, taken)
        holding = {task.session for task in stored.tasks if task.state is State.RUNNING}
        sessions = tuple(
            alive if number in holding or alive else None for number, alive in enumerate(stored.sessions)
        )
        return stored._replace(sessions=sessions), rescued

    def promote(self, stored: Stored) -> tuple[Stored, int]:
        """Make due tasks ready; return how many."""
        due = [task.state is State.SCHEDULED and not task.wait for task in stored.tasks]
        tasks = tuple(
            task._replace(state=State.READY) if is_due else task
            for task, is_due in zip(stored.tasks, due, strict=True)
        )
        return stored._replace(tasks=tasks), sum(due)

    def cancel(self, stored: Stored, number: int) -> tuple[Stored, bool]:
        """Cancel a task, or ask its holder to stop it; return whether it had not ended."""
        task = stored.tasks[number]
        if task.state is None or task.state in ENDED:
            return stored, False
        return _with(stored, number, self.cancelled(task)), True

    def tick(self, stored: Stored, renewed: frozenset[int]) -> Stored:
        """Let time pass; only sessions that were renewed meanwhile are alive after it."""
        return Stored(
            tuple(task._replace(wait=max(task.wait - 1, 0)) for task in stored.tasks),
            tuple(alive and number in renewed for number, alive in enumerate(stored.sessions)),
        )

    # -- decisions ---------------------------------------------------------------------------------------

    def enqueues_again(self) -> bool:
        return False

    def is_fence_valid(self, task: Task, fence: int) -> bool:
        return task.fence == fence

    def is_unsettled(self, task: Task) -> bool:
        return task.state is State.RUNNING

    def settled(self, task: Task, fence: int, outcome: Outcome, verdict: Verdict) -> Task:
        """What a verdict makes of a running task."""
        task = task._replace(
            session=None,
            settled=(*task.settled, fence),
            failed=task.failed + (outcome in {Outcome.FAILED, Outcome.CRASHED}),
        )
        match verdict:
            case Verdict.COMPLETE:
                return task._replace(state=State.COMPLETED)
            case Verdict.BURY:
                return task._replace(state=State.DEAD)
            case Verdict.RETRY if not task.cancel_requested:
                attempt = self.attempt_after_retry(task, outcome)
                return task._replace(state=State.SCHEDULED, wait=BACKOFF, attempt=attempt)
            case Verdict.RELEASE if not task.cancel_requested:
                return task._replace(state=State.READY, attempt=task.attempt - 1)
            case _:
                return task._replace(state=State.CANCELLED)

    def attempt_after_retry(self, task: Task, outcome: Outcome) -> int:
        """A crash counts as much as a failure."""
        return task.attempt

    def is_unreceived(self, number: int, task: Task, beat: Beat) -> bool:
        """Whether the worker cannot know that it holds this task."""
        return (
            task.state is State.RUNNING
            and task.session == beat.session
            and task.number <= beat.through
            and (number, task.fence) not in beat.held
        )

    def released(self, task: Task) -> Task:
        """A claimed task never ran, so its attempt is not counted; a rescued one did."""
        freed = task._replace(fence=task.fence + 1, session=None)
        if task.cancel_requested:
            return freed._replace(state=State.CANCELLED)
        return freed._replace(state=State.READY, attempt=task.attempt - (task.number != RESCUED))

    def is_rescuable(self, stored: Stored, task: Task) -> bool:
        return not is_alive(stored, task.session)

    def fence_of_rescue(self, task: Task) -> int:
        return task.fence + 1

    def cancelled(self, task: Task) -> Task:
        """A pending task ends; a running one is flagged, and its holder is told."""
        if task.state in PENDING:
            return task._replace(state=State.CANCELLED)
        return task._replace(cancel_requested=True)


def _with(stored: Stored, number: int, task: Task) -> Stored:
    tasks = list(stored.tasks)
    tasks[number] = task
    return stored._replace(tasks=tuple(tasks))
