"""Kill a worker with SIGKILL at a step of a ready-made handler, and let another finish the task."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.handlers.http_sink import Answer, Received
from tests.handlers.runs import LOOPBACK
from tests.loops.workers import working
from windlass import App, Backoff, Task
from windlass.handlers.selection import include_configured

ROOT = Path(__file__).parents[2]
STEPS = ("before", "during", "after", "lost")
WORKER_FILE = "worker.pid"
"""Where the worker to be killed writes its process id."""


class Moment:
    """When the first attempt fails.

    Before, during or after the effect its worker dies: by itself, or killed by whoever serves its request.
    "lost": it lives, but the reply to its first request does not arrive.
    """

    def __init__(self, step: str) -> None:
        self.step = step
        self.process: subprocess.Popen[bytes] | None = None
        self._is_lost = False

    def reached(self) -> None:
        """Kill the worker if it is to die now. A server calls this in the midst of a request."""
        if self.step == "during":
            self.kill()

    def kill(self) -> None:
        """Kill the worker, unless it is dead already."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def answering(self, answer: Answer) -> Callable[[Received], Answer]:
        """What a server answers: this, as far as the moment lets it."""

        def route(_: Received) -> Answer:
            cut, self._is_lost = self.step == "lost" and not self._is_lost, True
            return replace(answer, before=self.reached, cut=cut)

        return route


async def finished_after_crash(
    folder: Path, tables: dict[str, Any], payload: dict[str, Any], moment: Moment
) -> Task:
    """Enqueue a task; let the first worker die at this moment, and another one finish the task."""
    app = App(f"sqlite:///{folder}/windlass.db", allow_addresses=LOOPBACK)
    include_configured(app, tables)
    (task_type,) = app.types.values()
    task_type.backoff = Backoff(base=0, jitter=0)
    await app.open()
    try:
        handle = await app.client.send(task_type.name, payload)
        if moment.step != "lost":
            await _crash(folder, tables, moment)
        async with working(app, slots=1, keeper=True):
            await handle.wait(timeout=30)
        return await app.operator.task(handle.id)
    finally:
        moment.kill()
        await app.close()


async def _crash(folder: Path, tables: dict[str, Any], moment: Moment) -> None:
    program = [sys.executable, "-m", "tests.handlers.crash_program"]
    command = [*program, str(folder), json.dumps(tables), moment.step]
    moment.process = await asyncio.to_thread(subprocess.Popen, command, cwd=ROOT)
    assert await asyncio.to_thread(moment.process.wait, 60) == -signal.SIGKILL
