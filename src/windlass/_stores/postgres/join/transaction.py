"""Enqueue and settle on the caller's connection, by the same scripts as on the store's own."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from ...._model.task import Enqueued, NewTask
from ...._model.verdict import Receipt, Settled, Settlement, last_reports
from ....errors import InvalidOption, SchemaMismatch
from ...migrations import require_current
from ...rules.admission import is_plain
from .. import rule_player, schema
from .. import settle as settlement
from ..queue_layout import Environment
from ..rows import Row
from ..script import Query, Script, fetch, value
from .home import WHICH_DATABASE, DatabaseId, HomeDatabase

T = TypeVar("T")

_DATABASE = "the database of your connection"

_checked: "WeakKeyDictionary[object, set[tuple[DatabaseId | None, str]]]" = WeakKeyDictionary()
"""The schemas found to be current, by driver connection; a connection stays with one database."""


class JoinedConnection(Protocol):
    """A connection of the caller's. `identity` is the driver's own object."""

    identity: object

    @property
    def is_autocommit(self) -> bool:
        """Whether the next statement would commit by itself."""


class CallerConnection(JoinedConnection, Protocol):
    """A connection that blocks while it runs one statement and returns its rows."""

    def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]: ...


class AsyncCallerConnection(JoinedConnection, Protocol):
    """The same of an async driver."""

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]: ...


def enqueue(
    connection: JoinedConnection, env: Environment, home: HomeDatabase, batch: Sequence[NewTask]
) -> Script[Sequence[Enqueued]]:
    """Insert the batch; if it is refused the rest of the caller's transaction is unaffected."""
    if not batch:
        return []
    autocommit = connection.is_autocommit
    yield from _check(connection, env, home)
    if env.layout.is_stale:
        env.layout.mark_fresh()
        env.layout.update((yield from fetch("layout", env.clock)))
    script = rule_player.enqueue(env, batch)
    if all(map(is_plain, batch)):
        # A single statement that cannot be refused needs no savepoint. That is quicker, and lets a
        # transaction enqueue one by one any number of times: more than 64 savepoints slow the whole server
        # down.
        return (yield from script)
    return (yield from _atomic(script, autocommit=autocommit))


def settle(
    connection: JoinedConnection, env: Environment, home: HomeDatabase, batch: Sequence[Settlement]
) -> Script[Settled]:
    """Apply the verdicts whose leases hold; on an error the rest of the transaction is unaffected."""
    if connection.is_autocommit:
        raise InvalidOption(
            "cannot settle a task on this connection: no transaction is open; begin one first"
        )
    if not batch:
        return Settled()
    yield from _check(connection, env, home)
    if len(batch) == 1 and settlement.is_quick(batch):
        if reports := last_reports(batch):
            yield settlement.put_progress(reports)
        grant = settlement.read_grant((yield settlement.settle_and_claim(env, batch, None, ())))
        if grant.done is None:
            return Settled(receipts=(Receipt.APPLIED,))
    settled, _ = yield from _atomic(settlement.settle(env, batch, None, ()), autocommit=False)
    return settled


def _check(connection: JoinedConnection, env: Environment, home: HomeDatabase) -> Script[None]:
    """Raise Elsewhere unless it is the store's database, SchemaMismatch unless the schema there is current.

    Once for each connection.
    """
    known = _checked.get(connection.identity)
    if known is not None and (home.known, env.schema) in known:
        return
    (row,) = yield WHICH_DATABASE
    home.confirm(row)
    if not row[-1]:
        raise SchemaMismatch(
            f"{_DATABASE} has no schema {env.schema} with windlass's tables; call app.setup() once or run "
            f"`windlass migrate`"
        )
    require_current(schema.steps(), (yield from value("schema_number")) or 0, _DATABASE)
    with suppress(TypeError):  # A connection without weak references is checked every time.
        _checked.setdefault(connection.identity, set()).add((home.known, env.schema))


def _atomic(script: Script[T], *, autocommit: bool) -> Script[T]:
    """Run all of a script or nothing: in a savepoint, or in a transaction if none is open."""
    begin, end, undo = _IN_TRANSACTION if autocommit else _IN_SAVEPOINT
    yield begin
    try:
        result = yield from script
    except GeneratorExit:
        raise
    except BaseException:
        for step in undo:
            with suppress(Exception):  # The first error is the one to raise.
                yield step
        raise
    yield end
    return result


_RELEASE = Query("release", (), "RELEASE SAVEPOINT windlass_join")
_IN_SAVEPOINT = (
    Query("savepoint", (), "SAVEPOINT windlass_join"),
    _RELEASE,
    (Query("undo", (), "ROLLBACK TO SAVEPOINT windlass_join"), _RELEASE),
)
_IN_TRANSACTION = (
    Query("begin", (), "BEGIN ISOLATION LEVEL READ COMMITTED"),
    Query("commit", (), "COMMIT"),
    (Query("rollback", (), "ROLLBACK"),),
)
