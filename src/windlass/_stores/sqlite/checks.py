"""The health report of the file: what a person should know, and what to do about it."""

import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from ..._store.protocol import Finding, Severity
from ..migrations import standing
from . import schema
from .connection.open import has_wal_fix, is_wal
from .rows import instant, moment
from .schema import File
from .statements import statement

MAX_CHECK_SECONDS = 2.0
"""How long the file's structure is looked through: while it is, nobody can commit."""

MIN_FREE_BYTES = 256 * 1024 * 1024
MAX_CLOCK_LEAD = timedelta(minutes=1)
_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3"}
)


def check(path: Path, now: datetime) -> tuple[Finding, ...]:
    """Every finding, the good ones included. Asking makes no file where there is none."""
    if not path.exists() and path.parent.is_dir():
        message = f"there is no {path} yet: it is made when a program first opens it, or by windlass migrate"
        return (Finding(severity=Severity.ERROR, subject="file", message=message),)
    return schema.on_file(path, lambda file: tuple(_findings(file, now)))


def _findings(file: File, now: datetime) -> Iterator[Finding]:
    schema_finding = standing(schema.steps(), schema.number(file.connection), str(file.path))
    yield schema_finding
    yield from _journal(file)
    yield from _structure(file)
    yield from _disk(file.path)
    yield from _permissions(file.path)
    if schema_finding.severity is not Severity.ERROR:
        yield from _clock(file, now)
        yield from _tasks(file, now)


def _journal(file: File) -> Iterator[Finding]:
    version, fixed = sqlite3.sqlite_version, has_wal_fix(sqlite3.sqlite_version_info)
    (synchronous,) = file.connection.execute("PRAGMA synchronous").fetchone()
    if is_wal(file.connection):
        yield _warning(
            "journal",
            f"{file.path} is in WAL mode because another program keeps it so; SQLite before 3.51.3 can lose "
            f"commits there, so see that every program that opens it has a newer one, or close them all once",
        )
    else:
        yield _fine("journal", f"rollback journal, synchronous={synchronous} (3 is EXTRA)")
    affected = (
        "is free of the WAL-reset bug" if fixed else "has the WAL-reset bug, which a rollback journal avoids"
    )
    yield _fine("sqlite", f"SQLite {version} {affected}")


def _structure(file: File) -> Iterator[Finding]:
    deadline = time.monotonic() + MAX_CHECK_SECONDS
    file.connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 100_000)
    try:
        (verdict,) = file.connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
            raise
        yield _warning(
            "structure",
            f"{file.path} is too large to be looked through in {MAX_CHECK_SECONDS:.0f} s; "
            f"run PRAGMA quick_check on a backup of it",
        )
        return
    finally:
        file.connection.set_progress_handler(None, 0)
    if verdict == "ok":
        yield _fine("structure", "sound")
    else:
        message = f"{file.path} is damaged ({verdict}): stop everything that uses it and restore a backup"
        yield Finding(severity=Severity.ERROR, subject="structure", message=message)


def _disk(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    told = f"{free // (1024 * 1024):,} MiB are free on the disk of {path}"
    short = free < MIN_FREE_BYTES
    yield _warning("disk", f"only {told}: make room, or prune sooner") if short else _fine("disk", told)
    kind = _file_system(path)
    if kind in _NETWORK:
        yield _warning(
            "disk",
            f"{path} lies on a network file system ({kind}), whose locks and syncs cannot be relied upon: "
            f"move it to a local disk",
        )


def _file_system(path: Path) -> str:
    """The kind of file system that holds a path, where the system tells; otherwise nothing."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    real = str(path.resolve())
    points = [line.split()[1:3] for line in mounts]
    holding = [(point, kind) for point, kind in points if real.startswith(point.rstrip("/") + "/")]
    return max(holding, key=lambda mount: len(mount[0]), default=("", ""))[1]


def _permissions(path: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IWOTH:
        yield _warning(
            "permissions", f"everybody may write {path} (mode {mode:o}): take that away with chmod o-w"
        )
    elif not os.access(path.parent, os.W_OK):
        yield _warning(
            "permissions", f"this user cannot create files in {path.parent}, which SQLite needs to write"
        )
    else:
        yield _fine("permissions", f"mode {mode:o}")


def _clock(file: File, now: datetime) -> Iterator[Finding]:
    latest = _number(file, "latest_beat", {})
    if latest and moment(latest) > now + MAX_CLOCK_LEAD:
        yield _warning(
            "clock",
            f"a worker has reported at {moment(latest):%Y-%m-%d %H:%M:%S} UTC and here it is {now:%H:%M:%S}: "
            f"the clock has been set back; leases and schedules wait until it has caught up",
        )
    else:
        yield _fine("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")


_LOST = {
    "expired_sessions": "worker sessions have expired; the keeper rescues their tasks, so see that one runs",
    "running_without_session": "tasks run for nobody, which should never be: report it with the file",
    "waiting_for_nothing": "tasks wait for nothing, which should never be: cancel and replay them",
}


def _tasks(file: File, now: datetime) -> Iterator[Finding]:
    troubled = False
    for name, advice in _LOST.items():
        found = _number(file, name, {"now": instant(now)})
        if found:
            troubled = True
            yield _warning("tasks", f"{found} {advice}")
    if not troubled:
        yield _fine("tasks", "nothing lies about")


def _number(file: File, name: str, parameters: dict[str, object]) -> int:
    row = file.connection.execute(statement(name), parameters).fetchone()
    return int(row[0] or 0)


def _fine(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.OK, subject=subject, message=message)


def _warning(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.WARNING, subject=subject, message=message)
