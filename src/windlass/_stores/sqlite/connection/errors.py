"""Translate errors of SQLite and the operating system into ours: what failed, on which file, what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....errors import SchemaMismatch, StoreError, StoreUnavailable

_FULL = (
    "the disk that holds {path} is full; this request was not carried out and nothing stored was lost: free "
    "space and retry"
)
_BUSY = (
    "{path} stayed locked: another program keeps a transaction open; look for a missing commit or an "
    "unfinished SELECT, and retry"
)
_MOVED = "{path} was moved or deleted while in use: put it back, or restart everything that uses it"
_READ_ONLY = (
    "{path} is not writable ({error}): give this user write permission for the file and its directory, and "
    "check that the file system is not mounted read-only"
)
_DAMAGED = (
    "{path} is damaged ({error}): stop everything that uses it and restore a backup, or try SQLite's .recover"
)
_FAILED = "the disk that holds {path} failed ({error}): check the system log, and retry"
_REFUSED = (
    "a system call on {path} failed ({error}): check for a network file system without working locks, for "
    "too many open files, and the system log, then retry"
)
_OF_DISK = (
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_CORRUPT",
    "SQLITE_NOTADB",
    "SQLITE_READONLY",
    "SQLITE_CANTOPEN",
)
_NO_MEMORY = "out of memory while using {path}: free some, and retry"


def translated(error: BaseException, path: Path) -> BaseException:
    """Return the error to raise in place of this one. Programming errors are returned unchanged."""
    match error:
        case sqlite3.Error():
            ours = translate(error, path)
        case OSError():
            ours = StoreUnavailable(_REFUSED.format(path=path, error=error))
        case MemoryError():
            ours = StoreUnavailable(_NO_MEMORY.format(path=path))
        case _:
            return error
    ours.__cause__ = error
    return ours


def is_of_disk(error: BaseException) -> bool:
    """Whether a translated error shows that the disk is full or broken, or the file damaged."""
    match error.__cause__:
        case sqlite3.Error() as cause:
            return (getattr(cause, "sqlite_errorname", None) or "").startswith(_OF_DISK)
        case OSError() as cause:
            return not isinstance(cause, TimeoutError)
        case _:
            return False


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Translate whatever the block raises."""
    try:
        yield
    except Exception as error:
        ours = translated(error, path)
        if ours is error:
            raise
        raise ours from error


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error to raise in place of SQLite's."""
    name = getattr(error, "sqlite_errorname", None) or ""
    for prefix, (kind, message) in _FAULTS.items():
        if name.startswith(prefix):
            return kind(message.format(path=path, folder=path.parent, error=error))
    if "no such table: windlass_" in str(error) or "no such column" in str(error):
        return SchemaMismatch(f"{path} lacks part of the windlass schema ({error}): run `windlass migrate`")
    return StoreError(f"SQLite failed on {path}: {error} ({name or type(error).__name__})")


def moved(path: Path) -> StoreError:
    """Return the error for a file that is gone although this process uses it."""
    return StoreError(_MOVED.format(path=path))


def cannot_open(path: Path) -> StoreError:
    """Return the error for a file that cannot be opened, with the likely cause."""
    if not path.parent.is_dir():
        return StoreError(
            f"the directory {path.parent} does not exist: create it, or correct the store's URL"
        )
    if path.is_dir():
        return StoreError(f"{path} is a directory: name a file in it in the store's URL")
    return StoreError(
        f"{path} cannot be opened: allow this user to read and write it and to create files in {path.parent}"
    )


# Matched by prefix, in this order: the longer name goes first.
_FAULTS: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_FULL": (StoreUnavailable, _FULL),
    "SQLITE_BUSY": (StoreUnavailable, _BUSY),
    "SQLITE_LOCKED": (StoreUnavailable, "{path} is locked by this same process ({error}); retry"),
    "SQLITE_READONLY_DBMOVED": (StoreError, _MOVED),
    "SQLITE_READONLY": (StoreError, _READ_ONLY),
    "SQLITE_NOTADB": (StoreError, "{path} is not a SQLite database: name another file"),
    "SQLITE_CORRUPT": (StoreError, _DAMAGED),
    "SQLITE_IOERR": (StoreUnavailable, _FAILED),
    "SQLITE_NOMEM": (StoreUnavailable, _NO_MEMORY),
    "SQLITE_INTERRUPT": (StoreUnavailable, "reading {path} took too long and was aborted; retry"),
}
