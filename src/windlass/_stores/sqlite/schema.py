"""The schema's number in the file, and the moves from one to the next."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from ..._store.protocol import Migration
from ..migrations import Move, Step, load_steps, next_move, overview, require_current
from .connection.errors import cannot_open, told
from .connection.file_lock import Turnstile
from .connection.open import connect

A = TypeVar("A")

# Not PRAGMA user_version: the file may be the application's own, and that number its.
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
    """The steps that this code knows."""
    assert __package__
    return load_steps(__package__)


def number(connection: sqlite3.Connection) -> int:
    """Where the schema stands; 0 where there is none."""
    cursor = connection.cursor()
    cursor.row_factory = None  # A caller's own connection may have one.
    if cursor.execute(_EXISTS).fetchone() is None:
        return 0
    row = cursor.execute(_READ).fetchone()
    return 0 if row is None else int(row[0])


class File(Struct, frozen=True):
    """A connection, and the turnstile before it."""

    path: Path
    connection: sqlite3.Connection
    turn: Turnstile


def on_file(path: Path, work: Callable[[File], A]) -> A:
    """Do something with a connection for the occasion, whatever schema the file has."""
    connection = connect(path)
    file = File(path, connection, Turnstile())
    file.turn.open_beside(path)
    try:
        with told(path):
            return work(file)
    finally:
        connection.close()
        file.turn.close()


def ensure(file: File) -> None:
    """Make the schema where there is none; raise SchemaMismatch where there is another one.

    An old one is not brought forward by whoever happens to open it first: other processes may still run
    the old code, and going forward is a person's decision.
    """
    if number(file.connection) == 0:
        _make(file)
    require_current(steps(), number(file.connection), str(file.path))


def _make(file: File) -> None:
    """All steps in one transaction: a file that was half made when the power went would be an old one."""
    with _transaction(file):
        if number(file.connection) == 0:
            while _advance(file.connection, None) is not None:
                continue


def migrate(file: File, target: int | None) -> list[Migration]:
    """Go up or down to the target, each step in a transaction; answers with the steps taken here."""
    taken: list[Migration] = []
    while (move := _take_step(file, target)) is not None:
        taken.append(move.migration)
    return taken


def listed(path: Path) -> tuple[Migration, ...]:
    """Every step that this code or the file knows. Asking makes no file where there is none."""
    if not path.exists():
        if not path.parent.is_dir():
            raise cannot_open(path)
        return overview(steps(), 0)
    return on_file(path, lambda file: overview(steps(), number(file.connection)))


def _take_step(file: File, target: int | None) -> Move | None:
    with _transaction(file):
        return _advance(file.connection, target)


def _advance(connection: sqlite3.Connection, target: int | None) -> Move | None:
    """One step towards the target, within a transaction."""
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
    with file.turn:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _parts(script: str) -> Iterator[str]:
    """The statements of a script. Python's executescript would commit before the first of them."""
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""
