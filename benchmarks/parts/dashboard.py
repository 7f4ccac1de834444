"""The dashboard over millions of tasks: the time of each screen, and what viewers cost stores and drains."""

import asyncio
import http.client
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from threading import Event

import psycopg

from benchmarks import databases
from benchmarks.databases import Databases
from benchmarks.figures import MILLISECONDS, RATE, TIMES, Figure, Findings, Target, percentile, ratio
from benchmarks.parts.plan import Plan, url
from benchmarks.processes import run
from benchmarks.progress import tell
from benchmarks.runs import many_tasks
from benchmarks.server import served
from benchmarks.sides import WINDLASS
from benchmarks.worker_drain import drained
from windlass import App, Filter, Page
from windlass._dashboard.screens import ALL

PART = "dashboard"
MOST = {"Postgres": 150.0, "SQLite": 300.0}  # milliseconds, p95
MOST_OF_SEARCH = 2_000.0  # of what no index serves: the page stops it then
VIEWERS, DRAIN_VIEWERS = 50, 10
COST_OF_VIEWERS, DRAIN_WITH_VIEWERS = 1.2, 0.97
WATCHED_SECONDS = 20.0


def measure(plan: Plan) -> Findings:
    """Fill the stores, ask every screen, then let viewers look."""
    findings = Findings()
    with databases.started(plan.folder, plan.version) as server:
        findings.facts |= server.described()
        with server.fresh(WINDLASS) as fresh:
            many = plan.on_postgres.beside
            many_tasks.fill(fresh, many, many, many * 3)  # takes minutes, so not as a run
            _screens(findings, plan, "Postgres", fresh, many * 5)
            _viewers(findings, fresh)
        _drains(findings, plan, server)
    path = plan.path("dashboard-sqlite")
    some = plan.on_postgres.beside // 10
    many_tasks.fill(url(path), some, some, some * 3)
    _screens(findings, plan, "SQLite", url(path), some * 5)
    return findings


def _screens(findings: Findings, plan: Plan, store: str, where: str, number: int) -> None:
    """Ask each screen often; its p95 is by the client, so what is on the way counts, too."""
    with served(where) as address, closing(http.client.HTTPConnection(address, timeout=60)) as client:
        for path in _paths(where):
            times = []
            for _ in range(max(10, plan.rounds * 8)):
                began = time.perf_counter()
                client.request("GET", f"/dashboard{path}")
                response = client.getresponse()
                response.read()
                times.append((time.perf_counter() - began) * 1000)
                if response.status != 200:
                    raise RuntimeError(f"GET /dashboard{path}: {response.status}")
            p95 = Figure(
                PART, f"{path}, p95, {number:,} tasks", store, MILLISECONDS, (percentile(times, 0.95),)
            )
            most = MOST_OF_SEARCH if "&type=" in path else MOST[store]
            findings.targets.append(Target(f"{path} on {store}", findings.add(p95), at_most=most))
            tell(f"dashboard … {store} {path}: {p95.median:,.0f} ms")


def _paths(where: str) -> list[str]:
    """Return a path for each screen."""

    async def sample() -> dict[str, str]:
        app = App(where)
        dead = (await app.operator.find(Filter(states=("dead",)), Page(limit=1))).items[0]  # type: ignore[arg-type]
        await app.close()
        return {
            "queue": "end1",
            "id": dead.id,
            "root": dead.root,
            "failure": dead.failure or "",
        }

    values = asyncio.run(sample())
    paths = [screen.path for pages in ALL for screen in pages.screens if screen.live]
    for name, value in values.items():
        paths = [path.replace(f"{{{name}}}", value) for path in paths]
    return [
        *(path for path in paths if "{" not in path),  # a schedule, a limit, a key: there is none
        "/health",
        "/tasks?state=dead",
        "/tasks?state=completed&type=shop.type3",
        "/tasks?q=tenant%3Atenant7",
    ]


def _viewers(findings: Findings, where: str) -> None:
    """Compare what one viewer and many cost the database, in transactions and in blocks it touched."""
    costs = {}
    with served(where) as address:
        for number in (1, VIEWERS):
            with _watching(address, number):
                time.sleep(3)
                before = _work(where)
                time.sleep(WATCHED_SECONDS)
                after = _work(where)
            costs[number] = [late - early for early, late in zip(before, after, strict=True)]
    for at, what in enumerate(("transactions", "blocks")):
        times = Figure(
            PART, f"{what} for {VIEWERS} viewers : 1", "Postgres", TIMES, (costs[VIEWERS][at] / costs[1][at],)
        )
        findings.targets.append(
            Target(f"{what} for {VIEWERS} viewers", findings.add(times), at_most=COST_OF_VIEWERS)
        )
        tell(f"dashboard … {times.what}: {times.median:.2f}")


def _work(where: str) -> tuple[int, int]:
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        row = connection.execute(
            "SELECT xact_commit + xact_rollback, blks_read + blks_hit FROM pg_stat_database "
            "WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _drains(findings: Findings, plan: Plan, server: Databases) -> None:
    """Drain with and without viewers in turn; both beside a server."""
    rates: dict[int, list[float]] = {0: [], DRAIN_VIEWERS: []}
    for turn in range(plan.rounds):
        for viewers in (0, DRAIN_VIEWERS) if turn % 2 else (DRAIN_VIEWERS, 0):
            with server.fresh(WINDLASS) as fresh:
                number = plan.on_postgres.drained
                run(WINDLASS.program, "fill", url=fresh, number=number, at_once=WINDLASS.at_once)
                with served(fresh) as address, _watching(address, viewers):
                    rates[viewers].append(drained(WINDLASS, fresh, number, folder=plan.folder).rate)
            tell(f"dashboard … drain with {viewers} viewers: {rates[viewers][-1]:,.0f} /s")
    figures = [
        findings.add(Figure(PART, "drain on Postgres", f"{viewers} viewers", RATE, tuple(values)))
        for viewers, values in rates.items()
    ]
    times = findings.add(ratio(PART, "drain on Postgres", figures[1], figures[0]))
    findings.targets.append(Target(f"drain with {DRAIN_VIEWERS} viewers", times, at_least=DRAIN_WITH_VIEWERS))


@contextmanager
def _watching(address: str, number: int) -> Iterator[None]:
    """Let this many viewers read the live overview."""
    stop = Event()

    def watch() -> None:
        with closing(http.client.HTTPConnection(address, timeout=60)) as client:
            client.request("GET", "/dashboard/?live=1")
            response = client.getresponse()
            while not stop.is_set() and response.readline():
                pass

    with ExitStack() as stack:
        if number:
            pool = stack.enter_context(ThreadPoolExecutor(number))
            stack.callback(stop.set)
            for _ in range(number):
                pool.submit(watch)
        yield
