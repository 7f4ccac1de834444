"""A connection under the discipline of decision 0002: a rollback journal, synced before commits return."""

import ctypes
import sqlite3
from pathlib import Path
from typing import TypeVar

from ....errors import StoreError
from ..read.filters import mentions
from .errors import cannot_open, translate

C = TypeVar("C", bound=sqlite3.Connection)

BUSY_SECONDS = 10.0
"""How long a statement waits for a lock that another program holds."""

_CACHE_KIBIBYTES = 16_000


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, creating it if it is not there. For any thread, one at a time."""
    return connect_as(sqlite3.Connection, path)


def connect_as(factory: type[C], path: Path) -> C:
    """Open the file on a connection of this class."""
    try:
        connection = sqlite3.connect(
            path,
            timeout=BUSY_SECONDS,
            isolation_level=None,  # We say BEGIN ourselves.
            check_same_thread=False,
            cached_statements=256,
            factory=factory,
        )
    except sqlite3.OperationalError as error:
        raise cannot_open(path) from error
    try:
        set_journal(connection, path)
        connection.execute("PRAGMA synchronous=EXTRA")  # Also syncs the directory after the journal's end.
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIBIBYTES}")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.create_function("windlass_mentions", 3, mentions, deterministic=True)
    except sqlite3.Error as error:
        connection.close()
        raise _unopened(error, path) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _unopened(error: sqlite3.Error, path: Path) -> StoreError:
    name = getattr(error, "sqlite_errorname", None) or ""
    return cannot_open(path) if name.startswith("SQLITE_CANTOPEN") else translate(error, path)


def set_journal(connection: sqlite3.Connection, path: Path) -> None:
    """Choose the rollback journal. Where WAL can lose commits (decision 0002), such a file is converted."""
    if is_wal(connection) and has_wal_fix(sqlite3.sqlite_version_info):
        return  # Somebody wants it so; a library with the fix can live with that, and syncs as well.
    try:
        connection.execute("PRAGMA journal_mode=TRUNCATE")
    except sqlite3.OperationalError as error:
        if not is_wal(connection):
            raise
        raise StoreError(
            f"{path} is in WAL mode, and SQLite {sqlite3.sqlite_version} can lose commits there "
            f"(sqlite.org/wal.html#walresetbug): close the programs that have it open, then windlass "
            f"converts it, or upgrade SQLite everywhere to 3.51.3 or newer"
        ) from error


def begin(connection: sqlite3.Connection, path: Path) -> None:
    """Begin to write, in the journal mode that this SQLite is safe in."""
    connection.execute("BEGIN IMMEDIATE")
    if is_wal(connection) and not has_wal_fix(sqlite3.sqlite_version_info):
        connection.execute("ROLLBACK")
        set_journal(connection, path)
        connection.execute("BEGIN IMMEDIATE")


def never_free(connection: sqlite3.Connection) -> None:
    """Keep a connection from being closed, also at the interpreter's end.

    For a forked child: closing what it has of its parent's connection would roll the parent's transaction
    back under its feet.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def is_wal(connection: sqlite3.Connection) -> bool:
    """Whether somebody has switched the file to WAL mode. Known only once a transaction has begun."""
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return mode == "wal"


def has_wal_fix(version: tuple[int, ...]) -> bool:
    """Whether this SQLite cannot lose commits to the WAL-reset bug: 3.51.3 and the two backports."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
