"""Checks the promise against three independent records; `prove` is pure, `gather` reads the records.

The records are: the ids whose enqueue was acknowledged (the ledger); what the store kept (tasks, attempts,
audit log); and what handlers and workers logged themselves (executions, settlements).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ... import App, Page, State, Task
from ..._model.attempt import Attempt
from ..._model.filter import MAX_PAGE
from ..._model.record import Audit
from ..._model.state import ENDED
from ..._model.task import TaskId
from .shop import EXECUTIONS, SETTLEMENTS

FAILED, RESCUED, RELEASED = "failed", "rescued after a kill", "released by a worker"
REPLAYED, UNEXPLAINED = "replayed by an operator", "no reason found"
ENDS, LOST = ("completed", "buried", "cancelled"), "lost"
_REASONS = {"failed": FAILED, "crashed": RESCUED, "interrupted": RELEASED}


class Execution(Struct, frozen=True):
    """One start of a handler, as the handler logged it."""

    task_id: TaskId
    fence: int
    attempt: int


class Settlement(Struct, frozen=True):
    """One settlement that the store confirmed or rejected, as the worker logged it."""

    task_id: TaskId
    event: str


class Evidence(Struct, frozen=True, kw_only=True):
    """All records. `attempts` includes those of discarded tasks."""

    ledger: frozenset[TaskId]
    tasks: Mapping[TaskId, Task]
    attempts: Mapping[TaskId, Sequence[Attempt]]
    audits: Sequence[Audit]
    executions: Sequence[Execution]
    settlements: Sequence[Settlement]


class Proof(Struct, frozen=True, kw_only=True):
    """The figures that follow from the evidence."""

    enqueued: int
    completed: int
    cancelled: int
    dead: int
    discarded: int
    unended: int  # not ended yet: 0 unless the demo ran out of time
    lost: int
    unknown: int  # in the store or executed, but never enqueued
    settled_twice: int
    refused: int  # settlements that came after the lease had passed on
    started_twice: int  # two starts under one lease
    executions: int
    executed: int  # tasks that ran at least once
    reasons: Mapping[str, int]  # of repeated executions
    replayed: int

    @property
    def repeated(self) -> int:
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
            self.unknown,
            self.settled_twice,
            self.started_twice,
            self.reasons.get(UNEXPLAINED, 0),
        )
        return self.adds_up and not any(faults)


async def gather(
    app: App, folder: Path, ledger: frozenset[TaskId], discarded: Mapping[TaskId, Sequence[Attempt]]
) -> Evidence:
    """Read all records. `discarded` holds the attempts of discarded tasks, read before they were deleted."""
    tasks = {task.id: task async for task in app.operator.every()}
    attempts = {task_id: await app.operator.attempts(task_id) for task_id in tasks}
    return Evidence(
        ledger=ledger,
        tasks=tasks,
        attempts={**discarded, **attempts},
        audits=await _audits(app),
        executions=[
            Execution(task_id, int(fence), int(attempt))
            for task_id, fence, attempt in _words(folder / EXECUTIONS)
        ],
        settlements=[Settlement(task_id, event) for task_id, event in _words(folder / SETTLEMENTS)],
    )


def _words(path: Path) -> list[list[str]]:
    """The words of each line of a log; none if there is no log."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


async def _audits(app: App) -> list[Audit]:
    found: list[Audit] = []
    page = Page(limit=MAX_PAGE)
    while True:
        part = await app.operator.audit(page)
        found += part.items
        if part.cursor is None:
            return found
        page = replace(page, cursor=part.cursor)


def prove(evidence: Evidence) -> Proof:
    """Compare the records with each other."""
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
        unknown=len(tasks.keys() - ledger) + len(starts.keys() - ledger),
        settled_twice=len(_settled_twice(evidence)),
        refused=sum(settlement.event == LOST for settlement in evidence.settlements),
        started_twice=len(evidence.executions) - len({(e.task_id, e.fence) for e in evidence.executions}),
        executions=len(evidence.executions),
        executed=len(starts),
        reasons=dict(reasons),
        replayed=sum(audit.action == "replay" for audit in evidence.audits),
    )


def _reasons(starts: Sequence[Execution], attempts: Sequence[Attempt]) -> list[str]:
    """Why each start but the first happened: the outcome of the lease before it."""
    ordered = sorted(starts, key=lambda start: start.fence)
    return [_reason(start, attempts) for start in ordered[1:]]


def _reason(start: Execution, attempts: Sequence[Attempt]) -> str:
    before = [attempt for attempt in attempts if attempt.fence < start.fence]
    if not before:
        return UNEXPLAINED
    last = max(before, key=lambda attempt: attempt.fence)
    if last.outcome == "failed" and start.attempt == 1:  # only a replay counts attempts from 1 again
        return REPLAYED
    return _REASONS.get(last.outcome, UNEXPLAINED)


def _settled_twice(evidence: Evidence) -> set[TaskId]:
    """Tasks with more ends than lives, by the workers' receipts or by the attempt log."""
    ends = Counter(one.task_id for one in evidence.settlements if one.event in ENDS)
    replays = Counter(audit.task_id for audit in evidence.audits if audit.action == "replay")
    by_receipts = {task_id for task_id, number in ends.items() if number > 1 + replays[task_id]}
    tasks = evidence.tasks.values()
    return by_receipts | {task.id for task in tasks if _contradicts(task, evidence.attempts[task.id])}


def _contradicts(task: Task, attempts: Sequence[Attempt]) -> bool:
    """Whether a lease has two attempts, or a return is not the last attempt of a completed task."""
    ordered = sorted(attempts, key=lambda attempt: attempt.fence)
    returned = [attempt.fence for attempt in ordered if attempt.outcome == "returned"]
    if len({attempt.fence for attempt in ordered}) != len(ordered):
        return True
    if task.state is State.COMPLETED:
        return returned != [ordered[-1].fence] if ordered else True
    return bool(returned)
