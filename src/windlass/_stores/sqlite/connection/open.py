"""Open connections with a rollback journal that is synced before a commit returns (decision 0002)."""

import logging
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ....errors import StoreError
from ...rules.sizes import steps_in
from ..read.filters import mentions
from .errors import cannot_open, moved, translate

C = TypeVar("C", bound=sqlite3.Connection)

logger = logging.getLogger("windlass.store")

BUSY_SECONDS = 10.0
"""How long a statement waits for a lock held by another program."""

_CACHE_KIBIBYTES = 16_000


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, creating it if it is missing. Any thread may use the connection, one at a time."""
    return connect_as(sqlite3.Connection, path)


def connect_as(factory: type[C], path: Path) -> C:
    """Open the file with a connection of this class."""
    _create_private(path)
    try:
        connection = sqlite3.connect(
            path,
            timeout=BUSY_SECONDS,
            isolation_level=None,  # BEGIN is issued explicitly.
            check_same_thread=False,
            cached_statements=256,
            factory=factory,
        )
    except sqlite3.OperationalError as error:
        raise cannot_open(path) from error
    try:
        set_journal(connection, path)
        connection.execute("PRAGMA synchronous=EXTRA")  # Syncs the directory after the commit, too.
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIBIBYTES}")
        connection.execute("PRAGMA temp_store=MEMORY")
        add_functions(connection)
    except sqlite3.Error as error:
        sqlite3.Connection.close(connection)  # a subclass may refuse
        is_unopened = (getattr(error, "sqlite_errorname", None) or "").startswith("SQLITE_CANTOPEN")
        raise (cannot_open(path) if is_unopened else translate(error, path)) from error
    except StoreError:
        sqlite3.Connection.close(connection)
        raise
    return connection


def check_in_place(path: Path) -> None:
    """Raise StoreError if the file of an open store is gone: a further connection would make an empty one."""
    if not path.exists():
        raise moved(path)


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the functions that our statements use."""
    connection.create_function("windlass_mentions", 3, mentions, deterministic=True)
    connection.create_function("windlass_steps", 1, steps_in, deterministic=True)


def _create_private(path: Path) -> None:
    """Create a missing file for this user only: payloads may be confidential. SQLite would heed the umask."""
    with suppress(OSError):  # It is there, or SQLite reports why it cannot be.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        logger.info("created %s", path, extra={"created_file": str(path)})


def set_journal(connection: sqlite3.Connection, path: Path) -> None:
    """Select the rollback journal; convert a WAL file if this SQLite can lose commits in WAL mode."""
    if is_wal(connection) and has_wal_fix(sqlite3.sqlite_version_info):
        return  # Another program chose WAL; with the fix it is as durable.
    try:
        connection.execute("PRAGMA journal_mode=TRUNCATE")
    except sqlite3.OperationalError as error:
        if not is_wal(connection):
            raise
        raise StoreError(
            f"{path} is in WAL mode, in which SQLite {sqlite3.sqlite_version} can lose commits "
            f"(sqlite.org/wal.html#walresetbug): close every program that has it open, so that windlass can "
            f"convert it, or upgrade all of them to SQLite 3.51.3 or newer"
        ) from error


def is_wal(connection: sqlite3.Connection) -> bool:
    """Whether another program has switched the file to WAL mode. Reliable only within a transaction."""
    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return mode == "wal"


def has_wal_fix(version: tuple[int, ...]) -> bool:
    """Whether this SQLite version has the fix of the WAL-reset bug: 3.51.3 and the two backports."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
