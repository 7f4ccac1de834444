"""`windlass worker --workers` with a program whose handlers write down each run."""

import os
from collections import Counter
from pathlib import Path

from tests.system.fleet import ROOT, wait_until
from tests.system.supervised import Supervised
from windlass import App, Filter, Page, State

PROGRAM = """
import asyncio, os
from windlass import App, Context

app = App("sqlite:///windlass.db")


def write(line):
    with open("runs", "a") as file:
        file.write(f"{line} {os.getpid()}\\n")


@app.task(name="nap")
async def nap(seconds: float, *, ctx: Context) -> None:
    write(f"start {ctx.task_id}")
    await asyncio.sleep(seconds)
    write(f"end {ctx.task_id}")


@app.task(name="apart", process=True)
def apart(*, ctx: Context) -> None:
    write(f"start {ctx.task_id}")
    write(f"end {ctx.task_id}")
"""
SLOTS = 8
QUICK = ("--lease", "6", "--heartbeat", "1", "--slots", str(SLOTS), "--log-format", "text")


async def _nap(seconds: float) -> None:
    """For its parameters: PROGRAM has the handler."""


def _apart() -> None:
    """For its parameters: PROGRAM has the handler."""


class WorkerProcesses(Supervised):
    """A supervisor and its workers, on a store in the folder."""

    def __init__(self, folder: Path, number: int, *options: str) -> None:
        self.folder = folder
        (folder / "program.py").write_text(PROGRAM)
        self.app = App(f"sqlite:///{folder}/windlass.db")
        self.app.setup()
        self._nap = self.app.task(name="nap")(_nap)
        self._apart = self.app.task(name="apart", process=True)(_apart)
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        command = ("worker", "program:app", "--workers", str(number), *QUICK, *options)
        super().__init__(folder / "worker.log", folder, {"PYTHONPATH": path}, *command)

    def enqueue(self, number: int, seconds: float) -> None:
        self.app.sync_client.enqueue_many([self._nap.step(seconds=seconds)] * number)

    def enqueue_apart(self, number: int) -> None:
        self.app.sync_client.enqueue_many([self._apart.step()] * number)

    def states(self) -> Counter[str]:
        found = self.app.sync_operator.find(Filter(), Page(limit=1000)).items
        return Counter(task.state.value for task in found)

    def until_completed(self, number: int) -> None:
        done = Filter(states=(State.COMPLETED,))
        found = self.app.sync_operator.find
        wait_until(
            lambda: len(found(done, Page(limit=1000)).items) == number, 60, what="all completed", every=0.2
        )

    def runs(self) -> Counter[str]:
        """How often each task was started, by its id."""
        file = self.folder / "runs"
        lines = file.read_text().splitlines() if file.exists() else []
        return Counter(line.split()[1] for line in lines if line.startswith("start"))

    def busy(self, pid: int) -> int:
        """How many tasks run in this worker."""
        lines = [line.split() for line in (self.folder / "runs").read_text().splitlines()]
        return sum(1 if line[0] == "start" else -1 for line in lines if line[2:] == [str(pid)])
