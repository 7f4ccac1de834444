"""Enqueue tasks that nothing must be looked up for: those that are due at once, without key or predecessor.

A rule would find that there is nothing to decide. So one script inserts them, unless one of the ids is taken
or the rules of queues have changed; then the rules are played.
"""

from collections.abc import Sequence

from msgspec import Struct

from ..._model.state import State
from ..._model.task import EARLIEST, Enqueued, NewTask, Task, rank_of
from ..._policy.order.limits import Subject
from ..rules.admission import is_plain
from ..rules.queue_rules import QueueRules
from .connection.link import Argument
from .database import Database
from .keys import NO_PLACE, group_of, place_of
from .rows import DUE, LONGEST_INSIDE, Stored, document_of, instant, instant_bytes, row_of

_MAX_KINDS = 1_000


class _Kind(Struct, frozen=True, gc=False):
    """What tasks have in common that differ in id, document and time only."""

    before: bytes  # their row up to the instant they are due
    after: bytes  # and from there to the document
    group: str
    boost: int


class PlainEnqueue:
    """Inserts plain tasks. Remembers the kinds it has met."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version = ""  # of the rules that the kinds were made by
        self._kinds: dict[tuple[str, str, str, int, str], _Kind] = {}

    async def enqueue(self, batch: Sequence[NewTask]) -> list[Enqueued] | None:
        """Insert new tasks that are due at once, in one round trip; None if that is not possible."""
        if not batch or not all(map(_is_due, batch)) or len({new.id for new in batch}) < len(batch):
            return None
        database = self._database
        known = await database.rules()
        now = database.clock.now or await database.now()
        due, keys, rules = instant(now), database.keys, known.rules
        moment = instant_bytes(due)
        kinds: dict[tuple[str, str, str, int, str], tuple[_Kind, list[bytes], list[bytes]]] = {}
        for new in batch:
            document = document_of(new)
            if len(document) > LONGEST_INSIDE:
                return None
            place = NO_PLACE if rules.all_fifo else _place(rules, new)
            name = (new.queue, new.type, new.tenant, new.priority, place)
            found = kinds.get(name)
            if found is None:
                found = kinds[name] = (self._kind(known.version, rules, new, place), [], [])
            kind, names, rows = found
            names.append(keys.task(new.id))
            rows.append(b"".join((kind.before, moment, kind.after, document)))
        arguments: list[Argument] = [known.version, due, len(kinds)]
        for (queue, _, _, _, place), (kind, names, _) in kinds.items():
            arguments += (kind.group, queue, place, rank_of(now, kind.boost), len(names))
        for _, _, rows in kinds.values():
            arguments += rows
        written = [name for _, names, _ in kinds.values() for name in names]
        done, _ = await database.run("enqueue", *arguments, keys=written)
        return [Enqueued(id=new.id, created=True) for new in batch] if done else None

    def _kind(self, version: str, rules: QueueRules, new: NewTask, place: str) -> _Kind:
        if version != self._version or len(self._kinds) >= _MAX_KINDS:
            self._version, self._kinds = version, {}
        name = (new.queue, new.type, new.tenant, new.priority, place)
        kind = self._kinds.get(name)
        if kind is None:
            boost = rules.boost(new.queue, new.priority)
            document = document_of(new)
            row = row_of(Stored(_ready(new, boost), 1, 0, document, place))[: -len(document)]
            group = group_of(new.queue, new.type, new.tenant)
            kind = self._kinds[name] = _Kind(row[: DUE.start], row[DUE.stop :], group, boost)
        return kind


def _is_due(new: NewTask) -> bool:
    """Whether a task is due at once, and nothing must be looked up but its id."""
    return (
        is_plain(new)
        and new.run_at is None
        and new.delay is None
        and new.expires_at is None
        and new.expires_in is None
        and new.root == new.id
    )


def _place(rules: QueueRules, new: NewTask) -> str:
    if rules.is_fifo(new.queue):
        return NO_PLACE
    subject = Subject(new.queue, new.type, new.tenant, new.payload)
    return place_of(*rules.lane_and_key(subject, new.priority))


def _ready(new: NewTask, boost: int) -> Task:
    """Return a task that was due, and created, in 1970."""
    return Task(
        id=new.id,
        type=new.type,
        payload=new.payload,
        root=new.root,
        queue=new.queue,
        tenant=new.tenant,
        priority=new.priority,
        boost=boost,
        state=State.READY,
        attempt=0,
        max_attempts=new.max_attempts,
        fence=0,
        run_at=EARLIEST,
        created_at=EARLIEST,
    )
