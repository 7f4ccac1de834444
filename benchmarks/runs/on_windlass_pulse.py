"""A client that enqueues without a pause, through every fault; and when each task was acknowledged."""

import asyncio
import time
from typing import Any

from benchmarks.runs import probe
from benchmarks.runs.app import app, note

GAP_SECONDS = 0.005


def pulse(url: str) -> dict[str, Any]:
    """Enqueue one task after another until told to stop; count those that were acknowledged and are lost."""
    app.use_store(url)
    ids: set[str] = set()
    acknowledged: list[float] = []

    async def send() -> None:
        while True:
            handle = await note.aenqueue(n=len(acknowledged))
            acknowledged.append(time.monotonic())
            ids.add(handle.id)
            await asyncio.sleep(GAP_SECONDS)

    async def work() -> int:
        await app.open()
        sending = asyncio.create_task(send())
        probe.ready()
        await probe.told("stop")
        sending.cancel()
        await asyncio.wait([sending])
        lost = ids - {task.id async for task in app.operator.every()}
        await app.close()
        return len(lost)

    return {"lost": probe.looped(work()), "acknowledged": acknowledged}


if __name__ == "__main__":
    probe.main({"pulse": pulse})
