"""SQLite's errors in our words, translated once, at the edge: what happened, to which file, what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....errors import SchemaMismatch, StoreError, StoreUnavailable

_FULL = (
    "the disk that holds {path} is full: nothing was lost, this request was not done, and it goes on when "
    "space frees"
)
_BUSY = (
    "{path} stayed locked: another program holds a transaction on it open; look for one that does not "
    "commit, or for an unfinished SELECT, and try again"
)
_MOVED = "{path} was moved or deleted while in use: put it back, or restart everything that uses it"
_READ_ONLY = (
    "{path} cannot be written ({error}): let this user write the file and its directory, and see that the "
    "file system is not mounted read-only"
)
_DAMAGED = (
    "{path} is damaged ({error}): stop everything that uses it and restore a backup, or try SQLite's .recover"
)
_FAILED = "the disk that holds {path} failed ({error}): see the system's log, and try again"


_REFUSED = (
    "the system refused what {path} needs ({error}): look for a network file system without working locks, "
    "for too many open files, or in the system's log, and try again"
)
_NO_MEMORY = "there was not enough memory to use {path}: look for what uses it up, and try again"


def in_our_words(error: BaseException, path: Path) -> BaseException:
    """What whoever asked is to hear. Mistakes in the code stay what they are, lest they pass for faults."""
    match error:
        case sqlite3.Error():
            return translate(error, path)
        case OSError():
            return StoreUnavailable(_REFUSED.format(path=path, error=error))
        case MemoryError():
            return StoreUnavailable(_NO_MEMORY.format(path=path))
        case _:
            return error


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Raise what goes wrong within in our words."""
    try:
        yield
    except Exception as error:
        ours = in_our_words(error, path)
        if ours is error:
            raise
        raise ours from error


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    """The error to raise in place of SQLite's."""
    name = getattr(error, "sqlite_errorname", None) or ""
    for prefix, (kind, message) in _FAULTS.items():
        if name.startswith(prefix):
            return kind(message.format(path=path, folder=path.parent, error=error))
    if "no such table: windlass_" in str(error) or "no such column" in str(error):
        return SchemaMismatch(f"{path} lacks a part of windlass's schema ({error}): run `windlass migrate`")
    return StoreError(f"SQLite failed on {path}: {error} ({name or type(error).__name__})")


def cannot_open(path: Path) -> StoreError:
    """Why a file cannot be opened, as far as can be seen from outside."""
    if not path.parent.is_dir():
        return StoreError(
            f"the directory {path.parent} does not exist: create it, or correct the store's URL"
        )
    if path.is_dir():
        return StoreError(f"{path} is a directory: name a file in it in the store's URL")
    return StoreError(
        f"{path} cannot be opened: let this user read and write it, and create files in {path.parent}"
    )


# The longer name first, where one begins like another.
_FAULTS: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_FULL": (StoreUnavailable, _FULL),
    "SQLITE_BUSY": (StoreUnavailable, _BUSY),
    "SQLITE_LOCKED": (StoreUnavailable, "{path} is locked by this program itself ({error}); try again"),
    "SQLITE_READONLY_DBMOVED": (StoreError, _MOVED),
    "SQLITE_READONLY": (StoreError, _READ_ONLY),
    "SQLITE_NOTADB": (
        StoreError,
        "{path} is not a windlass database, nor any of SQLite's: name another file",
    ),
    "SQLITE_CORRUPT": (StoreError, _DAMAGED),
    "SQLITE_IOERR": (StoreUnavailable, _FAILED),
    "SQLITE_NOMEM": (StoreUnavailable, _NO_MEMORY),
    "SQLITE_INTERRUPT": (StoreUnavailable, "reading {path} took too long and was given up; try again"),
}
