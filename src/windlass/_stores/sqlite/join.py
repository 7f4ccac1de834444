"""Enqueue and settle inside the caller's transaction, atomically with its other writes."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..._model.task import Enqueued, NewTask
from ..._model.verdict import Settled, Settlement
from ..._store.clock import Clock
from ...errors import InvalidOption, NotSupported, SchemaMismatch
from ..migrations import needed
from . import schema
from .connection.errors import translate
from .leases import settle
from .own_transaction import OwnConnection, over
from .rule_player import enqueue
from .transaction import Transaction

A = TypeVar("A")


class SQLiteJoin:
    """Enqueues and settles on a caller's `sqlite3.Connection`, in the caller's thread, without committing.

    With a transaction open, the tasks become part of it. Without one it behaves as any other INSERT: in
    autocommit mode the tasks are stored at once, otherwise a transaction is begun for the caller to commit. A
    refusal undoes the enqueue alone and leaves the transaction as it was.

    Begin with BEGIN IMMEDIATE: SQLite fails a transaction at once that has read before it writes while
    another writer is busy. And set PRAGMA synchronous=EXTRA on the connection: with SQLite's default a power
    failure may lose the last commit and the tasks in it. Workers notice such tasks within about a quarter of
    a second.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Clock, path: Path) -> None:
        self._connection = connection
        self._clock = clock
        self._path = path

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Insert the batch within the caller's transaction."""
        return self._do(lambda tx: enqueue(tx, batch))

    def settle(self, batch: Sequence[Settlement]) -> Settled:
        """Apply the verdicts whose leases hold, within a transaction that must be open."""
        if not self._connection.in_transaction:
            raise InvalidOption("no transaction is open on this connection: BEGIN IMMEDIATE first")
        return self._do(lambda tx: settle(tx, batch))

    def _do(self, work: Callable[[Transaction], A]) -> A:
        text_factory = self._connection.text_factory
        self._connection.text_factory = str
        try:
            return self._do_within(work)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        finally:
            self._connection.text_factory = text_factory

    def _do_within(self, work: Callable[[Transaction], A]) -> A:
        connection = self._connection
        autocommits = self._begin()
        connection.execute("SAVEPOINT windlass_join")
        try:
            transaction = Transaction(connection, self._clock.now())
            result = work(transaction)
            connection.execute("RELEASE windlass_join")
        except BaseException:
            if connection.in_transaction:  # Unless SQLite has rolled it back, e.g. on a full disk.
                connection.execute("ROLLBACK TO windlass_join")
                connection.execute("RELEASE windlass_join")
                if autocommits:
                    connection.execute("ROLLBACK")
            raise
        if autocommits:
            connection.execute("COMMIT")
        if isinstance(connection, OwnConnection):
            connection.wakes.merge(transaction.wakes)
        return result

    def _begin(self) -> bool:
        """Begin a transaction if none is open; return whether it is to be committed here."""
        connection = self._connection
        if connection.in_transaction:
            return False
        # Since Python 3.12 there is `autocommit`; -1 means the older rule of isolation_level.
        newer_rule = getattr(connection, "autocommit", -1)
        autocommit = connection.isolation_level is None if newer_rule == -1 else bool(newer_rule)
        connection.execute("BEGIN IMMEDIATE" if autocommit else f"BEGIN {connection.isolation_level or ''}")
        return autocommit


def join(given: object, clock: Clock, path: Path) -> SQLiteJoin:
    """Check that the connection is open on this file and that the schema fits."""
    connection = _driver_connection(given)
    if not isinstance(connection, sqlite3.Connection):
        raise NotSupported(
            f"SQLiteStore cannot enqueue within a {type(given).__module__}.{type(given).__name__}; "
            f"pass the sqlite3.Connection of your transaction, a Connection or Session of SQLAlchemy, or "
            f"Django's connection"
        )
    if isinstance(connection, OwnConnection) and not connection.in_transaction:
        raise over(path)
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        file = _file_of(cursor)
        if not file or not path.exists() or not path.samefile(file):
            raise InvalidOption(
                f"the connection is to {file or 'an in-memory database'}, the store is {path}: "
                f"a transaction spans one file only, so connect to {path}"
            )
        found = schema.number(connection)
    except sqlite3.Error as error:
        raise translate(error, path) from error
    lowest, newest = needed(schema.steps()), len(schema.steps())
    if not lowest <= found <= newest:
        raise SchemaMismatch(
            f"{path} has schema {found}, this version of windlass needs {min(max(found, lowest), newest)}: "
            f"call app.setup() once, or run `windlass migrate`"
        )
    return SQLiteJoin(connection, clock, path)


def _driver_connection(given: Any) -> object:
    """Return the sqlite3.Connection behind a connection of SQLAlchemy or Django, else what was given."""
    # By name, because these packages need not be installed.
    for kind in type(given).__mro__:
        match kind.__module__.partition(".")[0], kind.__name__:
            case "sqlalchemy", "Session" | "scoped_session":
                return _driver_connection(given.connection())
            case "sqlalchemy", "Connection":
                driver: object = given.connection.driver_connection
                return driver
            case "django", "BaseDatabaseWrapper" | "ConnectionProxy":
                given.ensure_connection()
                return _driver_connection(given.connection)
            case _:
                continue
    return given


def _file_of(cursor: sqlite3.Cursor) -> str:
    """Return the path of the connection's main database; empty if it is in memory."""
    for _, name, file in cursor.execute("PRAGMA database_list").fetchall():
        if name in ("main", b"main"):
            return file if isinstance(file, str) else bytes(file).decode()
    return ""
