"""Striping on Postgres, windlass alone: many claimers on one queue, which has one stripe or several.

Also the program of each of its two processes: claimers that claim ten tasks, complete them and claim the
next, on their own connections.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg

from benchmarks import databases
from benchmarks.databases import Databases
from benchmarks.figures import MILLISECONDS, RATE, TIMES, Figure, Findings, ratio
from benchmarks.parts.plan import Plan
from benchmarks.processes import RunFailed, run, running
from benchmarks.progress import tell
from benchmarks.runs import probe
from benchmarks.sides import WINDLASS
from windlass._ids import new_id
from windlass._model.lease import Claim, Heartbeat
from windlass._model.queue import QueueSettings
from windlass._model.record import Worker
from windlass._model.task import NewTask
from windlass._model.verdict import Complete, Receipt, Settlement
from windlass._stores.postgres import PostgresStore

PART = "stripes, Postgres"
PROGRAM = (sys.executable, "-m", "benchmarks.parts.stripes")
PROCESSES = 2
CLAIMERS = (16, 64)  # in both processes together
# The number of stripes before, and now.
STRIPES = {"1 stripe": (1, 1), "4 stripes": (1, 4), "16 stripes": (1, 16), "1, once 16": (16, 1)}
QUEUE, EMPTY = "default", "empty"  # with the same stripes; the second is for warming up
WARMING = 3
AT_ONCE = 10
LOOKS = 200
LEASE = timedelta(minutes=10)

Answer = dict[str, Any]


def measure(plan: Plan) -> Findings:
    """Run all variants in turn, round after round, each in a new database."""
    rates: dict[tuple[int, str], list[float]] = {}
    waits: dict[tuple[int, str], list[float]] = {}
    empty: dict[str, list[float]] = {}
    with databases.started(plan.folder, plan.version) as server:
        for turn in range(plan.rounds):
            for name, stripes in STRIPES.items():
                empty.setdefault(name, []).append(_found_nothing(server, *stripes))
            for claimers, name in _variants():
                rate, wait = _claimed(server, plan.on_postgres.drained, claimers, *STRIPES[name])
                rates.setdefault((claimers, name), []).append(rate)
                waits.setdefault((claimers, name), []).append(wait)
                tell(f"stripes … round {turn + 1}, {claimers} claimers, {name}: {rate:,.0f} /s")
        findings = Findings(facts=server.described())
    for claimers in CLAIMERS:
        what, first = f"{claimers} claimers of {AT_ONCE}", next(iter(STRIPES))
        one = Figure(PART, what, first, RATE, tuple(rates[claimers, first]))
        for name in STRIPES:
            figure = findings.add(Figure(PART, what, name, RATE, tuple(rates[claimers, name])))
            if name != first:
                times = ratio(PART, what, figure, one)
                findings.add(Figure(PART, what, times.who, TIMES, times.values))
            p99 = tuple(waits[claimers, name])
            findings.add(Figure(PART, f"{what}, p99", name, MILLISECONDS, p99))
    for name, waited in empty.items():
        findings.add(Figure(PART, "nothing there, p50", name, MILLISECONDS, tuple(waited)))
    return findings


def _variants() -> Iterator[tuple[int, str]]:
    for claimers in CLAIMERS:
        for name in STRIPES:
            yield claimers, name


def _claimed(server: Databases, number: int, claimers: int, before: int, now: int) -> tuple[float, float]:
    """Return tasks per second from first to last claim and the p99 of a call in the slower process, in ms."""
    each = claimers // PROCESSES
    with server.fresh(WINDLASS) as plain, ExitStack() as stack:
        url = f"{plain}?connections={each}"
        run(PROGRAM, "fill", url=url, number=number, before=before, now=now)
        server.quiesce(plain)
        crew = [
            stack.enter_context(running(PROGRAM, "claim", url=url, claimers=each)) for _ in range(PROCESSES)
        ]
        for member in crew:
            member.say("go")
        answers = [member.answer() for member in crew]
        kept = _kept(plain)
    done = sum(answer["done"] for answer in answers)
    if (done, *kept) != (number, number, number):
        raise RunFailed(
            f"{number} tasks: {done} completions acknowledged, {kept[0]} kept, of {kept[1]} tasks"
        )
    began, ended = min(answer["began"] for answer in answers), max(answer["ended"] for answer in answers)
    return number / (ended - began), max(answer["p99"] for answer in answers)


def _kept(url: str) -> tuple[int, int]:
    """Return the numbers of completion records and of their tasks, exactly: a store may estimate."""
    with closing(psycopg.connect(url)) as connection:
        row = connection.execute("SELECT count(*), count(DISTINCT id) FROM windlass.history").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _found_nothing(server: Databases, before: int, now: int) -> float:
    """Return how long a claim from an empty queue takes, in ms."""
    with server.fresh(WINDLASS) as url:
        run(PROGRAM, "fill", url=url, number=0, before=before, now=now)
        return float(run(PROGRAM, "look", url=url, number=LOOKS)["p50"])


# -- the program -------------------------------------------------------------------------------------


def fill(url: str, number: int, before: int, now: int) -> Answer:
    """Set the stripes of the queue, and enqueue."""

    async def send() -> None:
        store = PostgresStore.from_url(url)
        for queue in (QUEUE, EMPTY):
            await store.put(QueueSettings(name=queue, stripes=before))
            await store.put(QueueSettings(name=queue, stripes=now))
        for first in range(0, number, 5_000):
            ids = [new_id() for _ in range(first, min(first + 5_000, number))]
            await store.enqueue([NewTask(id=one, root=one, type="note", payload=b'{"n":1}') for one in ids])
        await store.close()

    probe.looped(send())
    return {}


def claim(url: str, claimers: int) -> Answer:
    """Run this many claimers concurrently until no task is left."""
    waits: list[float] = []

    async def serve() -> Answer:
        store = PostgresStore.from_url(url)
        sessions = await asyncio.gather(*(_session(store) for _ in range(claimers)))
        # Before timing starts, open every connection, prepare every statement and read the stripes.
        for _ in range(WARMING):
            await asyncio.gather(*(store.settle([], _wish(session, 1, EMPTY)) for session in sessions))
        await probe.told("go")
        began = time.time()
        done = await asyncio.gather(*(_work(store, session, waits) for session in sessions))
        ended = time.time()
        await store.close()
        return {"began": began, "ended": ended, "done": sum(done), "p99": probe.spread(waits)["p99"]}

    return probe.looped(serve())


async def _session(store: PostgresStore) -> str:
    session = new_id()
    worker = Worker(name="claimer", host="here", pid=1, queues=(QUEUE,), slots=AT_ONCE, version="1")
    await store.heartbeat(Heartbeat(session=session, worker=worker, lease_for=LEASE, opening=True))
    return session


def _wish(session: str, number: int, queue: str) -> Claim:
    return Claim(session=session, queues=(queue,), limit=AT_ONCE, number=number)


async def _work(store: PostgresStore, session: str, waits: list[float]) -> int:
    """Claim and complete until no task is left; return how many were completed."""
    done, settling = 0, list[Settlement]()
    for number in count(2):
        asked = time.perf_counter()
        settled = await store.settle(settling, _wish(session, number, QUEUE))
        waits.append(time.perf_counter() - asked)
        done += settled.receipts.count(Receipt.APPLIED)
        if not settled.claimed:
            break
        settling = [
            Settlement(lease=one.lease, verdict=Complete(), outcome="returned", duration=0.0)
            for one in settled.claimed
        ]
    return done


def look(url: str, number: int) -> Answer:
    """Claim this many times in a row from an empty queue."""
    waits: list[float] = []

    async def serve() -> Answer:
        store = PostgresStore.from_url(url)
        session = await _session(store)
        for n in range(number + WARMING):
            asked = time.perf_counter()
            await store.settle([], _wish(session, n + 1, EMPTY))
            waits.append(time.perf_counter() - asked)
        await store.close()
        return dict(probe.spread(waits[WARMING:]))

    return probe.looped(serve())


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (fill, claim, look)})
