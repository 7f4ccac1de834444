"""The verbs of sides on asyncio that have no batches: SAQ and taskiq."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarks.runs import probe

AT_ONCE = 1_000

Enqueue: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class Verbs:
    """The verbs over what a side adds: a connection, a worker, and what its handlers have noted."""

    connected: Callable[[str], AbstractAsyncContextManager[tuple[Enqueue, Enqueue]]]  # note, stamp
    at_work: Callable[[str], AbstractAsyncContextManager[None]]
    seen: Collection[int]
    latencies: list[float]

    def main(self) -> None:
        """Run the command and print its result."""
        verbs = (self.preload, self.enqueue, self.drain, self.share, self.serve, self.send)
        probe.main({verb.__name__: _looped(verb) for verb in verbs})

    async def preload(self, path: str, number: int, size: int = 0) -> dict[str, Any]:
        """Enqueue this many tasks, 1,000 at once."""
        text = {"text": "x" * size} if size else {}
        async with self.connected(path) as (note, _):
            started = time.perf_counter()
            for first in range(0, number, AT_ONCE):
                some = range(first, min(first + AT_ONCE, number))
                await asyncio.gather(*(note(n=n, **text) for n in some))
            return {"rate": number / (time.perf_counter() - started)}

    async def enqueue(self, path: str, number: int) -> dict[str, Any]:
        """Enqueue one by one."""
        async with self.connected(path) as (note, _):
            return await probe.sent(number, 0, lambda n: note(n=n))

    async def drain(self, path: str, number: int) -> dict[str, Any]:
        """Drain the queue, timed from the start of the worker to the end of the last handler."""
        async with self.at_work(path):
            return await asyncio.to_thread(probe.drained, self.seen, number)

    async def share(self, path: str) -> dict[str, Any]:
        """Run tasks beside other processes until none are left."""
        await probe.told("go")
        async with self.at_work(path):
            return await asyncio.to_thread(probe.shared, self.seen)

    async def serve(self, path: str, number: int) -> dict[str, Any]:
        """Run the worker for pickup across processes, until this many tasks have started."""
        async with self.at_work(path):
            await asyncio.to_thread(probe.idle_share)
            probe.ready()
            await asyncio.to_thread(probe.wait_for, self.latencies, number)
        return probe.spread(self.latencies)

    async def send(self, path: str, number: int, gap: float) -> dict[str, Any]:
        """Run the producer for pickup across processes."""
        async with self.connected(path) as (_, stamp):
            await probe.sent(number, gap, lambda _: stamp(sent=time.monotonic()))
        return {}


def _looped(verb: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    return lambda **options: probe.looped(verb(**options))
