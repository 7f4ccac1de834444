"""A soak of on_stuck="replace": handlers that overrun their timeout under load, for as long as is asked.

    .venv/bin/python -m benchmarks.stuck_handlers [--seconds N] [--store URL]

Prints a line each minute and exits with 1 if a slot was lost, an attempt settled twice or not at all, or
memory grew. Slots are counted by tasks that wait for each other: they pass a barrier only if all run at once.
"""

import argparse
import asyncio
import gc
import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

from windlass import App, Backoff, Filter, Retention, State, WorkerSettings
from windlass._cli.worker.recycle import memory_in_use
from windlass._observe.events import Event, EventName

SLOTS = 8
TIMEOUT = 0.2
LONGEST = 5.0  # seconds that a stuck handler blocks at most
QUICK_A_SECOND, STUCK_A_SECOND = 60, 2.0
ROUND_SECONDS = 60.0
WARM_UP = 0.2  # of the time, which memory may grow in
GROWTH = 1.1
_SETTLED = {EventName.COMPLETED, EventName.RETRIED, EventName.BURIED, EventName.RELEASED}


class Ledger:
    """A sink that matches each claimed attempt with its settlement."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}  # tasks, and the fences that they are held under
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def wants(self, _: EventName) -> bool:
        return True

    def take(self, event: Event) -> None:
        with self._lock:
            self.counts[event.name] += event.number or 1
            if event.name is EventName.CLAIMED:
                self.counts["claimed twice"] += event.task_id in self.open
                self.open[event.task_id] = event.fence
            elif event.name in _SETTLED:
                self.counts["settled twice"] += self.open.pop(event.task_id, None) != event.fence

    def took(self, verb: str, seconds: float) -> None: ...

    def failed(self, verb: str, code: str) -> None:
        with self._lock:
            self.counts[f"{verb}: {code}"] += 1
            self.counts["failed calls"] += 1

    def batch(self, size: int) -> None: ...


class Soak:
    """The app, its handlers, and the load."""

    def __init__(self, url: str) -> None:
        retention = Retention(completed=timedelta(seconds=30), dead=timedelta(seconds=30))
        self.app = app = App(url, backoff=Backoff(base=0.5, jitter=0), retention=retention)
        self.ledger = Ledger()
        app.store.attach(self.ledger)
        self.blocked = 0  # handlers in threads right now
        self.most_blocked = 0
        self.late = 0  # handlers that returned after their timeout
        self.barrier = threading.Barrier(SLOTS)
        lock = threading.Lock()

        @app.task(timeout=TIMEOUT, on_stuck="replace", max_attempts=2)
        def stuck(seconds: float) -> str:
            with lock:
                self.blocked += 1
                self.most_blocked = max(self.most_blocked, self.blocked)
            time.sleep(seconds)
            with lock:
                self.blocked -= 1
                self.late += 1
            return "x" * 1_000

        @app.task
        def quick(number: int) -> int:
            time.sleep(0.005)
            return number

        @app.task
        async def quick_async(number: int) -> int:
            await asyncio.sleep(0.005)
            return number

        @app.task(max_attempts=1)
        def meet() -> None:
            self.barrier.wait(30)

        self.stuck, self.quick, self.quick_async, self.meet = stuck, quick, quick_async, meet

    async def load(self, seconds: float) -> None:
        """Enqueue all kinds, the stuck ones in bursts that reach the limit of replaced handlers."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            quick = [{"number": number} for number in range(QUICK_A_SECOND // 2)]
            await self.quick.aenqueue_many(quick)
            await self.quick_async.aenqueue_many(quick)
            burst = 3 if int(now) % 20 < 4 else 1
            number = sum(random.random() < STUCK_A_SECOND / 4 for _ in range(4 * burst))
            await self.stuck.aenqueue_many([{"seconds": random.uniform(1.5, LONGEST)} for _ in range(number)])
            await asyncio.sleep(1.0)

    async def all_slots(self) -> bool:
        """Whether as many tasks as there are slots run at once, when nothing else does."""
        deadline = time.monotonic() + 120
        while self.ledger.open or self.blocked or await self.pending():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.1)
        handles = await self.meet.aenqueue_many([{}] * SLOTS)
        ended = [await handle.wait(timeout=60) for handle in handles]
        return all(task.state is State.COMPLETED for task in ended)

    async def pending(self) -> int:
        """How many tasks have not ended."""
        where = Filter(states=(State.READY, State.SCHEDULED, State.RUNNING))
        return sum(one.number for one in await self.app.operator.count(where))


async def run(url: str, seconds: float) -> bool:
    """Soak for this time; return whether all was well."""
    soak, rss, is_well = Soak(url), list[tuple[float, int]](), True
    began = time.monotonic()
    settings = WorkerSettings(slots=SLOTS, poll=timedelta(seconds=0.5))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(soak.app)
        await stack.enter_async_context(soak.app.worker(settings))
        while (spent := time.monotonic() - began) < seconds:
            await soak.load(min(ROUND_SECONDS, seconds - spent))
            met = await soak.all_slots()
            gc.collect()
            counts, spent = soak.ledger.counts, time.monotonic() - began
            rss.append((spent, memory_in_use()))
            print(
                f"{spent:6.0f} s  {counts['completed']:,} completed, {counts['stuck']:,} stuck, "
                f"{counts['retried'] + counts['buried']:,} timed out, {soak.late:,} late ends, "
                f"{soak.most_blocked} blocked at most, {threading.active_count()} threads, "
                f"{rss[-1][1] / 1e6:.1f} MB, all {SLOTS} slots: {'yes' if met else 'NO'}",
                flush=True,
            )
            is_well &= met
    wrong = {name: counts[name] for name in ("settled twice", "claimed twice", "lost", "rescued")}
    wrong["never settled"] = len(soak.ledger.open)
    wrong["failed calls"] = counts["failed calls"]
    warm = [used for spent, used in rss if spent >= WARM_UP * seconds] or [rss[-1][1]]
    growth = rss[-1][1] / warm[0]
    print(f"{wrong}; memory is {growth:.3f} of what it was after the warm-up")
    return is_well and not any(wrong.values()) and growth <= GROWTH


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seconds", type=float, default=3_600.0, help="length of the soak  [default: 3600]")
    parser.add_argument("--store", help="URL of the store  [default: a SQLite file]")
    given = parser.parse_args()
    logging.getLogger("windlass").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        url = given.store or f"sqlite:///{Path(folder) / 'soak.db'}"
        sys.exit(0 if asyncio.run(run(url, given.seconds)) else 1)


if __name__ == "__main__":
    main()
