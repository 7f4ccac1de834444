"""The verbs of the seam as messages: what is asked of a store from afar, and what it answers."""

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from .._model.attempt import Attempt
from .._model.filter import Action, By, Count, Dimension, Filter, Page, Slice
from .._model.lease import Claim, Claimed, Heartbeat, Lease, Pulse
from .._model.limit import Usage
from .._model.queue import QueueSettings, Retention
from .._model.record import KINDS, Audit, Record, Session
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.verdict import Settled, Settlement
from ..errors import InvalidOption
from .json_codec import Decoder, to_wire
from .protocol import Finding, Promise, Promoted, Store

RECORDS: dict[str, Any] = {
    "queue": QueueSettings,
    "session": Session,
    "audit": Audit,
    "usage": Usage,
    **{name: kind for kind, name in KINDS.items()},
}
"""Kinds of records, by their names over the wire."""

_NAMES: dict[Any, str] = {kind: name for name, kind in RECORDS.items()}
_decoders: dict[str, Decoder[Any]] = {}


class Nothing(Struct, frozen=True):
    """Nothing is asked but the verb itself."""


class Enqueue(Struct, frozen=True):
    """Keep all of these or none."""

    batch: tuple[NewTask, ...]


class ToClaim(Struct, frozen=True):
    """Lease ready tasks to a session."""

    claim: Claim


class Settle(Struct, frozen=True):
    """Apply verdicts, and claim in the same step."""

    batch: tuple[Settlement, ...] = ()
    claim: Claim | None = None


class Beat(Struct, frozen=True):
    """Keep a session alive."""

    beat: Heartbeat


class Once(Struct, frozen=True):
    """Mark a key on a leased task."""

    lease: Lease
    key: str


class Lead(Struct, frozen=True):
    """Take, keep or give up the lead."""

    holder: str
    lease_for: timedelta


class Promote(Struct, frozen=True):
    """Make due tasks ready."""

    limit: int


class Rescue(Struct, frozen=True):
    """Take over what silent sessions hold."""

    session: str
    limit: int


class Prune(Struct, frozen=True):
    """Delete what retention no longer covers."""

    retention: Retention
    limit: int
    by: By | None = None


class Find(Struct, frozen=True):
    """A page of tasks."""

    where: Filter
    page: Page


class CountBy(Struct, frozen=True):
    """How many tasks, by these dimensions."""

    where: Filter
    by: tuple[Dimension, ...] = ()


class AttemptsOf(Struct, frozen=True):
    """A task's settled attempts."""

    task_id: TaskId


class Apply(Struct, frozen=True):
    """Do something to many tasks."""

    action: Action
    where: Filter
    limit: int


class Put(Struct, frozen=True):
    """Keep a record; its kind says what it is."""

    kind: str
    record: bytes
    by: By | None = None


class RecordsOf(Struct, frozen=True):
    """A page of the records of a kind."""

    kind: str
    page: Page


class Remove(Struct, frozen=True):
    """Forget a record."""

    kind: str
    name: str
    by: By | None = None


class About(Struct, frozen=True, kw_only=True):
    """What a store is: its promise, what it can do, and its clock."""

    promise: Promise
    capabilities: tuple[str, ...]
    now: datetime


Call: TypeAlias = Callable[[Store, Any], Coroutine[Any, Any, Any]]


class Verb(Struct, frozen=True):
    """A verb: the message that asks it, the type of its answer, and how a store is asked."""

    name: str
    asked: Any
    answer: Any
    call: Call


async def _about(store: Store, _: Nothing) -> About:
    await store.open()
    names = tuple(str(one.name) for one in store.capabilities)
    return About(promise=store.promise, capabilities=names, now=await store.now())


async def _put(store: Store, asked: Put) -> None:
    await store.put(read_record(asked.kind, asked.record), asked.by)


async def _remove(store: Store, asked: Remove) -> bool:
    return await store.remove(kind_named(asked.kind), asked.name, asked.by)


async def _records(store: Store, asked: RecordsOf) -> Any:
    found: Slice[Any] = await store.records(kind_named(asked.kind), asked.page)
    return {"items": [to_wire(record) for record in found.items], "cursor": found.cursor}


VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("about", Nothing, About, _about),
        Verb("enqueue", Enqueue, tuple[Enqueued, ...], lambda store, asked: store.enqueue(asked.batch)),
        Verb("claim", ToClaim, tuple[Claimed, ...], lambda store, asked: store.claim(asked.claim)),
        Verb("settle", Settle, Settled, lambda store, asked: store.settle(asked.batch, asked.claim)),
        Verb("heartbeat", Beat, Pulse, lambda store, asked: store.heartbeat(asked.beat)),
        Verb("once", Once, bool, lambda store, asked: store.once(asked.lease, asked.key)),
        Verb("lead", Lead, bool, lambda store, asked: store.lead(asked.holder, asked.lease_for)),
        Verb("promote", Promote, Promoted, lambda store, asked: store.promote(asked.limit)),
        Verb(
            "rescue",
            Rescue,
            tuple[Claimed, ...],
            lambda store, asked: store.rescue(asked.session, asked.limit),
        ),
        Verb("prune", Prune, int, lambda store, asked: store.prune(asked.retention, asked.limit, asked.by)),
        Verb("find", Find, Slice[Task], lambda store, asked: store.find(asked.where, asked.page)),
        Verb("count", CountBy, tuple[Count, ...], lambda store, asked: store.count(asked.where, asked.by)),
        Verb("attempts", AttemptsOf, tuple[Attempt, ...], lambda store, asked: store.attempts(asked.task_id)),
        Verb(
            "apply",
            Apply,
            tuple[TaskId, ...],
            lambda store, asked: store.apply(asked.action, asked.where, asked.limit),
        ),
        Verb("put", Put, None, _put),
        Verb("records", RecordsOf, Any, _records),
        Verb("remove", Remove, bool, _remove),
        Verb("check", Nothing, tuple[Finding, ...], lambda store, _: store.check()),
    )
}
"""Every verb that can be asked from afar. Joining a transaction, having one and migrating cannot."""


def kind_named(name: str) -> type[Record]:
    """The kind of record that goes by this name."""
    if name not in RECORDS:
        raise InvalidOption(
            f"there is no kind of record called {name[:80]!r}; there are: {', '.join(RECORDS)}"
        )
    kind: type[Record] = RECORDS[name]
    return kind


def name_of(kind: Any) -> str:
    """The name of a kind of record."""
    return _NAMES[kind]


def read_record(name: str, data: bytes) -> Record:
    """A record of a kind, from its JSON."""
    kind = kind_named(name)
    if name not in _decoders:
        _decoders[name] = Decoder(kind)
    try:
        record: Record = _decoders[name].decode(data)
    except msgspec.DecodeError as error:
        raise InvalidOption(f"this is no record of the kind {name!r}: {error}") from None
    return record
