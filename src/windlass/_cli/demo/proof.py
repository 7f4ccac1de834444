"""The reckoning: what was promised, held against three records that do not know each other.

What the demo was told is durable (the ledger), what the store says became of it (tasks, attempts, audit), and
what handlers and workers wrote down themselves (executions, settlements). Pure: evidence in, findings out.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ... import State, Task
from ..._model.attempt import Attempt
from ..._model.record import Audit
from ..._model.state import ENDED
from ..._model.task import TaskId

FAILED, RESCUED, RELEASED = "failed", "was rescued from a kill", "was handed back"
REPLAYED, UNEXPLAINED = "was replayed by a person", "had no reason"
ENDS, LOST = ("completed", "buried", "cancelled"), "lost"
_REASONS = {"failed": FAILED, "crashed": RESCUED, "interrupted": RELEASED}


class Execution(Struct, frozen=True):
    """One start of a handler, as it noted it itself."""

    task_id: TaskId
    fence: int
    attempt: int


class Settlement(Struct, frozen=True):
    """What a store confirmed to a worker, as the worker noted it."""

    task_id: TaskId
    event: str


class Evidence(Struct, frozen=True, kw_only=True):
    """All that is known. `attempts` includes those of tasks that were discarded since."""

    ledger: frozenset[TaskId]
    tasks: Mapping[TaskId, Task]
    attempts: Mapping[TaskId, Sequence[Attempt]]
    audits: Sequence[Audit]
    executions: Sequence[Execution]
    settlements: Sequence[Settlement]


class Proof(Struct, frozen=True, kw_only=True):
    """What follows from it."""

    enqueued: int
    completed: int
    cancelled: int
    dead: int
    discarded: int
    unended: int  # still not ended: none, once the demo has run to its end
    lost: int
    strangers: int  # in the store, and nobody enqueued them
    settled_twice: int
    refused: int  # settlements that came after the lease was another's
    started_twice: int  # two starts under one lease
    executions: int
    executed: int  # tasks that ran at least once
    reasons: Mapping[str, int]  # why tasks ran more than once
    replayed: int

    @property
    def again(self) -> int:
        """Executions beyond each task's first."""
        return self.executions - self.executed

    @property
    def adds_up(self) -> bool:
        """Whether every task that was enqueued is in exactly one of the ends."""
        return self.enqueued == self.completed + self.cancelled + self.dead + self.discarded

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        faults = (
            self.unended,
            self.lost,
            self.strangers,
            self.settled_twice,
            self.started_twice,
            self.reasons.get(UNEXPLAINED, 0),
        )
        return self.adds_up and not any(faults)


def reckon(evidence: Evidence) -> Proof:
    """Hold the records against each other."""
    tasks, ledger = evidence.tasks, evidence.ledger
    discarded = {audit.task_id for audit in evidence.audits if audit.action == "discard"}
    states = Counter(task.state for task_id, task in tasks.items() if task_id in ledger)
    starts: defaultdict[TaskId, list[Execution]] = defaultdict(list)
    for execution in evidence.executions:
        starts[execution.task_id].append(execution)
    reasons: Counter[str] = Counter()
    for task_id, several in starts.items():
        reasons.update(_reasons(several, evidence.attempts.get(task_id, ())))
    return Proof(
        enqueued=len(ledger),
        completed=states[State.COMPLETED],
        cancelled=states[State.CANCELLED],
        dead=states[State.DEAD],
        discarded=len(discarded & ledger - tasks.keys()),
        unended=sum(number for state, number in states.items() if state not in ENDED),
        lost=len(ledger - tasks.keys() - discarded),
        strangers=len(tasks.keys() - ledger) + len(starts.keys() - ledger),
        settled_twice=len(_settled_twice(evidence)),
        refused=sum(settlement.event == LOST for settlement in evidence.settlements),
        started_twice=len(evidence.executions) - len({(e.task_id, e.fence) for e in evidence.executions}),
        executions=len(evidence.executions),
        executed=len(starts),
        reasons=dict(reasons),
        replayed=sum(audit.action == "replay" for audit in evidence.audits),
    )


def _reasons(starts: Sequence[Execution], attempts: Sequence[Attempt]) -> list[str]:
    """Why each start but the first came to be: by what became of the lease before it."""
    ordered = sorted(starts, key=lambda start: start.fence)
    return [_reason(start, attempts) for start in ordered[1:]]


def _reason(start: Execution, attempts: Sequence[Attempt]) -> str:
    before = [attempt for attempt in attempts if attempt.fence < start.fence]
    if not before:
        return UNEXPLAINED
    last = max(before, key=lambda attempt: attempt.fence)
    if last.outcome == "failed" and start.attempt == 1:  # only a replay starts counting anew
        return REPLAYED
    return _REASONS.get(last.outcome, UNEXPLAINED)


def _settled_twice(evidence: Evidence) -> set[TaskId]:
    """Tasks that ended more often than they lived, by the workers' receipts or by the attempt log."""
    ends = Counter(one.task_id for one in evidence.settlements if one.event in ENDS)
    replays = Counter(audit.task_id for audit in evidence.audits if audit.action == "replay")
    by_receipts = {task_id for task_id, number in ends.items() if number > 1 + replays[task_id]}
    tasks = evidence.tasks.values()
    return by_receipts | {task.id for task in tasks if _contradicts(task, evidence.attempts[task.id])}


def _contradicts(task: Task, attempts: Sequence[Attempt]) -> bool:
    """Two lines for one lease, a completion that is not the last word, or an end that no line speaks of."""
    ordered = sorted(attempts, key=lambda attempt: attempt.fence)
    returned = [attempt.fence for attempt in ordered if attempt.outcome == "returned"]
    if len({attempt.fence for attempt in ordered}) != len(ordered):
        return True
    if task.state is State.COMPLETED:
        return returned != [ordered[-1].fence] if ordered else True
    return bool(returned)
