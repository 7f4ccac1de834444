"""Kill a worker with SIGKILL at a step of a ready-made handler, and let another finish the task."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.handlers.runs import LOOPBACK
from tests.loops.workers import working
from windlass import App, Backoff, Task
from windlass.handlers.selection import include_configured

ROOT = Path(__file__).parents[2]
STEPS = ("before", "during", "after")


class Victim:
    """The worker to be killed: by itself, or by whoever serves its request."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Kill it, unless it is dead already. A server calls this in the midst of a request."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


async def finished_after_crash(
    folder: Path, tables: dict[str, Any], payload: dict[str, Any], step: str, victim: Victim
) -> Task:
    """Enqueue a task; let the first worker die at this step and a second one finish it."""
    app = App(f"sqlite:///{folder}/windlass.db", allow_addresses=LOOPBACK)
    include_configured(app, tables)
    (task_type,) = app.types.values()
    task_type.backoff = Backoff(base=0, jitter=0)
    await app.open()
    handle = await app.client.send(task_type.name, payload)
    command = [sys.executable, "-m", "tests.handlers.crash_program", str(folder), json.dumps(tables), step]
    victim.process = await asyncio.to_thread(subprocess.Popen, command, cwd=ROOT)
    try:
        status = await asyncio.to_thread(victim.process.wait, 30)
        assert status == -signal.SIGKILL
        async with working(app, slots=1, keeper=True):
            await handle.wait(timeout=20)
        return await app.operator.task(handle.id)
    finally:
        victim.kill()
        await app.close()
