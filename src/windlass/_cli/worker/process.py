"""One of the processes of `windlass worker --workers`: `python -m windlass._cli.worker.process`."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ..._model.brief import Brief
from ..._supervisor.control import Control
from ..._worker.process import run_process, stopped_by_signals
from ..command import Cli
from ..exit_codes import guarded
from ..run.logs import ProcessFilter, set_up_logging
from .recycle import recycling
from .worker import new_worker

if TYPE_CHECKING:
    from ..._observe.metrics import Meter
    from ..._worker.worker import Worker

logger = logging.getLogger("windlass.worker")

COMMAND = (sys.executable, "-m", "windlass._cli.worker.process")

_ORPHAN_SECONDS = 10.0  # beyond the grace: to settle, to close, or to be cut


class WorkerProcessSettings(Brief, Struct, frozen=True, kw_only=True):
    """What a worker process is told by its supervisor."""

    number: int
    seat: int  # no other living process has it
    path: tuple[str, ...]  # of imports
    flags: dict[str, Any]
    file: str | None
    drain: bool
    metrics: str | None  # directory


def main() -> None:
    """Run tasks until the supervisor says stop, or dies."""
    control = Control(int(sys.argv.pop()))
    settings = msgspec.json.decode(control.receive_settings(), type=WorkerProcessSettings)
    sys.path[:] = settings.path
    if settings.metrics is not None:
        from ..._observe.process_metrics import share_metrics

        share_metrics(Path(settings.metrics), settings.seat, settings.number)
    sys.exit(guarded(lambda: _work(control, settings), []))


def _work(control: Control, settings: WorkerProcessSettings) -> None:
    cli = Cli()
    cli.flags, cli.file = settings.flags, None if settings.file is None else Path(settings.file)
    set_up_logging(cli, ProcessFilter("worker", settings.number))
    worker = new_worker(cli, drain=settings.drain, number=settings.number)
    meter = None if settings.metrics is None else cli.app.metrics().meter
    stopping = asyncio.Event()

    def stop() -> None:
        # Once: a service manager signals the whole group, and the supervisor orders it, too.
        if not stopping.is_set():
            stopping.set()
            worker.stop()

    def recycle(why: str) -> None:
        logger.info("asking to be replaced: %s", why)
        control.request_replacement()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        longest = worker.settings.grace.total_seconds() + _ORPHAN_SECONDS
        metering = asyncio.ensure_future(_keep_slots(meter, worker))
        with stopped_by_signals(loop, stop):
            control.start(
                loop,
                stop,
                lambda: worker.stop(at_once=True),
                loop_may_block=True,  # by a handler; the heartbeats go on
                orphan_seconds=longest,
            )
            with recycling(cli.settings, worker, recycle):
                await worker.run(ready=control.report_ready)
        metering.cancel()

    run_process(run, cli.app.close)


async def _keep_slots(meter: "Meter | None", worker: "Worker") -> None:
    """Export the slots of the worker until cancelled, if metrics are wanted."""
    if meter is not None:
        await meter.keep_slots(worker.settings.slots, lambda: len(worker.held))


if __name__ == "__main__":
    main()
