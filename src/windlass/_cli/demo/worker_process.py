"""A worker process of the demo: `python -m windlass._cli.demo.worker_process NAME`, in the demo's folder.

It ends on SIGTERM, and when the demo ends for any reason: its standard input is a pipe from the demo, which
is closed then.
"""

import asyncio
import logging
import sys
import threading
from datetime import timedelta

from ... import Worker, WorkerSettings
from .proof import ENDS, LOST
from .shop import SETTLEMENTS, app, append

READY = "ready"
LEASE = timedelta(seconds=3)
SLOTS = 8


def main() -> None:
    """Run the worker until it is stopped."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    events = logging.getLogger("windlass.events")
    events.propagate = False
    events.addHandler(Receipts())
    asyncio.run(_work(sys.argv[1]))


class Receipts(logging.Handler):
    """Logs every settlement that the store confirmed to this worker, independently of the store's records."""

    def emit(self, record: logging.LogRecord) -> None:
        """Append settlements that end a task, and those that the store rejected."""
        event, task_id = getattr(record, "event", ""), getattr(record, "task_id", "")
        if event in ENDS or event == LOST:
            append(SETTLEMENTS, f"{task_id} {event}")


async def _work(name: str) -> None:
    settings = WorkerSettings(
        name=name,
        slots=SLOTS,
        processes=1,
        lease=LEASE,
        heartbeat=LEASE / 4,
        grace=timedelta(seconds=0.5),
        poll=timedelta(seconds=1),
    )
    worker = app.worker(settings)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_stop_with_demo, args=(loop, worker), daemon=True).start()
    await worker.run(signals=True, ready=lambda: print(READY, flush=True))
    await app.close()


def _stop_with_demo(loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    sys.stdin.buffer.read()
    loop.call_soon_threadsafe(lambda: worker.stop(at_once=True))


if __name__ == "__main__":
    main()
