"""A crowd of idle workers: what each costs, how soon a task wakes one of them, and how they start and return.

`direct`: the workers of a process share its connections to Postgres. `served`: each has its own connections
to `windlass serve`, as a worker process elsewhere has.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks import databases
from benchmarks.crowd import Crowd, Database, Server, crowd, processor, resident, sockets
from benchmarks.figures import (
    BYTES,
    CONNECTIONS,
    KILOBYTES,
    MICROSECONDS,
    MILLISECONDS,
    PERCENT,
    RATE,
    SECONDS,
    Figure,
    Findings,
    percentile,
)
from benchmarks.parts.plan import Plan
from benchmarks.processes import Answer, run
from benchmarks.progress import tell
from benchmarks.sides import WINDLASS

PART = "crowd"
PROGRAM = "on_windlass_workers"
DIRECT, SERVED = "direct", "served"
WAYS = DIRECT, SERVED
SPARE_CONNECTIONS = 3  # of a worker to its server: a stream, claims, heartbeats
SETTLING_SECONDS = 8.0
LIMIT_SECONDS = 60.0


def measure(plan: Plan) -> Findings:
    """Measure each number of workers in each way, each in a new database."""
    findings = Findings()
    with databases.started(plan.folder, plan.version) as server:
        for way in WAYS:
            for number in plan.crowd.workers:
                with server.fresh(WINDLASS) as url:
                    for figure in _measured(plan, url, server.pid, way, number):
                        findings.add(figure)
                        tell(f"crowd … {figure.who}: {figure.what} {figure.median:,.1f} {figure.unit}")
        findings.facts |= server.described()
    return findings


def _measured(plan: Plan, url: str, postgres: int, way: str, number: int) -> Iterator[Figure]:
    who = f"{number:,} workers, {way}"
    database = Database(url, postgres)
    os.environ["WINDLASS_KEY"] = run(PROGRAM, "prepare", url=url)["key"]
    with _entrance(plan, url, way, number) as (urls, server):
        before = resident(server.pid) if server else 0.0
        options = {"own": way == SERVED, "heartbeat": plan.crowd.heartbeat, "lease": plan.crowd.heartbeat * 6}
        with crowd(urls, number, **options) as workers:
            yield Figure(PART, "all claim after", who, SECONDS, (workers.seconds,))
            _until(lambda: database.sample()["sessions"] >= number, "all sessions")
            time.sleep(SETTLING_SECONDS)
            if server:
                started = processor(server.pid) / number
                yield Figure(PART, "start, servers' processor a worker", who, MILLISECONDS, (started * 1e3,))
                after = resident(server.pid)
                yield Figure(
                    PART, "server memory a worker", who, KILOBYTES, ((after - before) / number * 1e3,)
                )
                yield Figure(
                    PART, "connections of a worker", who, CONNECTIONS, (sockets(server.pid) / number,)
                )
            yield from _idle(plan, who, number, workers, database, server)
            yield from _woken(plan, who, url, workers)
            if server:
                yield from _restarted(who, url, number, workers, database, server)


@contextmanager
def _entrance(plan: Plan, url: str, way: str, number: int) -> "Iterator[tuple[list[str], Server | None]]":
    if way == DIRECT:
        yield [url], None
        return
    connections = number * SPARE_CONNECTIONS // plan.crowd.servers + 1_000
    server = Server(url, plan.folder, processes=plan.crowd.servers, connections=min(connections, 19_000))
    try:
        yield server.urls, server
    finally:
        server.stop()


def _idle(
    plan: Plan, who: str, number: int, workers: Crowd, database: Database, server: Server | None
) -> Iterator[Figure]:
    """Measure what doing nothing costs."""

    def sample() -> tuple[float, Answer, Answer, float]:
        return time.monotonic(), workers.sample(), database.sample(), processor(server.pid) if server else 0.0

    (began, held, kept, served), (ended, held2, kept2, served2) = _sampled_twice(sample, plan.crowd.idle)
    seconds = ended - began
    beats = number / plan.crowd.heartbeat

    def rate(name: str) -> float:
        return (kept2[name] - kept[name]) / seconds

    yield Figure(PART, "client memory a worker", who, KILOBYTES, (held2["resident"] / number * 1e3,))
    yield Figure(PART, "connections to Postgres", who, CONNECTIONS, (kept2["connections"],))
    yield Figure(
        PART, "idle, clients", who, PERCENT, ((held2["processor"] - held["processor"]) / seconds * 100,)
    )
    yield Figure(PART, "idle, servers", who, PERCENT, ((served2 - served) / seconds * 100,))
    yield Figure(PART, "idle, Postgres", who, PERCENT, (rate("processor") * 100,))
    yield Figure(PART, "idle, claims", who, RATE, (held2["claims"] / seconds,))
    yield Figure(PART, "idle, commits", who, RATE, (rate("commits"),))
    yield Figure(PART, "idle, rows written", who, RATE, (rate("rows"),))
    yield Figure(PART, "idle, WAL a heartbeat", who, BYTES, (rate("wal") / beats,))
    busy = (served2 - served) / seconds + rate("processor")
    yield Figure(PART, "idle, processor a heartbeat", who, MICROSECONDS, (busy / beats * 1e6,))
    yield Figure(PART, "warnings", who, "", (held2["warnings"],))


def _sampled_twice(
    sample: Callable[[], tuple[float, Answer, Answer, float]], seconds: float
) -> "tuple[tuple[float, Answer, Answer, float], tuple[float, Answer, Answer, float]]":
    """Sample now and after some seconds."""
    first = sample()
    time.sleep(seconds)
    return first, sample()


def _woken(plan: Plan, who: str, url: str, workers: Crowd) -> Iterator[Figure]:
    """Enqueue one task at a time into the idle crowd."""
    idle = _claims_a_second(workers, plan.crowd.idle / 2)
    began = time.monotonic()
    run(PROGRAM, "send", url=url, number=plan.crowd.woken, gap=plan.crowd.gap)
    pickups: list[float] = []
    claims = 0

    def all_picked_up() -> bool:
        nonlocal claims
        sample = workers.sample()
        pickups.extend(sample["pickups"])
        claims += sample["claims"]
        return len(pickups) >= plan.crowd.woken

    _until(all_picked_up, "pickups")
    extra = claims - idle * (time.monotonic() - began)
    yield Figure(PART, "pickup, p50", who, MILLISECONDS, (percentile(pickups, 0.5) * 1e3,))
    yield Figure(PART, "pickup, p99", who, MILLISECONDS, (percentile(pickups, 0.99) * 1e3,))
    yield Figure(PART, "claims for one task", who, "", (max(extra, 0.0) / plan.crowd.woken,))


def _claims_a_second(workers: Crowd, seconds: float) -> float:
    workers.sample()
    time.sleep(seconds)
    return float(workers.sample()["claims"]) / seconds


def _restarted(
    who: str, url: str, number: int, workers: Crowd, database: Database, server: Server
) -> Iterator[Figure]:
    """Stop the server, start it again, and wait for all workers."""
    server.stop()
    workers.sample()
    server.start()
    began = time.monotonic()
    run(PROGRAM, "send", url=url, number=1, gap=0.0)
    _until(lambda: bool(workers.sample()["pickups"]), "a task after the restart")
    yield Figure(PART, "restart, first task after", who, SECONDS, (time.monotonic() - began,))
    _until(
        lambda: database.renewed_since(time.monotonic() - began) >= number, "all sessions after the restart"
    )
    yield Figure(PART, "restart, all sessions renewed after", who, SECONDS, (time.monotonic() - began,))
    yield Figure(PART, "restart, warnings", who, "", (workers.sample()["warnings"],))


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            tell(f"crowd … timed out waiting for {what}\n")
            return
        time.sleep(0.1)
