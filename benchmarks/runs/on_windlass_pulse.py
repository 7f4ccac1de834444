"""A client that enqueues without a pause, through every fault; and when nothing was acknowledged."""

import asyncio
import time
from typing import Any

from benchmarks.runs import probe
from benchmarks.runs.app import app, note

PAUSE_SECONDS = 0.005
LONG_SECONDS = 0.02


def pulse(url: str) -> dict[str, Any]:
    """Enqueue one task after another until told to stop; count those that were acknowledged and are lost."""
    app.use_store(url)
    ids: set[str] = set()
    gaps: list[tuple[float, float]] = []  # longer than a few calls take

    async def send() -> None:
        last = time.monotonic()
        while True:
            ids.add((await note.aenqueue(n=len(ids))).id)
            before, last = last, time.monotonic()
            if last - before > LONG_SECONDS:
                gaps.append((before, last))
            await asyncio.sleep(PAUSE_SECONDS)

    async def work() -> int:
        await app.open()
        sending = asyncio.create_task(send())
        probe.ready()
        await probe.told("stop")
        if sending.done():
            sending.result()
        sending.cancel()
        await asyncio.wait([sending])
        lost = ids - {task.id async for task in app.operator.every()}
        await app.close()
        return len(lost)

    return {"lost": probe.looped(work()), "acknowledged": len(ids), "gaps": gaps}


if __name__ == "__main__":
    probe.main({"pulse": pulse})
