"""Records: put, list and remove; sessions and the usage of limits."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UnsetType

from ..._model.filter import By, Page, Slice, page_of
from ..._model.limit import Limit, Usage
from ..._model.queue import QueueSettings
from ..._model.record import KINDS, Audit, Record, Session, StoredRecord, Worker
from ..._policy.order.limits import PermitUsage
from ..records import check_expected, reader
from ..rules.audit import audited_put, audited_removal
from ..rules.usage import usages
from .claim import relayout
from .claim.answers import read_bucket
from .database import Database
from .rows import moment, read_permits
from .unit_of_work import UnitOfWork

R = TypeVar("R", bound=Record)

_audits = msgspec.msgpack.Decoder(Audit)
_workers = msgspec.json.Decoder(Worker)
_encode = msgspec.json.Encoder().encode
_NAMES: dict[Any, str] = {QueueSettings: "queue", **KINDS}


async def put(
    database: Database,
    record: QueueSettings | StoredRecord,
    by: By | None,
    expected: Record | UnsetType | None,
) -> None:
    """Store a record, replacing the old one. Raises Conflict if the old one is not as expected."""

    async def store(unit: UnitOfWork) -> bool:
        kind = _NAMES[type(record)]
        before = await _stored(unit, type(record), record.name)
        check_expected(record, expected, before)
        if by is not None:
            unit.audit([audited_put(before, record, by, unit.now)])
        unit.run("HSET", unit.keys.bodies(kind), record.name, _encode(record))
        unit.run("ZADD", unit.keys.names(kind), 0, record.name)
        return await _after(database, unit, before, record)

    if await database.transact(store):
        await relayout.finish_relayouts(database)


async def _stored(unit: UnitOfWork, kind: Any, name: str) -> Any:
    body = (await unit.guarded(unit.keys.bodies(_NAMES[kind]), [name])).get(name)
    return None if body is None else reader(kind)(body)


async def _after(database: Database, unit: UnitOfWork, before: Any, after: Any) -> bool:
    """Note that rules have changed; return whether tasks must move."""
    changed = before or after
    if not isinstance(changed, QueueSettings | Limit):
        return False
    unit.change_rules()
    if isinstance(changed, QueueSettings):
        return relayout.after_settings(unit, changed.name, before, after)
    return await relayout.after_limit(database, unit, before, after)


async def remove(database: Database, kind: Any, name: str, by: By | None) -> bool:
    """Delete a record; return whether it existed."""

    async def delete(unit: UnitOfWork) -> tuple[bool, bool]:
        keys, must_move = unit.keys, False
        if kind is Session:
            removed = bool(await unit.guarded(keys.session(name), ["started"]))
            if removed:
                unit.run("DEL", keys.session(name))
                unit.run("ZADD", keys.sessions, 0, name)  # Its tasks become rescuable.
        else:
            before = await _stored(unit, kind, name)
            removed = bool(await unit.guarded(keys.bodies(_NAMES[kind]), [name]))
            if removed:
                unit.run("HDEL", keys.bodies(_NAMES[kind]), name)
                unit.run("ZREM", keys.names(_NAMES[kind]), name)
                if kind in (QueueSettings, Limit):
                    stood = before or kind(name=name)
                    must_move = await _after(database, unit, stood, None)
            elif kind is QueueSettings:
                unit.wakes.ready.add(name)
        if removed and by is not None:
            unit.audit([audited_removal(kind, name, by, unit.now)])
        return removed, must_move

    removed, must_move = await database.transact(delete)
    if must_move:
        await relayout.finish_relayouts(database)
    return removed


# -- read --------------------------------------------------------------------------------------------


async def records(database: Database, kind: type[R], page: Page) -> Slice[Any]:
    """Return a page of the records of a kind, ordered by name."""
    if kind is Usage:
        return page_of(await _usages(database), page, lambda usage: usage.name)
    if kind is Session:
        return page_of(await _sessions(database), page, lambda session: session.id)
    if kind is Audit:
        return await _page(database, "audit", _audits.decode, page)
    return await _page(database, _NAMES[kind], reader(kind), page)


async def _page(database: Database, kind: str, read: Callable[[bytes], Any], page: Page) -> Slice[Any]:
    """Read a page by names; records that cannot be read are left out."""
    keys, cursor, limit = database.keys, page.cursor, max(page.limit, 0)
    if page.newest_first:
        edge = "+" if cursor is None else f"({cursor}"
        span = ("ZREVRANGEBYLEX", keys.names(kind), edge, "-", "LIMIT", 0, limit + 1)
    else:
        edge = "-" if cursor is None else f"({cursor}"
        span = ("ZRANGEBYLEX", keys.names(kind), edge, "+", "LIMIT", 0, limit + 1)
    found = await database.client.call(*span)
    names = found[:limit]
    bodies = await database.client.call("HMGET", keys.bodies(kind), *names) if names else []
    read_ones = [read(body) for body in bodies if body is not None]
    items = tuple(one for one in read_ones if one is not None)
    return Slice(items=items, cursor=names[-1].decode() if names and len(found) > limit else None)


async def _sessions(database: Database) -> list[Session]:
    keys = database.keys
    names = [one.decode() for one in await database.client.call("ZRANGE", keys.sessions, 0, -1)]
    fields = ("worker", "started", "beat", "expires")
    rows = await database.client.call_all([("HMGET", keys.session(name), *fields) for name in names])
    return [
        Session(
            id=name,
            worker=_workers.decode(worker),
            started_at=moment(started),
            beat_at=moment(beat),
            expires_at=moment(expires),
        )
        for name, (worker, started, beat, expires) in zip(names, rows, strict=True)
        if worker is not None
    ]


async def _usages(database: Database) -> list[Usage]:
    """Return the usage of every permit that is held or has a bucket."""
    keys = database.keys
    rules = (await database.read_rules()).rules
    now = await database.now()
    found = [one async for one in database.client.scan("HSCAN", keys.buckets)]
    buckets = {name.decode(): read_bucket(value) for name, value in zip(found[::2], found[1::2], strict=True)}
    held = await _held_permits(database)
    used = {key: PermitUsage(held.get(key, 0), *buckets.get(key, (None, None))) for key in {*held, *buckets}}
    return usages(rules.limits, used, now)


async def _held_permits(database: Database) -> dict[str, int]:
    keys = database.keys
    ids = await relayout.running(database)
    rows = await database.client.call_all([("GET", keys.task(one)) for one in ids])
    return Counter(permit for row in rows for permit in read_permits(row))
