"""Enqueueing: all of a batch or none of it, first every check, then every write."""

from collections.abc import Sequence

from msgspec import Struct

from ..._model.state import State
from ..._model.task import Enqueued, NewTask, TaskId
from ..._policy.order.limits import Subject
from ..rules import refusals
from .rows import Row, instant, new_row
from .statements import listed
from .successors import cancel_pending
from .transaction import Transaction


class Key(Struct, frozen=True):
    """What an idempotency key stands for."""

    task_id: TaskId
    digest: str


class Admission:
    """One batch on its way in. What it has let in so far counts for the checks of the rest."""

    def __init__(self, tx: Transaction, batch: Sequence[NewTask]) -> None:
        self._tx = tx
        self._places = tx.places
        self._known: set[TaskId] = {
            row[0] for row in tx.rows("existing", {"ids": listed(n.id for n in batch)})
        }
        self._keys: dict[tuple[str, str], Key] = {}
        self._standing: dict[str, TaskId] = {}
        self._batch = batch
        self._new: list[NewTask] = []
        self._plain: list[Row] = []
        self._laned: list[Row] = []

    def answers(self) -> list[Enqueued]:
        """Check everything and insert what is new."""
        answers = [self._admit(new) for new in self._batch]
        self._insert()
        return answers

    # -- checks --------------------------------------------------------------------------------------

    def _admit(self, new: NewTask) -> Enqueued:
        standing = new.id if new.id in self._known else self._by_key(new)
        if standing is not None:
            return Enqueued(id=standing, created=False)
        if new.fingerprint is not None:
            self._check_fingerprint(new, new.fingerprint)
        if new.after:
            self._check_predecessors(new)
        if new.idempotency_key is not None:
            self._keys[new.tenant, new.idempotency_key] = Key(new.id, new.idempotency_digest)
        self._known.add(new.id)
        self._new.append(new)
        return Enqueued(id=new.id, created=True)

    def _by_key(self, new: NewTask) -> TaskId | None:
        if new.idempotency_key is None:
            return None
        key = self._keys.get((new.tenant, new.idempotency_key)) or self._stored_key(new)
        if key is None:
            return None
        if key.digest != new.idempotency_digest:
            raise refusals.key_taken(new, key.task_id)
        return key.task_id

    def _stored_key(self, new: NewTask) -> Key | None:
        found = self._tx.rows("key", {"tenant": new.tenant, "key": new.idempotency_key, "now": self._tx.at})
        return Key(*found[0]) if found else None

    def _check_fingerprint(self, new: NewTask, fingerprint: str) -> None:
        stored = {"fingerprint": fingerprint}
        other = self._standing.get(fingerprint) or self._tx.value("standing", stored)
        if other is not None:
            raise refusals.duplicate(new, other)
        self._standing[fingerprint] = new.id

    def _check_predecessors(self, new: NewTask) -> None:
        missing = [p for p in new.after if p not in self._known]
        found = {row[0] for row in self._tx.rows("existing", {"ids": listed(missing)})} if missing else set()
        for predecessor in missing:
            if predecessor not in found:
                raise refusals.no_predecessor(new, predecessor)

    # -- writes --------------------------------------------------------------------------------------

    def _insert(self) -> None:
        for new in self._new:
            if new.idempotency_key is not None:
                self._keep_key(new)
            if new.after:
                self._write()  # Its predecessors may be among those that are still to be written.
                self._insert_successor(new)
            else:
                self._add(new, waiting=False)
        self._write()

    def _add(self, new: NewTask, *, waiting: bool) -> None:
        now, places = self._tx.now, self._places
        run_at = new.run_at or (now if new.delay is None else now + new.delay)
        state = State.WAITING if waiting else State.SCHEDULED if run_at > now else State.READY
        self._tx.news.tell(state, new.queue)
        row = new_row(new, state, run_at, self._tx.at)
        if places.are_plain or state is not State.READY or places.is_one_line(new.queue):
            self._plain.append(row)
        else:
            subject = Subject(new.queue, new.type, new.tenant, new.payload)
            self._laned.append((*row, *places.of(subject, new.priority)))

    def _write(self) -> None:
        self._tx.run_many("enqueue", self._plain)
        self._tx.run_many("enqueue_laned", self._laned)
        self._plain, self._laned = [], []

    def _insert_successor(self, new: NewTask) -> None:
        states: dict[TaskId, str] = dict(self._tx.rows("existing", {"ids": listed(dict.fromkeys(new.after))}))
        pending = {p: state for p, state in states.items() if state != State.COMPLETED}
        self._add(new, waiting=bool(pending))
        self._write()
        self._tx.run_many("depend", [{"predecessor": p, "successor": new.id} for p in states if pending])
        if State.CANCELLED in pending.values():
            task = self._tx.get(new.id)
            assert task is not None
            cancel_pending(self._tx, task, "a predecessor had been cancelled")

    def _keep_key(self, new: NewTask) -> None:
        until = None if new.idempotency_for is None else instant(self._tx.now + new.idempotency_for)
        self._tx.run(
            "keep_key",
            {
                "tenant": new.tenant,
                "key": new.idempotency_key,
                "task_id": new.id,
                "digest": new.idempotency_digest,
                "until": until,
            },
        )


def enqueue(tx: Transaction, batch: Sequence[NewTask]) -> list[Enqueued]:
    """Keep all of the batch or none of it; a refusal must be rolled back by the caller."""
    return Admission(tx, batch).answers()
