"""Which tasks were in the store when, and whether each was treated by its own program's rules."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from msgspec import Struct, field

from tests.system.checker import LOST_WORKER, Report, Violation
from tests.system.fleet import Fleet
from tests.system.programs import PROGRAMS
from windlass import State, StoreUnavailable, Task
from windlass._model.attempt import Attempt

EVERY = 0.25
TICK = timedelta(milliseconds=1)
COUNTED = {"failed", "crashed"}


class Seen(Struct):
    """A task as it was last seen, not before `last_at`; and by when it was gone, if it was."""

    task: Task
    last_at: datetime
    gone_at: datetime | None = None


class Census(Struct):
    """What was seen by looking into the store again and again."""

    seen: dict[str, Seen] = field(default_factory=dict)
    retries: set[tuple[str, int, datetime]] = field(default_factory=set)  # task, attempt, due again
    looks: int = 0
    looked_at: datetime | None = None
    longest_gap: timedelta = timedelta(0)

    def note(self, began: datetime, ended: datetime, tasks: Sequence[Task]) -> None:
        """Take in everything that is in the store, by one look at it."""
        self.looks += 1
        self.longest_gap = max(self.longest_gap, ended - (self.looked_at or ended))
        self.looked_at = began
        there = {task.id for task in tasks}
        for task in tasks:
            self.seen[task.id] = Seen(task, began)
            if task.state is State.SCHEDULED and task.attempt:
                self.retries.add((task.id, task.attempt, task.run_at))
        for task_id, one in self.seen.items():
            if task_id not in there and one.gone_at is None:
                one.gone_at = ended

    @property
    def gone(self) -> dict[str, Seen]:
        return {task_id: one for task_id, one in self.seen.items() if one.gone_at is not None}


@contextmanager
def taken(fleet: Fleet) -> Iterator[Census]:
    """Look all the time, until the end of the block."""
    census, over = Census(), threading.Event()
    thread = threading.Thread(target=_look, args=(fleet, census, over))
    thread.start()
    try:
        yield census
    finally:
        over.set()
        thread.join()


def _look(fleet: Fleet, census: Census, over: threading.Event) -> None:
    while not over.wait(EVERY):
        look(fleet, census)


def look(fleet: Fleet, census: Census) -> None:
    """Look once."""
    began = _now()
    with suppress(StoreUnavailable):
        tasks = [*fleet.app.sync_operator.every()]
        census.note(began, _now(), tasks)


def _now() -> datetime:
    return datetime.now().astimezone()


# -- the rules ---------------------------------------------------------------------------------------


def judged(census: Census, enqueued: Mapping[str, str], lines: dict[str, Sequence[Attempt]]) -> Report:
    """What happened, and what was done by other rules than those of the task's program, given by its id."""
    report = Report()
    for found in (_kept(census, enqueued), _retried(census, lines), _buried(census)):
        report.violations += found
    numbers = report.numbers
    numbers["looks into the store"] = census.looks
    numbers["tasks"] = len(enqueued)
    for one in census.seen.values():
        numbers[f"{_program(one.task)}, {one.task.state}"] += 1
        numbers[f"{_program(one.task)}, pruned"] += one.gone_at is not None
    numbers.update(
        Counter(
            f"{_program(census.seen[task_id].task)}, crashes"
            for task_id in lines
            for line in lines[task_id]
            if was_lost(line)
        )
    )
    return report


def _program(task: Task) -> str:
    return task.queue


def was_lost(line: Attempt) -> bool:
    """Whether an attempt ended because its worker was gone, as a keeper found."""
    return line.error is not None and line.error.type == LOST_WORKER


def _kept(census: Census, enqueued: Mapping[str, str]) -> Iterator[Violation]:
    """Nothing is gone that had not ended, or before its program's retention is over.

    What ended and was pruned between two looks that were further apart than its retention is not judged.
    """
    for task_id, name in enqueued.items():
        period = PROGRAMS[name].kept(State.COMPLETED)
        if task_id not in census.seen and (period is None or census.longest_gap < period):
            yield Violation("gone before it was seen", f"{task_id} of {name}")
    for task_id, one in census.gone.items():
        task, about = one.task, f"{task_id} of {_program(one.task)}, last seen {one.task.state}"
        assert one.gone_at is not None
        if task.finished_at is None:
            period = PROGRAMS[_program(task)].kept(State.COMPLETED)
            if period is None or one.gone_at - one.last_at < period:
                yield Violation("gone before it was seen to end", about)
            continue
        period = PROGRAMS[_program(task)].kept(task.state)
        if period is None:
            yield Violation("pruned though kept for ever", about)
        elif one.gone_at < task.finished_at + period:
            yield Violation("pruned too early", f"{about}, after {one.gone_at - task.finished_at}")


def _retried(census: Census, lines: dict[str, Sequence[Attempt]]) -> Iterator[Violation]:
    """Each retry is due after the delay of its program's own backoff, whoever decided it."""
    due: dict[tuple[str, int], list[datetime]] = defaultdict(list)
    for task_id, attempt, run_at in census.retries:
        due[task_id, attempt].append(run_at)
    for task_id, some in lines.items():
        rules = PROGRAMS[_program(census.seen[task_id].task)]
        claims = {line.number: line.claimed_at for line in some}
        for line in (line for line in some if line.outcome in COUNTED):
            expected, about = rules.delay(line.number), f"{task_id}, attempt {line.number} {line.outcome}"
            for run_at in due[task_id, line.number]:
                if abs(run_at - line.finished_at - expected) > TICK:
                    yield Violation("another delay", f"{about}: {run_at - line.finished_at}, not {expected}")
            following = claims.get(line.number + 1)
            if following is not None and following - line.finished_at < expected - TICK:
                yield Violation("retried too early", f"{about}: after {following - line.finished_at}")


def _buried(census: Census) -> Iterator[Violation]:
    """A task is dead after as many attempts as its program allows, and not before."""
    for task_id, one in census.seen.items():
        allowed = PROGRAMS[_program(one.task)].max_attempts
        if one.task.state is State.DEAD and one.task.attempt != allowed:
            yield Violation("buried by other rules", f"{task_id} after {one.task.attempt} of {allowed}")
