"""A fair write lock among processes. SQLite's own busy waiting is random and can starve a writer."""

import os
import stat
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class FileLock:
    """Two flocks on side files: the holder of `turn` is next in line, the holder of `lock` writes.

    The kernel queues waiters in order and releases the locks of a process that dies. The database file itself
    is never opened here: closing any descriptor of it would drop SQLite's locks. The side files are never
    deleted. Where they cannot be created, or flock is not available, the lock does nothing.
    """

    def __init__(self) -> None:
        self._files: tuple[int, int] | None = None

    def open_beside(self, database: Path) -> None:
        """Open the side files of a database, creating them where they are missing."""
        if sys.platform == "win32":  # No flock there: SQLite's own busy waiting has to do.
            return
        turn = _side_file(database, "-turn")
        lock = _side_file(database, "-lock")
        if turn is not None and lock is not None:
            self._files = (turn, lock)

    def __enter__(self) -> None:
        """Wait for the lock, without a deadline: the caller that awaits the result has one."""
        if self._files is not None:
            turn, lock = self._files
            fcntl.flock(turn, fcntl.LOCK_EX)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            finally:
                fcntl.flock(turn, fcntl.LOCK_UN)

    def __exit__(self, *_: object) -> None:
        """Release the lock to the next in line."""
        if self._files is not None:
            fcntl.flock(self._files[1], fcntl.LOCK_UN)

    def has_waiters(self) -> bool:
        """Whether another process waits for the lock."""
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
        """Close the side files. In a forked child this does not release the parent's locks."""
        files, self._files = self._files, None
        for file in files or ():
            os.close(file)


def _side_file(database: Path, suffix: str) -> int | None:
    """Open a file beside the database with the same permissions; None if it cannot be locked.

    Never follows a link: in a directory that others can write, it could point to any file of this user.
    """
    path = database.with_name(database.name + suffix)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        return None
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            copy_permissions(database, file)
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
        return True  # Another process holds it, so locking works.
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def copy_permissions(database: Path, file: int) -> None:
    """Give a side file or directory the permissions of the database and, as root, its owner, as SQLite does.

    Works on a descriptor, so that the file cannot be swapped in between.
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
