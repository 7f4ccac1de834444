"""Thousands of queues, one for each customer: drain, claim, wake, stop, reads, pages; on each store in turn.

`named`: the worker names every queue. `all`: it serves whatever queues there are (`all_queues`).
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

from benchmarks import databases
from benchmarks.figures import (
    MICROSECONDS,
    MILLISECONDS,
    RATE,
    SECONDS,
    TASKS,
    Figure,
    Findings,
    Target,
    percentile,
    ratio,
)
from benchmarks.parts.jetstream import servers as nats
from benchmarks.parts.plan import Plan, url
from benchmarks.parts.redis import sides as redis
from benchmarks.processes import Answer, RunFailed, run, running
from benchmarks.progress import tell
from benchmarks.server import served
from benchmarks.sides import WINDLASS
from tests.servers.redis import DURABLE

PART = "queues"
PROGRAM = "on_windlass_queues"
WAYS = {"all": False, "named": True}
REDIS = "redis"  # the store that the others are compared with
MOST_TIMES = 3.0
STOP_SECONDS = 30.0
LOOKS = 5
PAGES = ("/queues", "/dashboard/queues", "/metrics")
_PATHS = count()

NewStore = Callable[[], Any]  # a context manager: the URL of a new, empty store


def measure(plan: Plan) -> Findings:
    """Measure every store in turn, round after round, each verb on a new store."""
    values: dict[tuple[str, str, str], list[float]] = {}
    findings = Findings()
    with ExitStack() as stack:
        stores = {name: STORES[name](plan, stack, findings) for name in plan.queues.stores}
        for turn in range(plan.rounds):
            for name, new_store in stores.items():
                for what, unit, value in _measured(plan, new_store):
                    values.setdefault((what, name, unit), []).append(value)
                    tell(f"queues … round {turn + 1}, {name}: {what} {value:,.2f} {unit}")
    figures = {
        (what, name): findings.add(Figure(PART, what, name, unit, tuple(found)))
        for (what, name, unit), found in sorted(values.items())
    }
    for (what, name), figure in figures.items():
        if what.startswith("drain") and what.endswith("time") and name != REDIS and (what, REDIS) in figures:
            times = findings.add(ratio(PART, what, figure, figures[what, REDIS]))
            findings.targets.append(Target(f"{what}, {name}", times, at_most=MOST_TIMES))
        if what.endswith("left"):
            findings.targets.append(Target(f"{what}, {name}", figure, at_most=0))
    return findings


def _measured(plan: Plan, new_store: NewStore) -> Iterator[tuple[str, str, float]]:
    """Yield what is measured, its unit and its value; each group of figures is of a new store."""
    sizes, at = plan.queues, partial(dict, queues=plan.queues.number)
    limit = sizes.limit
    for way, named in WAYS.items():
        with new_store() as store:
            filled = run(PROGRAM, "fill", **at(url=store, tasks=sizes.tasks))
            if not named:
                yield "enqueue, by 128 callers", RATE, filled["rate"]
                read = run(PROGRAM, "look", **at(url=store, looks=LOOKS))
                yield "count by queue", MILLISECONDS, read["count"] * 1e3
                yield "read the overview (/queues, dashboard, metrics)", MILLISECONDS, read["overview"] * 1e3
                with served(store) as address:
                    got = run(PROGRAM, "get", address=address, paths=PAGES, looks=LOOKS)
                for path, seconds in got.items():
                    yield f"GET {path}", MILLISECONDS, seconds * 1e3
            drained = run(PROGRAM, "drain", **at(url=store, limit=limit, named=named))
        yield f"drain, {way}: time", SECONDS, drained["seconds"]
        yield f"drain, {way}: left", TASKS, drained["left"]
        yield f"drain, {way}: worker's processor a task", MICROSECONDS, drained["processor"]
    with new_store() as store:
        looks = {"looks": LOOKS, "ready": LOOKS * 10, "limit": limit}
        claimed = run(PROGRAM, "claim", **at(url=store, **looks))
    yield "claim naming all, none ready", MILLISECONDS, claimed["empty"] * 1e3
    yield "claim naming all, few ready", MILLISECONDS, claimed["few"] * 1e3
    for way, named in WAYS.items():
        with new_store() as store:
            run(PROGRAM, "fill", **at(url=store, tasks=1))
            options = at(url=store, tasks=1, limit=limit, named=named)
            yield from _served(plan, way, store, options)


def _served(plan: Plan, way: str, store: str, options: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Wake an idle worker that serves all queues, and stop it."""
    sizes = plan.queues
    with running(PROGRAM, "serve", **options) as worker:
        run(PROGRAM, "send", url=store, queues=sizes.number, number=sizes.woken, gap=sizes.gap)
        began = time.perf_counter()
        os.kill(worker.pid, signal.SIGTERM)
        while worker.is_alive and time.perf_counter() - began < STOP_SECONDS:
            time.sleep(0.005)
        yield f"stop, {way}", SECONDS, time.perf_counter() - began
        if worker.is_alive:
            return
        answer: Answer = worker.answer()
    if answer["ran"] < sizes.number:
        yield f"run all, {way}: left", TASKS, sizes.number - answer["ran"]
    if len(answer["pickups"]) < sizes.woken:
        raise RunFailed(f"{len(answer['pickups'])} of {sizes.woken} tasks were picked up by {store}")
    yield f"pickup of one task, {way}: p50", MILLISECONDS, percentile(answer["pickups"], 0.5) * 1e3
    yield f"pickup of one task, {way}: most", MILLISECONDS, max(answer["pickups"]) * 1e3


# -- stores ------------------------------------------------------------------------------------------


def _on_sqlite(plan: Plan, stack: ExitStack, findings: Findings) -> NewStore:  # noqa: ARG001
    @contextmanager
    def new_store() -> Iterator[str]:
        yield url(plan.path(f"queues-{next(_PATHS)}"))

    return new_store


def _on_postgres(plan: Plan, stack: ExitStack, findings: Findings) -> NewStore:
    server = stack.enter_context(databases.started(plan.folder, plan.version))
    findings.facts |= server.described()
    return lambda: server.fresh(WINDLASS)


def _on_redis(plan: Plan, stack: ExitStack, findings: Findings) -> NewStore:
    folder = plan.folder / "queues-redis"
    folder.mkdir()
    address, client = stack.enter_context(redis.started(folder, DURABLE))
    findings.facts |= {"redis": f"{client.info('server')['redis_version']}; appendfsync always"}

    @contextmanager
    def new_store() -> Iterator[str]:
        client.flushdb()
        yield address

    return new_store


def _on_nats(plan: Plan, stack: ExitStack, findings: Findings) -> NewStore:
    servers = stack.enter_context(nats.started(plan.folder, 1))
    findings.facts |= servers.described()

    @contextmanager
    def new_store() -> Iterator[str]:
        with servers.store() as store:
            yield store.url

    return new_store


STORES: dict[str, Callable[[Plan, ExitStack, Findings], NewStore]] = {
    "sqlite": _on_sqlite,
    "postgres": _on_postgres,
    REDIS: _on_redis,
    "nats": _on_nats,
}
