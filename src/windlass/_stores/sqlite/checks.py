"""Health checks of a SQLite file: what an operator should know, and what to do about it."""

import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from ..._store.protocol import Finding, Severity
from ..findings import error, fine, records, warning
from ..migrations import standing
from ..records import MAX_CHECKED, unreadable
from . import schema
from .connection.open import has_wal_fix, is_wal
from .rows import instant, moment, statement
from .schema import File

MAX_CHECK_SECONDS = 2.0
"""How long the structure check may take: commits wait for it."""

_MIB = 1024 * 1024
MIN_FREE_BYTES = 256 * _MIB
MAX_CLOCK_LEAD = timedelta(minutes=1)
_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3"}
)


def check(path: Path, now: datetime) -> tuple[Finding, ...]:
    """Return every finding, good ones included. Does not create a missing file."""
    if not path.exists() and path.parent.is_dir():
        message = (
            f"there is no {path} yet: the first program to open it creates it; or run `windlass migrate`"
        )
        return (error("file", message),)
    return schema.on_file(path, lambda file: tuple(_findings(file, now)))


def _findings(file: File, now: datetime) -> Iterator[Finding]:
    schema_finding = standing(schema.steps(), schema.number(file.connection), str(file.path))
    yield schema_finding
    yield from _journal(file)
    yield from _structure(file)
    yield fine("size", f"{file.path} has {file.path.stat().st_size / _MIB:,.1f} MiB")
    yield from _disk(file.path)
    yield from _permissions(file.path)
    if schema_finding.severity is not Severity.ERROR:
        yield from _clock(file, now)
        yield from _tasks(file, now)
        yield records(unreadable(file.connection.execute(statement("bodies"), {"limit": MAX_CHECKED})))


def _journal(file: File) -> Iterator[Finding]:
    version, fixed = sqlite3.sqlite_version, has_wal_fix(sqlite3.sqlite_version_info)
    (synchronous,) = file.connection.execute("PRAGMA synchronous").fetchone()
    if is_wal(file.connection):
        yield warning(
            "journal",
            f"another program keeps {file.path} in WAL mode, in which SQLite before 3.51.3 can lose commits: "
            f"upgrade SQLite in every program that opens the file, or close all of them once",
        )
    else:
        yield fine("journal", f"rollback journal, synchronous={synchronous} (3 is EXTRA)")
    affected = (
        "does not have the WAL-reset bug" if fixed else "has the WAL-reset bug; a rollback journal avoids it"
    )
    yield fine("sqlite", f"SQLite {version} {affected}")


def _structure(file: File) -> Iterator[Finding]:
    deadline = time.monotonic() + MAX_CHECK_SECONDS
    file.connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 100_000)
    try:
        (verdict,) = file.connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as interrupted:
        if getattr(interrupted, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
            raise
        yield warning(
            "structure",
            f"{file.path} is too large to check in {MAX_CHECK_SECONDS:.0f} s: "
            f"run PRAGMA quick_check on a backup of it",
        )
        return
    finally:
        file.connection.set_progress_handler(None, 0)
    if verdict == "ok":
        yield fine("structure", "sound")
    else:
        message = f"{file.path} is damaged ({verdict}): stop everything that uses it and restore a backup"
        yield error("structure", message)


def _disk(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    space = f"{free // _MIB:,} MiB free on the disk that holds {path}"
    short = free < MIN_FREE_BYTES
    yield (
        warning("disk", f"only {space}: free space, or shorten retention") if short else fine("disk", space)
    )
    kind = _file_system(path)
    if kind in _NETWORK:
        yield warning(
            "disk",
            f"{path} is on a network file system ({kind}), whose locks and syncs are unreliable: "
            f"move it to a local disk",
        )


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds a path; '' if unknown."""
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
        yield warning("permissions", f"{path} is writable by every user (mode {mode:o}): chmod o-w")
    elif mode & (stat.S_IRGRP | stat.S_IROTH):
        others = "every user" if mode & stat.S_IROTH else "its group"
        yield warning(
            "permissions",
            f"{path}, with the payloads of all tasks, is readable by {others} (mode {mode:o}): chmod 600, "
            f"unless that is intended",
        )
    elif not os.access(path.parent, os.W_OK):
        yield warning(
            "permissions", f"this user cannot create files in {path.parent}, which SQLite needs to write"
        )
    else:
        yield fine("permissions", f"mode {mode:o}")


def _clock(file: File, now: datetime) -> Iterator[Finding]:
    latest = _number(file, "latest_beat", {})
    if latest and moment(latest) > now + MAX_CLOCK_LEAD:
        yield warning(
            "clock",
            f"the last heartbeat is from {moment(latest):%Y-%m-%d %H:%M:%S} UTC, but it is {now:%H:%M:%S}: "
            f"the clock was set back; leases and schedules wait until it catches up",
        )
    else:
        yield fine("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")


_STUCK = {
    "expired_sessions": ("expired worker sessions", "check that a keeper is running to rescue their tasks"),
    "running_without_session": ("tasks running without a session", "this is a bug; report it with the file"),
    "waiting_for_nothing": ("tasks waiting without a predecessor", "this is a bug; cancel and replay them"),
}


def _tasks(file: File, now: datetime) -> Iterator[Finding]:
    found = {name: _number(file, name, {"now": instant(now)}) for name in _STUCK}
    for name, (what, advice) in _STUCK.items():
        if found[name]:
            yield warning("tasks", f"{what}: {found[name]}; {advice}")
    if not any(found.values()):
        yield fine("tasks", "no expired sessions or orphaned tasks")


def _number(file: File, name: str, parameters: dict[str, object]) -> int:
    row = file.connection.execute(statement(name), parameters).fetchone()
    return int(row[0] or 0)
