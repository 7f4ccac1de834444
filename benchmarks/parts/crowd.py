"""A crowd of idle workers: what each costs, how soon a task wakes one of them, and how they start and return.

`direct`: the workers of a process share its connections to Postgres. `served`: each has its own connections
to `windlass serve`, as a worker process elsewhere has; of very many, each has its own stream of wakes, and
fifty share connections for claims and heartbeats.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks import databases
from benchmarks.crowd import Crowd, Database, Server, crowd, processor, renewed_sessions, resident, sockets
from benchmarks.figures import (
    BYTES,
    CONNECTIONS,
    KILOBYTES,
    MICROSECONDS,
    MILLISECONDS,
    PERCENT,
    RATE,
    RATE_OF_KILOBYTES,
    SECONDS,
    Figure,
    Findings,
    percentile,
)
from benchmarks.parts.plan import Plan
from benchmarks.processes import Answer, RunFailed, run
from benchmarks.progress import tell
from benchmarks.sides import WINDLASS

PART = "crowd"
PROGRAM = "on_windlass_workers"
DIRECT, SERVED = "direct", "served"
WAYS = DIRECT, SERVED
CONNECTIONS_A_WORKER = 3  # to its server: a stream, claims, heartbeats
MOST_ALONE = 3_000  # workers each with an app of its own: more take minutes to start here
SHARING = 50  # workers, of more than that
SETTLING_SECONDS = 8.0
LIMIT_SECONDS = 60.0


def measure(plan: Plan) -> Findings:
    """Measure each number of workers in each way, on Postgres each in a new database."""
    findings = Findings()
    variants = [(way, number) for way in WAYS for number in plan.crowd.workers]
    if plan.crowd.store is not None:
        for way, number in variants:
            _add(findings, _measured(plan, plan.crowd.store, None, way, number))
        return findings
    with databases.started(plan.folder, plan.version) as server:
        for way, number in variants:
            with server.fresh(WINDLASS) as url:
                _add(findings, _measured(plan, url, Database(url, server.pid), way, number))
        findings.facts |= server.described()
    return findings


def _add(findings: Findings, figures: Iterator[Figure]) -> None:
    for figure in figures:
        findings.add(figure)
        tell(f"crowd … {figure.who}: {figure.what} {figure.median:,.1f} {figure.unit}")


def _measured(plan: Plan, url: str, database: Database | None, way: str, number: int) -> Iterator[Figure]:
    who = f"{number:,} workers, {way}"
    os.environ["WINDLASS_KEY"] = run(PROGRAM, "prepare", url=url)["key"]
    with _entrance(plan, url, way, number) as (urls, server):
        before = resident(server.pid) if server else 0.0
        options = {
            "sharing": number if way == DIRECT else 1 if number <= MOST_ALONE else SHARING,
            "heartbeat": plan.crowd.heartbeat,
            "lease": plan.crowd.heartbeat * 6,
        }
        with crowd(urls, number, **options) as workers:
            yield Figure(PART, "all claim after", who, SECONDS, (workers.seconds,))
            time.sleep(SETTLING_SECONDS)
            if server:
                started, more = processor(server.pid) / number, (resident(server.pid) - before) / number
                yield Figure(PART, "start, servers' processor a worker", who, MILLISECONDS, (started * 1e3,))
                yield Figure(PART, "server memory a worker", who, KILOBYTES, (more * 1e3,))
                yield Figure(
                    PART, "connections of a worker", who, CONNECTIONS, (sockets(server.pid) / number,)
                )
            yield from _idle(plan, who, number, Watched(workers, database, server))
            yield from _woken(plan, who, url, workers)
            if server:
                yield from _restarted(who, url, number, workers, server)
        yield from _heartbeats(plan, who, urls[0], database)


@contextmanager
def _entrance(plan: Plan, url: str, way: str, number: int) -> "Iterator[tuple[list[str], Server | None]]":
    if way == DIRECT:
        yield [url], None
        return
    connections = number * CONNECTIONS_A_WORKER // plan.crowd.servers + 1_000
    server = Server(url, plan.folder, processes=plan.crowd.servers, connections=min(connections, 19_000))
    try:
        yield server.urls, server
    finally:
        server.stop()


@dataclass(frozen=True)
class Watched:
    """What takes part: the processes of the workers, Postgres, and servers between them."""

    workers: Crowd
    database: Database | None
    server: Server | None

    def sample(self) -> Answer:
        """Return what all of them have used so far."""
        sample = {f"workers' {name}": value for name, value in self.workers.sample().items()}
        sample |= {} if self.database is None else self.database.sample()
        sample["servers"] = processor(self.server.pid) if self.server else 0.0
        return sample | {"at": time.monotonic()}


def _idle(plan: Plan, who: str, number: int, watched: Watched) -> Iterator[Figure]:
    """Measure what doing nothing costs."""
    before = watched.sample()
    time.sleep(plan.crowd.idle)
    after = watched.sample()
    seconds = after["at"] - before["at"]

    def rate(name: str) -> float:
        return float(after[name] - before[name]) / seconds

    yield Figure(PART, "client memory a worker", who, KILOBYTES, (after["workers' resident"] / number * 1e3,))
    yield Figure(PART, "idle, claims", who, RATE, (after["workers' claims"] / seconds,))
    yield Figure(PART, "idle, clients", who, PERCENT, (rate("workers' processor") * 100,))
    if watched.server:
        yield Figure(PART, "idle, servers", who, PERCENT, (rate("servers") * 100,))
    if watched.database:
        yield Figure(PART, "idle, Postgres", who, PERCENT, (rate("processor") * 100,))
        yield Figure(PART, "connections to Postgres", who, CONNECTIONS, (after["connections"],))
        yield Figure(PART, "idle, commits", who, RATE, (rate("commits"),))
        yield Figure(PART, "idle, rows written", who, RATE, (rate("rows"),))
        yield Figure(PART, "idle, WAL", who, RATE_OF_KILOBYTES, (rate("wal") / 1e3,))
    yield Figure(PART, "warnings so far", who, "", (after["workers' warnings"],))


def _woken(plan: Plan, who: str, url: str, workers: Crowd) -> Iterator[Figure]:
    """Enqueue one task at a time into the idle crowd, then many at once."""
    idle = _claims_a_second(workers, plan.crowd.idle / 2)
    began = time.monotonic()
    run(PROGRAM, "send", url=url, number=plan.crowd.woken, gap=plan.crowd.gap)
    pickups, claims = _picked_up(workers, plan.crowd.woken)
    extra = max(claims - idle * (time.monotonic() - began), 0.0)
    yield Figure(PART, "pickup, p50", who, MILLISECONDS, (percentile(pickups, 0.5) * 1e3,))
    yield Figure(PART, "pickup, p99", who, MILLISECONDS, (percentile(pickups, 0.99) * 1e3,))
    yield Figure(PART, "claims for one task", who, "", (extra / plan.crowd.woken,))
    run(PROGRAM, "flood", url=url, number=plan.crowd.flooded)
    pickups, _ = _picked_up(workers, plan.crowd.flooded)
    what = f"{plan.crowd.flooded:,} tasks at once, the last after"
    yield Figure(PART, what, who, SECONDS, (max(pickups),))


def _picked_up(workers: Crowd, number: int) -> tuple[list[float], int]:
    """Wait until this many tasks have started; return their delays, and the number of claims."""
    pickups: list[float] = []
    claims = 0

    def all_started() -> bool:
        nonlocal claims
        sample = workers.sample()
        pickups.extend(sample["pickups"])
        claims += sample["claims"]
        return len(pickups) >= number

    _until(all_started, "pickups")
    return pickups, claims


def _claims_a_second(workers: Crowd, seconds: float) -> float:
    workers.sample()
    time.sleep(seconds)
    return float(workers.sample()["claims"]) / seconds


def _restarted(who: str, url: str, number: int, workers: Crowd, server: Server) -> Iterator[Figure]:
    """Stop the server, start it again, and wait for all workers."""
    server.stop()
    workers.sample()
    server.start()
    began = time.monotonic()
    run(PROGRAM, "send", url=url, number=1, gap=0.0)
    pickups, _ = _picked_up(workers, 1)
    yield Figure(PART, "restart, pickup of the first task", who, SECONDS, (max(pickups),))
    _until(lambda: renewed_sessions(url, time.monotonic() - began) >= number, "all sessions")
    yield Figure(PART, "restart, all sessions renewed after", who, SECONDS, (time.monotonic() - began,))
    yield Figure(PART, "restart, warnings", who, "", (workers.sample()["warnings"],))


def _heartbeats(plan: Plan, who: str, url: str, database: Database | None) -> Iterator[Figure]:
    """Send heartbeats as fast as they are answered, one at a time and many at once."""
    for at_once in (1, plan.crowd.beats_at_once):
        before = database.sample() if database else {}
        answer = run(PROGRAM, "beat", url=url, number=plan.crowd.beats, at_once=at_once)
        what = f"heartbeat, {at_once} at once"
        yield Figure(PART, what, who, MICROSECONDS, (answer["seconds"] / plan.crowd.beats * 1e6,))
        if database:
            after = database.sample()
            used = (after["processor"] - before["processor"]) / plan.crowd.beats
            yield Figure(PART, f"{what}, Postgres", who, MICROSECONDS, (used * 1e6,))
            wal = (after["wal"] - before["wal"]) / plan.crowd.beats
            yield Figure(PART, f"{what}, WAL", who, BYTES, (wal,))


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RunFailed(f"timed out after {LIMIT_SECONDS:g} s waiting for {what}")
        time.sleep(0.1)
