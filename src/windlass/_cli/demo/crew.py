"""The crew: worker processes started, killed, told to stop, and never left behind."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from ...errors import StoreError
from .worker import READY

_GENTLY = 6.0  # seconds that a worker gets to stop before it is killed


class Crew:
    """The worker processes of one demo, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, Process] = {}
        self._hired = 0
        self.killed: list[str] = []
        self.retired: list[str] = []

    @property
    def names(self) -> list[str]:
        """Who is at work, oldest first."""
        return list(self._processes)

    async def hire(self) -> str:
        """Start one more; answers with its name once it claims tasks."""
        self._hired += 1
        name = f"worker-{self._hired}"
        with (self._folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "windlass._cli.demo.worker",
                name,
                cwd=self._folder,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then tells its workers
            )
        self._processes[name] = process
        assert process.stdout is not None
        if (await process.stdout.readline()).decode().strip() != READY:
            raise StoreError(f"{name} did not start: {self._last_words(name)}")
        return name

    def _last_words(self, name: str) -> str:
        lines = (self._folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def kill(self, name: str) -> int:
        """End it as an out-of-memory killer would; answers with its process id."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        self.killed.append(name)
        await process.wait()
        return process.pid

    async def retire(self, name: str) -> None:
        """Tell it to stop, and wait until it has."""
        await _ended(self._processes.pop(name))
        self.retired.append(name)

    async def dismiss(self) -> None:
        """Everybody goes home: gently, and in the end by force."""
        processes, self._processes = list(self._processes.values()), {}
        await asyncio.gather(*(_ended(process) for process in processes))


async def _ended(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _GENTLY)
    except TimeoutError:
        process.kill()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
