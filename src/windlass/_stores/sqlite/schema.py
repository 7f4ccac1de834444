"""The schema number of a file, and the migrations between numbers."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from ..._store.protocol import Migration
from ..migrations import Move, Step, load_steps, next_move, overview, require_current
from .connection.errors import cannot_open, translated_errors
from .connection.file_lock import FileLock
from .connection.open import connect

A = TypeVar("A")

# Not PRAGMA user_version: the file may belong to an application that uses it.
_MAKE = """
CREATE TABLE IF NOT EXISTS windlass_schema (
    only INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    number INTEGER NOT NULL
)
"""
_WRITE = "INSERT OR REPLACE INTO windlass_schema (only, number) VALUES (1, :number)"
_EXISTS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'windlass_schema'"
_READ = "SELECT number FROM windlass_schema"


@cache
def steps() -> tuple[Step, ...]:
    """Return the migration steps of this version of windlass."""
    assert __package__
    return load_steps(__package__)


def number(connection: sqlite3.Connection) -> int:
    """Return the number of the schema; 0 if there is none."""
    cursor = connection.cursor()
    cursor.row_factory = None  # A caller's own connection may have one.
    if cursor.execute(_EXISTS).fetchone() is None:
        return 0
    row = cursor.execute(_READ).fetchone()
    return 0 if row is None else int(row[0])


class File(Struct, frozen=True):
    """A connection and the file lock that goes with it."""

    path: Path
    connection: sqlite3.Connection
    lock: FileLock


def on_file(path: Path, work: Callable[[File], A]) -> A:
    """Run `work` on a temporary connection, whatever schema the file has."""
    connection = connect(path)
    file = File(path, connection, FileLock())
    file.lock.open_beside(path)
    try:
        with translated_errors(path):
            return work(file)
    finally:
        connection.close()
        file.lock.close()


def ensure(file: File, *, migrate_old: bool = False) -> None:
    """Create the schema if there is none; raise SchemaMismatch if it is another version's.

    An old schema is not migrated on open, unless the caller is the only one that uses the file: other
    processes may still run the old code, so an operator decides.
    """
    if number(file.connection) == 0:
        # All steps in one transaction: after a power failure half of them would pass for an old schema.
        with _transaction(file):
            if number(file.connection) == 0:
                while _advance(file.connection, None) is not None:
                    continue
    elif migrate_old and number(file.connection) < len(steps()):
        migrate(file, None)
    require_current(steps(), number(file.connection), str(file.path))


def migrate(file: File, target: int | None) -> list[Migration]:
    """Migrate up or down to the target, each step in a transaction; return the steps taken here."""
    taken: list[Migration] = []
    while True:
        with _transaction(file):
            move = _advance(file.connection, target)
        if move is None:
            return taken
        taken.append(move.migration)


def listed(path: Path) -> tuple[Migration, ...]:
    """Return every step known to this code or the file. Does not create a missing file."""
    if not path.exists():
        if not path.parent.is_dir():
            raise cannot_open(path)
        return overview(steps(), 0)
    return on_file(path, lambda file: overview(steps(), number(file.connection)))


def _advance(connection: sqlite3.Connection, target: int | None) -> Move | None:
    """Take one step towards the target, within a transaction."""
    move = next_move(steps(), number(connection), target)
    if move is not None:
        for part in _parts(move.script):
            connection.execute(part)
        connection.execute(_MAKE)
        connection.execute(_WRITE, {"number": move.arrives_at})
    return move


@contextmanager
def _transaction(file: File) -> Iterator[None]:
    connection = file.connection
    with file.lock:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _parts(script: str) -> Iterator[str]:
    """Yield the statements of a script. Python's executescript would commit before the first."""
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""
