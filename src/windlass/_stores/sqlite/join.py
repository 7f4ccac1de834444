"""Enqueueing and settling inside a transaction with other writes: all of it stands, or nothing. (P9, D15)"""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ..._clock import Clock
from ..._model.task import Enqueued, NewTask
from ..._model.verdict import Receipt, Settlement
from ...errors import InvalidOption, NotSupported, SchemaMismatch
from ..migrations import needed
from . import schema
from .connection.errors import translate
from .own_transaction import OwnConnection, over
from .rule_player import enqueue
from .settle import settle
from .transaction import Transaction

A = TypeVar("A")


class SQLiteJoin:
    """A caller's `sqlite3.Connection`, seen as a place to enqueue. Runs in his thread and commits nothing.

    With a transaction open, the tasks become part of it. With none, it is as with any other INSERT: unless
    the connection is in autocommit mode one is begun, and the caller commits it; in autocommit mode the tasks
    stand at once. A refusal undoes the enqueue alone and leaves the transaction as it was.

    Begin with BEGIN IMMEDIATE: a transaction that has read before it writes is refused at once by SQLite
    when another writer is busy. And set PRAGMA synchronous=EXTRA on the connection: SQLite's default may lose
    the last commit at a power failure, and the tasks in it. Workers notice such tasks within about a quarter
    of a second.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Clock, path: Path) -> None:
        self._connection = connection
        self._clock = clock
        self._path = path

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Insert the batch within the caller's transaction."""
        return self._do(lambda tx: enqueue(tx, batch))

    def settle(self, batch: Sequence[Settlement]) -> Sequence[Receipt]:
        """Apply the verdicts whose leases hold, within a transaction that must be open."""
        if not self._connection.in_transaction:
            raise InvalidOption("settling inside a transaction needs one: BEGIN IMMEDIATE first")
        return self._do(lambda tx: settle(tx, batch).receipts)

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
        at_once = self._begin()
        connection.execute("SAVEPOINT windlass_join")
        try:
            transaction = Transaction(connection, self._clock.now())
            answer = work(transaction)
            connection.execute("RELEASE windlass_join")
        except BaseException:
            if connection.in_transaction:  # A full disk, say, has undone the caller's whole transaction.
                connection.execute("ROLLBACK TO windlass_join")
                connection.execute("RELEASE windlass_join")
                if at_once:
                    connection.execute("ROLLBACK")
            raise
        if at_once:
            connection.execute("COMMIT")
        if isinstance(connection, OwnConnection):
            connection.wakes.merge(transaction.wakes)
        return answer

    def _begin(self) -> bool:
        """Begin a transaction if there is none; says whether it is ours to commit."""
        connection = self._connection
        if connection.in_transaction:
            return False
        # Python 3.12 has `autocommit`, and -1 there stands for the older rule, that of isolation_level.
        newer_rule = getattr(connection, "autocommit", -1)
        autocommit = connection.isolation_level is None if newer_rule == -1 else bool(newer_rule)
        connection.execute("BEGIN IMMEDIATE" if autocommit else f"BEGIN {connection.isolation_level or ''}")
        return autocommit


def join(connection: object, clock: Clock, path: Path) -> SQLiteJoin:
    """See that the connection is on this very file and that the schema is there."""
    if not isinstance(connection, sqlite3.Connection):
        raise NotSupported(
            f"SQLiteStore cannot enqueue within a {type(connection).__module__}.{type(connection).__name__}; "
            f"pass the sqlite3.Connection of your transaction"
        )
    if isinstance(connection, OwnConnection) and not connection.in_transaction:
        raise over(path)
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        file = _file_of(cursor)
        if not file or not path.exists() or not path.samefile(file):
            raise InvalidOption(
                f"the connection is on {file or 'a database in memory'}, the store on {path}: "
                f"a transaction can only span one file, so connect to {path}"
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


def _file_of(cursor: sqlite3.Cursor) -> str:
    """The path of the connection's main database; empty for one in memory."""
    for _, name, file in cursor.execute("PRAGMA database_list").fetchall():
        if name in ("main", b"main"):
            return file if isinstance(file, str) else bytes(file).decode()
    return ""
