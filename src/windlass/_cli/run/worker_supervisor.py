"""`windlass worker --workers N`: supervise worker processes. See docs/decisions/0029-worker-processes.md."""

import logging
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import json

from ..._policy.input.quote import counted
from ..._supervisor.supervisor import Kind, Supervisor
from ..._worker.settings import WorkerSettings
from ...errors import InvalidOption
from ..command import Cli
from .worker import serve_metrics
from .worker_process import COMMAND, WorkerProcessSettings

logger = logging.getLogger("windlass.worker")

MAX_WORKERS = 256
_CUT_SECONDS = 8.0  # after a second signal: handlers clean up for 2 s, then tasks are released


def supervise_workers(cli: Cli, worker: WorkerSettings, number: int) -> None:
    """Run `number` worker processes until stopped or, with `drain`, until all have drained."""
    if not 1 <= number <= MAX_WORKERS:
        raise InvalidOption(f"workers must be 1 to {MAX_WORKERS}, not {number}")
    with ExitStack() as stack:
        metrics = None
        if cli.settings.metrics is not None:
            metrics = stack.enter_context(TemporaryDirectory(prefix="windlass-"))
            _serve_metrics(cli, Path(metrics), *cli.settings.metrics)
        supervisor = Supervisor(number, _kind(cli, worker, metrics))

        async def work() -> None:
            workers = counted(number, "worker")
            with supervisor.handle_signals():
                await supervisor.run(lambda: logger.info("%s started", workers))
            logger.info("%s stopped", workers)

        cli.run(work, create=True, long=True)


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

    return Kind(
        noun="worker",
        command=COMMAND,
        settings=settings,
        logger=logger,
        stall_seconds=worker.lease.total_seconds(),  # after which its tasks belong to others
        cut_seconds=_CUT_SECONDS,
        until_done=worker.drain,
    )


def _serve_metrics(cli: Cli, directory: Path, host: str, port: int) -> None:
    """Serve the sums of the metrics of all workers, in this process."""
    from ..._observe.process_metrics import share_metrics

    share_metrics(directory, seat=0)
    serve_metrics(cli.app.metrics(), host, port)
