"""Checks the promise against three independent records; `prove` is pure, `gather` reads the records.

The records are: the ids whose enqueue was acknowledged (the ledger); what the store kept (tasks, attempts,
audit log); and what handlers and workers logged themselves (executions, settlements).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from windlass import App, Page, State, Task
from windlass.types import Attempt, Audit

from .monitor import ENDED
from .shop import EXECUTIONS, SETTLEMENTS

FAILED, RESCUED, RELEASED = "failed", "rescued after a kill", "released by a worker"
REPLAYED, UNEXPLAINED = "replayed by an operator", "no reason found"
ENDS = ("completed", "buried", "cancelled")
_REASONS = {"failed": FAILED, "crashed": RESCUED, "interrupted": RELEASED}


class Execution(Struct, frozen=True):
    """One start of a handler, as the handler logged it."""

    task_id: str
    fence: int
    attempt: int


class Settlement(Struct, frozen=True):
    """One end of a task that the store confirmed, as the worker logged it."""

    task_id: str
    event: str


class Evidence(Struct, frozen=True, kw_only=True):
    """All records. `attempts` includes those of discarded tasks."""

    ledger: frozenset[str]
    tasks: Mapping[str, Task]
    attempts: Mapping[str, Sequence[Attempt]]
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
    started_twice: int  # two starts under one lease
    executions: int
    executed: int  # tasks that ran at least once
    reasons: Mapping[str, int]  # of repeated executions

    @property
    def repeated(self) -> int:
        """Executions beyond each task's first."""
        return self.executions - self.executed

    @property
    def holds(self) -> bool:
        """Whether the promise was kept: every task enqueued is in exactly one of the ends; no faults."""
        faults = self.unended + self.lost + self.unknown + self.settled_twice + self.started_twice
        ended = self.completed + self.cancelled + self.dead + self.discarded
        return self.enqueued == ended and not faults and not self.reasons.get(UNEXPLAINED)


async def gather(
    app: App, folder: Path, ledger: frozenset[str], discarded: Mapping[str, Sequence[Attempt]]
) -> Evidence:
    """Read all records. `discarded` holds the attempts of discarded tasks, read before they were deleted."""
    tasks = {task.id: task async for task in app.operator.every()}
    attempts = {task_id: await app.operator.attempts(task_id) for task_id in tasks}
    audits = await app.operator.audit(Page(limit=1_000))  # the scenario makes about 40 entries
    return Evidence(
        ledger=ledger,
        tasks=tasks,
        attempts={**discarded, **attempts},
        audits=audits.items,
        executions=[
            Execution(task_id, int(fence), int(attempt))
            for task_id, fence, attempt in _words(folder / EXECUTIONS)
        ],
        settlements=[Settlement(task_id, event) for task_id, event in _words(folder / SETTLEMENTS)],
    )


def _words(path: Path) -> list[list[str]]:
    """The words of each line of a log; none if there is no log."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def prove(evidence: Evidence) -> Proof:
    """Compare the records with each other."""
    tasks, ledger, executions = evidence.tasks, evidence.ledger, evidence.executions
    discarded = {audit.task_id for audit in evidence.audits if audit.action == "discard"}
    states = Counter(task.state for task_id, task in tasks.items() if task_id in ledger)
    executed = {execution.task_id for execution in executions}
    return Proof(
        enqueued=len(ledger),
        completed=states[State.COMPLETED],
        cancelled=states[State.CANCELLED],
        dead=states[State.DEAD],
        discarded=len(discarded & ledger - tasks.keys()),
        unended=sum(number for state, number in states.items() if state not in ENDED),
        lost=len(ledger - tasks.keys() - discarded),
        unknown=len(tasks.keys() - ledger) + len(executed - ledger),
        settled_twice=len(_settled_twice(evidence)),
        started_twice=len(executions) - len({(one.task_id, one.fence) for one in executions}),
        executions=len(executions),
        executed=len(executed),
        reasons=Counter(_reasons(evidence)),
    )


def _reasons(evidence: Evidence) -> Iterator[str]:
    """Why each start of a task but the first happened: the outcome of the lease before it."""
    started: set[str] = set()
    for start in sorted(evidence.executions, key=lambda start: start.fence):
        if start.task_id in started:
            attempts = evidence.attempts.get(start.task_id, ())
            before = {attempt.fence: attempt.outcome for attempt in attempts if attempt.fence < start.fence}
            outcome = before[max(before)] if before else ""
            # Only a replay counts attempts from 1 again.
            replayed = outcome == "failed" and start.attempt == 1
            yield REPLAYED if replayed else _REASONS.get(outcome, UNEXPLAINED)
        started.add(start.task_id)


def _settled_twice(evidence: Evidence) -> set[str]:
    """Tasks with more ends than lives, by the workers' receipts or by the attempt log."""
    ends = Counter(one.task_id for one in evidence.settlements if one.event in ENDS)
    replays = Counter(audit.task_id for audit in evidence.audits if audit.action == "replay")
    by_receipts = {task_id for task_id, number in ends.items() if number > 1 + replays[task_id]}
    tasks = evidence.tasks.values()
    return by_receipts | {task.id for task in tasks if _contradicts(task, evidence.attempts[task.id])}


def _contradicts(task: Task, attempts: Sequence[Attempt]) -> bool:
    """Whether a lease has two attempts, or a return is not the last attempt of a completed task."""
    fences = [attempt.fence for attempt in attempts]
    returned = [attempt.fence for attempt in attempts if attempt.outcome == "returned"]
    expected = [max(fences, default=None)] if task.state is State.COMPLETED else []
    return len(set(fences)) != len(fences) or returned != expected
