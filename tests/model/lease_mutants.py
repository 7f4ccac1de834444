"""Rules of the seam with one mistake each. The checker must find every one of them."""

from tests.model.lease_protocol import Bounds
from tests.model.lease_rules import Beat, LeaseRules, Outcome, Stored, Task
from windlass._model.state import PENDING, State


class NoFenceCheck(LeaseRules):
    """A settlement needs no fence: the task must only be running."""

    name = "settle without a fence"

    def is_fence_valid(self, task: Task, fence: int) -> bool:
        return True


class SameFenceAfterRescue(LeaseRules):
    """A rescue does not raise the fence."""

    name = "rescue under the same fence"

    def fence_of_rescue(self, task: Task) -> int:
        return task.fence


class OtherClock(LeaseRules):
    """Whether a session has expired is judged by another clock, which may be ahead."""

    name = "expiry by the clock of a keeper"

    def is_rescuable(self, stored: Stored, task: Task) -> bool:
        return True


class SettledTwice(LeaseRules):
    """A settlement is applied again when it is repeated."""

    name = "a repeated settlement is applied again"

    def is_unsettled(self, task: Task) -> bool:
        return True


class EnqueuedTwice(LeaseRules):
    """An enqueue whose reply was lost is stored again."""

    name = "a repeated enqueue is stored again"

    def enqueues_again(self) -> bool:
        return True


class FreeCrash(LeaseRules):
    """An attempt that ended in a crash is not counted."""

    name = "crashes that do not count"

    def attempt_after_retry(self, task: Task, outcome: Outcome) -> int:
        return task.attempt - (outcome is Outcome.CRASHED)


class ClaimInFlight(LeaseRules):
    """A heartbeat takes back claims whose reply may still arrive."""

    name = "heartbeats that take back every claim not listed"

    def is_unreceived(self, number: int, task: Task, beat: Beat) -> bool:
        everything = beat._replace(through=task.number) if beat.through >= 0 else beat
        return super().is_unreceived(number, task, everything)


class StrandedClaim(LeaseRules):
    """A claim whose reply was lost stays with its worker as long as that one lives."""

    name = "lost claims that are never released"

    def is_unreceived(self, number: int, task: Task, beat: Beat) -> bool:
        return False


class KeeperWithoutHold(LeaseRules):
    """A keeper's heartbeat releases what it has rescued and not settled yet."""

    name = "heartbeats that release rescued tasks"

    def is_unreceived(self, number: int, task: Task, beat: Beat) -> bool:
        return super().is_unreceived(number, task, beat._replace(through=max(beat.through, 0)))


class CancelledOverHolder(LeaseRules):
    """An operator ends a running task."""

    name = "running tasks cancelled without their holder"

    def cancelled(self, task: Task) -> Task:
        if task.state in PENDING or task.state is State.RUNNING:
            return task._replace(state=State.CANCELLED, session=None)
        return task


class ReleaseCountedAgain(LeaseRules):
    """A released claim keeps its count although it never ran, so that lost replies use up attempts."""

    name = "lost claims that count"

    def released(self, task: Task) -> Task:
        return super().released(task)._replace(attempt=task.attempt)


SMALL = Bounds(keepers=1)

MUTANTS: list[tuple[LeaseRules, Bounds]] = [
    (NoFenceCheck(), SMALL),
    (SameFenceAfterRescue(), SMALL),
    (OtherClock(), SMALL),
    (SettledTwice(), SMALL),
    (EnqueuedTwice(), SMALL),
    (FreeCrash(), SMALL),
    (ClaimInFlight(), SMALL),
    (StrandedClaim(), Bounds(workers=1, keepers=1, faults=1)),
    (KeeperWithoutHold(), SMALL),
    (CancelledOverHolder(), SMALL),
    (ReleaseCountedAgain(), Bounds(workers=1, keepers=1)),
]
