"""Enqueueing: all of a batch or none of it. Plain tasks in one stroke, the others after every check."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache

from msgspec import Struct, field

from ...._model.state import State
from ...._model.task import Enqueued, NewTask, TaskId
from ...rules import refusals
from ..queue_layout import Layout
from ..rows import columns_of, ids_of, new_row
from ..script import Ask, Script, ask, pairs, value
from ..statements import NEW_COLUMNS, statement
from ..successors import cancel_pending
from ..unit_of_work import UnitOfWork

_SKEW = timedelta(days=1)
"""How far apart the clocks of producers and of the database may be."""

_EVER = "'-infinity'"


class Terms(Struct, frozen=True, kw_only=True):
    """What enqueueing goes by: where, by which clock (None: the database's), and how queues are laid out."""

    schema: str
    clock: datetime | None = None
    layout: Layout = field(default_factory=Layout)


def is_plain(new: NewTask) -> bool:
    """Whether nothing about it needs to be looked up first, but its own id."""
    return new.idempotency_key is None and new.fingerprint is None and not new.after


def enqueue(terms: Terms, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """Keep all of the batch or none of it; a refusal must be rolled back by who plays this."""
    if all(map(is_plain, batch)):
        return (yield from insert_plain(terms, batch))
    work = UnitOfWork((yield from value("now", terms.clock)))
    answers = yield from Admission(terms, work).admit(batch)
    yield from work.flush()
    yield from work.wake()
    return answers


def insert_plain(terms: Terms, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """Insert tasks that need no look-up; what stands already stays."""
    created = {row[0] for row in (yield plain_insertion(terms, batch))}
    return answers_to(batch, created)


def insert_again(terms: Terms, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """The same for tasks that may have been tried before; see tries.py for what the second look is for."""
    created = {row[0] for row in (yield plain_insertion(terms, batch))}
    if created:
        ended = yield ended_between(terms, batch)
        those = sorted(created.intersection(row[0] for row in ended))
        if those:
            yield from ask("take_back", those)
            created.difference_update(those)
    return answers_to(batch, created)


def ended_between(terms: Terms, batch: Sequence[NewTask]) -> Ask:
    """Whatever has ended with an id from the first of these to the last."""
    sql = statement("ended_between", terms.schema, since=since(terms, batch))
    return Ask("ended_between", (min(new.id for new in batch), max(new.id for new in batch)), sql)


def plain_insertion(terms: Terms, batch: Sequence[NewTask]) -> Ask:
    """One statement for plain tasks: without arrays for a single one, which takes half the time."""
    rows = [new_row(new, terms.layout.place(new)) for new in batch]
    if len(rows) == 1:
        sql = statement("enqueue_one", terms.schema, since=since(terms, batch))
        return Ask("enqueue_one", (terms.clock, *rows[0]), sql)
    return insertion(terms, batch, columns_of(rows, NEW_COLUMNS))


def insertion(terms: Terms, batch: Sequence[NewTask], columns: list[list[object]]) -> Ask:
    """enqueue.sql for these rows."""
    sql = statement("enqueue", terms.schema, since=since(terms, batch))
    return Ask("enqueue", (terms.clock, *columns), sql)


def answers_to(batch: Sequence[NewTask], created: set[TaskId]) -> list[Enqueued]:
    """What to say to each: created, the first time that its id occurs."""
    answers = []
    for new in batch:
        answers.append(Enqueued(id=new.id, created=new.id in created))
        created.discard(new.id)
    return answers


def since(terms: Terms, batch: Iterable[NewTask]) -> str:
    """Return the instant, as an SQL literal, from which on the history may hold these ids, which are UUIDv7.

    A literal and not a parameter, so that the planner leaves out the partitions of earlier days.
    """
    if terms.clock is not None:  # A test's clock knows nothing of the ids'.
        return _EVER
    first = min(new.id for new in batch)
    return _day_before(int(first[:13].replace("-", ""), 16) // 86_400_000)


@cache
def _day_before(day: int) -> str:
    try:
        return f"'{date(1970, 1, 1) + timedelta(days=day) - _SKEW} 00:00:00+00'"
    except OverflowError:  # an id that is no UUIDv7
        return _EVER


class Key(Struct, frozen=True):
    """What an idempotency key stands for."""

    task_id: TaskId
    digest: str


class Admission:
    """One batch on its way in. What it has let in so far counts for the checks of the rest."""

    def __init__(self, terms: Terms, work: UnitOfWork) -> None:
        self._terms = terms
        self._work = work
        self._states: dict[TaskId, str] = {}  # of tasks that stand, and of those that are let in
        self._keys: dict[tuple[str, str], Key] = {}
        self._fingerprints: dict[str, TaskId] = {}
        self._new: list[NewTask] = []

    def admit(self, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
        """Check everything, then insert what is new."""
        yield from self._know(batch)
        fresh = [new for new in batch if new.id not in self._states]
        yield from self._take_keys(fresh)
        yield from self._lock_fingerprints(fresh)
        yield from self._lock_predecessors(fresh)
        # Any of these may have waited for an earlier try at this very batch, whose reply was lost.
        yield from self._know(fresh)
        answers = [self._admit(new) for new in batch]
        yield from self._insert()
        return answers

    def _know(self, batch: Sequence[NewTask]) -> Script[None]:
        """Which of them stand."""
        if batch:
            self._states.update((yield from pairs("existing", ids_of(new.id for new in batch))))

    # -- look-ups, each for the whole batch, in an order that is the same for everybody --------------

    def _take_keys(self, fresh: Sequence[NewTask]) -> Script[None]:
        """Take the keys that are free, and learn what the others stand for."""
        first: dict[tuple[str, str], NewTask] = {}
        for new in fresh:
            if new.idempotency_key is not None:
                first.setdefault((new.tenant, new.idempotency_key), new)
        if not first:
            return
        now = self._work.now
        rows = [
            (tenant, key, new.id, new.idempotency_digest, _until(new, now))
            for (tenant, key), new in sorted(first.items())
        ]
        columns = columns_of(rows, 5)
        taken = {(row[0], row[1]) for row in (yield from ask("take_keys", now, *columns))}
        for tenant, key, task_id, digest in (yield from ask("keys", *columns[:2])):
            if (tenant, key) not in taken:
                self._keys[tenant, key] = Key(task_id, digest)

    def _lock_fingerprints(self, fresh: Sequence[NewTask]) -> Script[None]:
        wanted = sorted({new.fingerprint for new in fresh if new.fingerprint is not None})
        if wanted:
            # Whoever else wants one of them waits until this transaction has ended.
            yield from ask("lock_fingerprints", wanted)
            self._fingerprints.update((yield from pairs("standing", wanted)))

    def _lock_predecessors(self, fresh: Sequence[NewTask]) -> Script[None]:
        """Learn the states of those that are to be waited for; none can end before this transaction has."""
        wanted = ids_of(p for new in fresh for p in new.after)
        if wanted:
            self._states.update((yield from pairs("await", wanted)))
            ended = [task_id for task_id in wanted if task_id not in self._states]
            self._states.update((yield from pairs("existing", ended)))

    # -- checks --------------------------------------------------------------------------------------

    def _admit(self, new: NewTask) -> Enqueued:
        standing = new.id if new.id in self._states else self._by_key(new)
        if standing is not None:
            return Enqueued(id=standing, created=False)
        if new.fingerprint is not None:
            self._check_fingerprint(new, new.fingerprint)
        for predecessor in new.after:
            if predecessor not in self._states:
                raise refusals.no_predecessor(new, predecessor)
        if new.idempotency_key is not None:
            self._keys[new.tenant, new.idempotency_key] = Key(new.id, new.idempotency_digest)
        self._states[new.id] = self._state(new)
        self._new.append(new)
        return Enqueued(id=new.id, created=True)

    def _state(self, new: NewTask) -> str:
        """Where it will begin; what is not due yet counts as ready here."""
        before = {self._states[predecessor] for predecessor in new.after}
        if State.CANCELLED in before:
            return State.CANCELLED
        return State.WAITING if before - {State.COMPLETED} else State.READY

    def _by_key(self, new: NewTask) -> TaskId | None:
        if new.idempotency_key is None:
            return None
        key = self._keys.get((new.tenant, new.idempotency_key))
        if key is None:
            return None
        if key.digest != new.idempotency_digest:
            raise refusals.key_taken(new, key.task_id)
        return key.task_id

    def _check_fingerprint(self, new: NewTask, fingerprint: str) -> None:
        other = self._fingerprints.get(fingerprint)
        if other is not None:
            raise refusals.duplicate(new, other)
        self._fingerprints[fingerprint] = new.id

    # -- writes --------------------------------------------------------------------------------------

    def _insert(self) -> Script[None]:
        awaited = {predecessor for new in self._new for predecessor in new.after}
        rows = []
        for new in self._new:
            waits = self._states[new.id] in (State.WAITING, State.CANCELLED)
            place = self._terms.layout.place(new)
            rows.append(new_row(new, place, awaited=new.id in awaited, waiting=waits))
        if not rows:
            return
        made = yield insertion(self._terms, self._new, columns_of(rows, NEW_COLUMNS))
        assert len(made) == len(rows), "tasks appeared in the middle of their own enqueue"
        waiting = [new for new in self._new if self._states[new.id] == State.WAITING]
        pairs = sorted({(predecessor, new.id) for new in waiting for predecessor in new.after})
        if pairs:
            yield from ask("depend", *columns_of(pairs, 2))
        yield from self._cancel_doomed()

    def _cancel_doomed(self) -> Script[None]:
        doomed = [new.id for new in self._new if self._states[new.id] == State.CANCELLED]
        yield from self._work.load(doomed)
        for task_id in doomed:
            task = self._work.get(task_id)
            if task is not None and task.state is State.WAITING:
                yield from cancel_pending(self._work, task, "a predecessor had been cancelled")


def _until(new: NewTask, now: datetime) -> datetime | None:
    if new.idempotency_for is None:
        return None
    try:
        return now + new.idempotency_for
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
