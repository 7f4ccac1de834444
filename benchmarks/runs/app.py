"""The app of the benchmark: no-op tasks in the event loop, a thread and a child process."""

import asyncio
import time

from windlass import App

app = App("memory://")
seen: list[int] = []
latencies: asyncio.Queue[float] = asyncio.Queue()


@app.task
async def note(n: int) -> None:
    """Run in the event loop."""
    seen.append(n)


@app.task
async def keep(n: int, text: str) -> None:
    """Take space: `text` is of any length."""


@app.task
def note_in_thread(n: int) -> None:
    """Run in a thread."""
    seen.append(n)


@app.task(process=True)
def note_in_process(n: int) -> int:
    """Run in a child process."""
    return n


@app.task
async def stamp(sent: float) -> None:
    """Return the time since the enqueue; the monotonic clock is shared by all processes of a machine."""
    latencies.put_nowait(time.monotonic() - sent)
