"""The worker processes of the demo: started, killed, stopped, and none left behind.

Each runs `python -m demo.workers NAME` in the folder of the store. It ends on SIGTERM, and when the
demo ends for any reason: its standard input is a pipe from the demo, which is closed then.
"""

import asyncio
import logging
import os
import sys
import threading
from asyncio.subprocess import PIPE, Process
from datetime import timedelta
from pathlib import Path

from windlass import WorkerSettings
from windlass.errors import StoreError

from .proof import ENDS
from .shop import SETTLEMENTS, app, append

_READY = "ready"
_LEASE = timedelta(seconds=3)
_STOP_TIMEOUT = 6.0  # seconds for a worker to stop before it is killed


class WorkerPool:
    """The worker processes of one demo, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, Process] = {}
        self._started = 0
        self.killed: list[str] = []
        self.stopped: list[str] = []

    @property
    def names(self) -> list[str]:
        """The running workers, oldest first."""
        return list(self._processes)

    async def start(self) -> str:
        """Start a worker and return its name once it claims tasks."""
        self._started += 1
        name = f"worker-{self._started}"
        path = self._folder / f"{name}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "demo.workers", name),
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the demo, which stops its workers
            )
        self._processes[name] = process
        assert process.stdout is not None
        if (await process.stdout.readline()).decode().strip() != _READY:
            lines = path.read_text(errors="replace").strip().splitlines()
            raise StoreError(f"{name} did not start: {lines[-1] if lines else 'its log is empty'}")
        return name

    async def kill(self, name: str) -> int:
        """Kill a worker with SIGKILL and return its process id."""
        process = self._processes.pop(name)
        process.kill()
        self.killed.append(name)
        await process.wait()
        return process.pid

    async def stop(self, name: str) -> None:
        """Stop a worker with SIGTERM and wait until it has ended."""
        await _stop(self._processes.pop(name))
        self.stopped.append(name)

    async def stop_all(self) -> None:
        """Stop every worker; kill those that do not end in time."""
        processes, self._processes = list(self._processes.values()), {}
        await asyncio.gather(*(_stop(process) for process in processes))


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


class Receipts(logging.Handler):
    """Logs every end of a task that the store confirmed to this worker, outside the store."""

    def emit(self, record: logging.LogRecord) -> None:
        """Append settlements that end a task."""
        if (event := getattr(record, "event", "")) in ENDS:
            append(SETTLEMENTS, f"{getattr(record, 'task_id', '')} {event}")


async def _work(name: str) -> None:
    """Run a worker until it is stopped, or the demo has ended."""
    settings = WorkerSettings(
        name=name,
        slots=8,
        processes=1,
        lease=_LEASE,
        heartbeat=_LEASE / 4,
        grace=timedelta(seconds=0.5),
        poll=timedelta(seconds=1),
    )
    worker = app.worker(settings)
    loop = asyncio.get_running_loop()

    def stop_with_demo() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(lambda: worker.stop(at_once=True))

    threading.Thread(target=stop_with_demo, daemon=True).start()
    await worker.run(signals=True, ready=lambda: print(_READY, flush=True))
    await app.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    events = logging.getLogger("windlass.events")
    events.propagate = False
    events.addHandler(Receipts())
    asyncio.run(_work(sys.argv[1]))
