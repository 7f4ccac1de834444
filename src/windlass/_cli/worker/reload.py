"""`windlass worker --reload`: watch source files, and replace the workers when one has changed."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ..._timers import wait_for_event

WATCH_SECONDS = 0.5

_SUFFIXES = (".py", ".toml")
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def source_folders(target: str | None) -> tuple[Path, ...]:
    """Return the folders to watch: the current one, and that of the app's package if it is elsewhere."""
    here = Path.cwd()
    package = sys.modules.get((target or "").partition(":")[0].partition(".")[0])
    file = getattr(package, "__file__", None)
    if file is None or (folder := Path(file).resolve().parent).is_relative_to(here):
        return (here,)
    return (here, folder)


async def watch_sources(folders: Iterable[Path], changed: Callable[[Sequence[str]], None]) -> None:
    """Call `changed` with the source files that were written, added or removed, until cancelled.

    Files are looked at every half second: that needs no dependency and works on every file system.
    """
    folders, never = tuple(folders), asyncio.Event()
    seen = await asyncio.to_thread(_stamps, folders)
    while True:
        await wait_for_event(never, WATCH_SECONDS)
        found = await asyncio.to_thread(_stamps, folders)
        if found != seen:
            changed(sorted({path for path, _ in found.items() ^ seen.items()}))
            seen = found


def _stamps(folders: Iterable[Path]) -> dict[str, int]:
    return {path: stamp for folder in folders for path, stamp in _files(str(folder))}


def _files(folder: str) -> Iterator[tuple[str, int]]:
    """Yield source files with the instant of their last change; hidden folders and packages are skipped."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name in _SKIPPED:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not Path(entry.path, "pyvenv.cfg").exists():
                        yield from _files(entry.path)
                elif entry.name.endswith(_SUFFIXES):
                    yield entry.path, entry.stat().st_mtime_ns
    except OSError:  # it was removed meanwhile, or may not be read
        return
