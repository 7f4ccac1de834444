"""Read records, search the audit log, and change a record without undoing what others change meanwhile."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from .._model.filter import MAX_PAGE, By, Filter, Page, Reveal, Slice
from .._model.key import ApiKey
from .._model.limit import Limit
from .._model.queue import QueueSettings
from .._model.record import Audit, AuditFilter, Record
from .._model.schedule import Schedule
from .._store.protocol import Store, all_records
from ..errors import Conflict

R = TypeVar("R", bound=Record)
N = TypeVar("N", QueueSettings, Limit, Schedule, ApiKey)

MAX_TRIES = 20
"""How often a change is tried when others change the same record at the same time."""

HOW_TO_CREATE = "create=True (--create on the command line, ?create=true over HTTP) sets up a new one"
"""Part of an error about a record that does not exist."""

MAX_SEARCHED = 5_000
"""Entries of the audit log that one search reads, so that it ends soon."""


async def list_records(store: Store, kind: type[R]) -> Sequence[R]:
    """Open the store and return all records of a kind, by name."""
    await store.open()
    return await all_records(store, kind)


async def search_audit(store: Store, where: AuditFilter, page: Page) -> Slice[Audit]:
    """Return a page of the entries of the audit log that match.

    It reads at most `MAX_SEARCHED` entries: a page may have few or none and still a cursor, which leads on.
    """
    if where == AuditFilter():
        return await store.records(Audit, page)
    found: list[Audit] = []
    part = replace(page, limit=MAX_PAGE)
    for _ in range(MAX_SEARCHED // MAX_PAGE):
        read = await store.records(Audit, part)
        for entry in filter(where.matches, read.items):
            if len(found) == page.limit:
                return Slice(items=tuple(found), cursor=found[-1].id)
            found.append(entry)
        part = replace(part, cursor=read.cursor)
        if read.cursor is None:
            break
    return Slice(items=tuple(found), cursor=part.cursor)


async def audit_reveal(store: Store, by: By | None, subject: str) -> None:
    """Record in the audit log that secrets of a record are shown; None: by a program, not recorded."""
    if by is not None:
        await store.apply(Reveal(by=by, subject=subject), Filter(), 1)


async def change_record(
    store: Store, kind: type[N], name: str, change: Callable[[N | None], N], by: By | None = None
) -> N:
    """Store what `change` makes of the record as it is stored now (None: absent), and return it.

    If someone else changes the record at the same time, it is read again and `change` is called again, so
    that both changes stand. A `change` that returns its argument stores nothing. Raises Conflict after
    `MAX_TRIES`, and whatever `change` raises.
    """
    tries = 0
    while True:
        stored = {record.name: record for record in await list_records(store, kind)}.get(name)
        changed = change(stored)
        if changed is stored:
            return changed
        try:
            await store.put(changed, by, stored)
        except Conflict:
            tries += 1
            if tries == MAX_TRIES:
                raise
        else:
            return changed
