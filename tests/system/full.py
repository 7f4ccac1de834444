"""A disk that is full for as long as a file says so: without root, and for every process that watches."""

from pathlib import Path

from tests.power.vfs import Beneath

SIGN = "disk-is-full"


class FullWhileSaid:
    """Files cannot grow while the sign stands; what is written in place still is, as on a real disk."""

    def __init__(self, folder: Path) -> None:
        self._sign = folder / SIGN

    def allows(self, path: str, end: int) -> bool:
        return not self._sign.exists() or end <= Path(path).stat().st_size

    def opened(self, path: str) -> None: ...
    def wrote(self, path: str, offset: int, data: bytes) -> None: ...
    def truncated(self, path: str, size: int) -> None: ...
    def synced(self, path: str) -> None: ...
    def deleted(self, path: str) -> None: ...
    def directory_synced(self, path: str) -> None: ...


def watch_for_full(folder: Path) -> None:
    """From now on this process's SQLite meets a full disk whenever the sign stands in the folder."""
    Beneath(FullWhileSaid(folder)).install()
