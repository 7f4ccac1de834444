"""Fair turns at writing among processes. SQLite's own waiting is by lot, and starves whoever is unlucky."""

import os
import stat
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class Turnstile:
    """Two locks on side files: whoever holds `turn` is next, whoever holds `lock` writes.

    The kernel queues waiters in order, and a process that dies lets go. The database file itself is never
    opened here: closing any descriptor of it would drop SQLite's locks. The side files are never deleted.
    Where they cannot be made, or flock is not to be had, everybody just goes through.
    """

    def __init__(self) -> None:
        self._files: tuple[int, int] | None = None

    def open_beside(self, database: Path) -> None:
        """Open the side files of a database, making them if need be."""
        if sys.platform == "win32":  # It has no flock: SQLite's own waiting must do.
            return
        turn = _side_file(database, "-turn")
        lock = _side_file(database, "-lock")
        if turn is not None and lock is not None:
            self._files = (turn, lock)

    def __enter__(self) -> None:
        """Wait for the turn, for as long as it takes: whoever waits for the result has a deadline."""
        if self._files is not None:
            turn, lock = self._files
            fcntl.flock(turn, fcntl.LOCK_EX)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            finally:
                fcntl.flock(turn, fcntl.LOCK_UN)

    def __exit__(self, *_: object) -> None:
        """Let the next one through."""
        if self._files is not None:
            fcntl.flock(self._files[1], fcntl.LOCK_UN)

    def is_wanted(self) -> bool:
        """Whether another process waits behind us."""
        if self._files is None:
            return False
        turn, _ = self._files
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(turn, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Close the side files. In a forked child this leaves its parent's locks alone."""
        files, self._files = self._files, None
        for file in files or ():
            os.close(file)


def _side_file(database: Path, suffix: str) -> int | None:
    """Open a file beside the database that whoever may write the one may lock the other.

    Never through a link: in a folder that others may write too, it could lead to any file of ours.
    """
    path = database.with_name(database.name + suffix)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        return None
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            like_database(database, file)
            if _can_lock(file):
                return file
    except OSError:
        pass
    os.close(file)
    return None


def _can_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True  # Somebody has it, so it works.
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def like_database(database: Path, file: int) -> None:
    """Give what lies beside the database its permissions, and as root its owner, as SQLite itself does.

    By descriptor, so that nobody can put something else in its place meanwhile.
    """
    original, copy = database.stat(), os.fstat(file)
    if copy.st_uid != os.geteuid():
        return
    mode = stat.S_IMODE(original.st_mode) & 0o666
    if stat.S_ISDIR(copy.st_mode):
        mode |= (mode & 0o444) >> 2
    if stat.S_IMODE(copy.st_mode) != mode:
        os.fchmod(file, mode)
    if os.geteuid() == 0 and (copy.st_uid, copy.st_gid) != (original.st_uid, original.st_gid):
        os.fchown(file, original.st_uid, original.st_gid)
