"""`windlass worker --workers N`: supervise worker processes. See docs/decisions/0029-worker-processes.md."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from msgspec import json

from ..._policy.input.quote import counted
from ..._supervisor.supervisor import Kind, Supervisor
from ..._timers import wait_for_event
from ..._worker.process import warn_of_left
from ..._worker.settings import WorkerSettings
from ...errors import InvalidOption
from ..command import Cli
from ..exit_codes import ExitCode
from ..run.health import Health, serve_health
from ..run.owner import standing_by
from .process import COMMAND, WorkerProcessSettings

if TYPE_CHECKING:
    from ..._observe.metrics import Metrics
    from ..._worker.worker import Worker

logger = logging.getLogger("windlass.worker")

MAX_WORKERS = 256
_CUT_SECONDS = 8.0  # after a second signal: handlers clean up for 2 s, then tasks are released


def supervise_workers(cli: Cli, like: "Worker", number: int, *, reload: bool) -> None:
    """Run `number` worker processes like this one until stopped or, with `drain`, until all have drained."""
    if number > MAX_WORKERS:
        raise InvalidOption(f"workers must be at most {MAX_WORKERS}, not {number}")
    settings = cli.settings
    with ExitStack() as stack:
        directory, metrics = None, None
        if settings.metrics is not None:
            directory = stack.enter_context(TemporaryDirectory(prefix="windlass-"))
            metrics = _shared_metrics(cli, Path(directory))
        supervisor = Supervisor(number, _kind(cli, like.settings, directory))
        has_left = False
        health = Health(lambda: supervisor.ready == number)
        serve_health(settings, health, metrics)

        def started() -> None:
            health.started()
            logger.info("%s started", counted(number, "worker"))

        def stop() -> None:
            health.stopping()
            like.stop()  # it does not run, and tells that they did not drain
            supervisor.stop()

        async def work() -> None:
            nonlocal has_left
            watching = asyncio.ensure_future(_reload(settings.app, supervisor)) if reload else None
            async with standing_by(cli):
                with supervisor.handle_signals(stop):
                    await health.report_while(supervisor.run(started), settings.health_file)
                has_left = await warn_of_left(like, cli.app.store)
            if watching is not None:
                watching.cancel()
            logger.info("%s stopped", counted(number, "worker"))

        cli.run(work, create=True, long=True)
        if has_left:
            raise click.exceptions.Exit(ExitCode.NEGATIVE)


async def _reload(target: str | None, supervisor: Supervisor) -> None:
    """Replace the workers whenever source files change."""
    here = Path.cwd()

    def changed(files: Sequence[str]) -> None:
        name = os.path.relpath(files[0], here)
        logger.info("%s changed", name if len(files) == 1 else f"{name} and {len(files) - 1} more")
        supervisor.renew_all()

    await watch_sources(source_folders(target), changed)


def _kind(cli: Cli, worker: WorkerSettings, metrics: str | None) -> Kind:
    # Durations as seconds: JSON has none, and settings take both.
    flags = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in cli.flags.items()
    }

    def settings(number: int, seat: int) -> bytes:
        chosen = WorkerProcessSettings(
            number=number,
            seat=seat,
            path=tuple(sys.path),
            flags=flags,
            file=None if cli.file is None else str(cli.file),
            drain=worker.drain,
            metrics=metrics,
        )
        return json.encode(chosen) + b"\n"

    def ended(seat: int) -> None:
        if metrics is not None:
            from ..._observe.process_metrics import forget_gauges

            forget_gauges(Path(metrics), seat)

    return Kind(
        noun="worker",
        command=COMMAND,
        settings=settings,
        logger=logger,
        stall_seconds=worker.lease.total_seconds(),  # after which its tasks belong to others
        cut_seconds=_CUT_SECONDS,
        until_done=worker.drain,
        ended=ended,
    )


def _shared_metrics(cli: Cli, directory: Path) -> "Metrics":
    """Return the sums of the metrics of all workers."""
    from ..._observe.process_metrics import share_metrics

    share_metrics(directory, seat=0)
    return cli.app.metrics()


# -- watch source files --------------------------------------------------------------------------------


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
