"""The worker processes of the demo: started, killed, stopped, and none left behind."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from ...errors import StoreError
from .worker_process import READY

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
        with (self._folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "windlass._cli.demo.worker_process",
                name,
                cwd=self._folder,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the demo, which stops its workers
            )
        self._processes[name] = process
        assert process.stdout is not None
        if (await process.stdout.readline()).decode().strip() != READY:
            raise StoreError(f"{name} did not start: {self._last_line(name)}")
        return name

    def _last_line(self, name: str) -> str:
        lines = (self._folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"

    async def kill(self, name: str) -> int:
        """Kill a worker with SIGKILL and return its process id."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
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
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT)
    except TimeoutError:
        process.kill()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
