"""Drain, enqueue and pickup on JetStream, three nodes and one, beside one Postgres; and what a task costs.

Sides take turns, each run on an empty store. Every write is synced before it is acknowledged, on each side.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from benchmarks import databases, sides
from benchmarks.figures import BYTES, MICROSECONDS, MILLISECONDS, RATE, Figure, Findings, ratio
from benchmarks.parts.jetstream.drain import PROGRAM, check, drained, fill
from benchmarks.parts.jetstream.servers import Costs, Servers, started
from benchmarks.parts.plan import Plan
from benchmarks.processes import run, running
from benchmarks.progress import tell

CLUSTER, NODE, POSTGRES = "JetStream, 3 nodes", "JetStream, 1 node", "Postgres"
NODES = {CLUSTER: 3, NODE: 1}
PART = "JetStream"
BULK, ONE, TWO = "bulk of 1,000", "drain, 1 worker process", "drain, 2 worker processes"
CALLERS = {1: "one, 1 caller", 16: "one, 16 callers", 256: "one, 256 callers"}
P50, P99 = "pickup, p50", "pickup, p99"
OWNER, SERVERS, WORKER, LOG = "owner's processor", "nodes' processor", "worker's processor", "log"
UNITS = {
    **dict.fromkeys((BULK, ONE, TWO, *CALLERS.values()), RATE),
    **dict.fromkeys((P50, P99), MILLISECONDS),
    **{f"{what}: {of}": MICROSECONDS for what in (BULK, ONE) for of in (OWNER, SERVERS)},
    f"{ONE}: {WORKER}": MICROSECONDS,
    **{f"{what}: {LOG}": BYTES for what in (BULK, ONE)},
}

Fresh = Callable[[], AbstractContextManager[tuple[str, Costs | None]]]
"""Makes a new, empty store; yields its URL, and on JetStream what its processes have used."""


def measure(plan: Plan) -> Findings:
    """Run every side in turn, each round starting with another."""
    found: dict[str, dict[str, list[float]]] = {what: {} for what in UNITS}
    with ExitStack() as stack:
        nodes = {who: stack.enter_context(started(plan.folder, number)) for who, number in NODES.items()}
        server = stack.enter_context(databases.started(plan.folder, plan.version))
        taking_part: dict[str, Fresh] = {who: partial(_on_jetstream, one) for who, one in nodes.items()}
        taking_part[POSTGRES] = partial(_on_postgres, server)
        names = list(taking_part)
        for number in range(plan.rounds):
            turn = number % len(names)
            for who in [*names[turn:], *names[:turn]]:
                tell(f"jetstream … round {number + 1} of {plan.rounds}: {who}")
                for what, value in _round(taking_part[who], plan):
                    found[what].setdefault(who, []).append(value)
        slots = {"slots, JetStream": str(plan.slots)}
        findings = Findings(facts=nodes[CLUSTER].described() | server.described() | slots)
    for what, unit in UNITS.items():
        part = PART if unit in {RATE, MILLISECONDS} else f"{PART}, a task's cost"
        figures = {
            who: findings.add(Figure(part, what, who, unit, tuple(v))) for who, v in found[what].items()
        }
        if POSTGRES in figures and unit == RATE:
            findings.add(ratio(part, what, figures[CLUSTER], figures[POSTGRES]))
    return findings


@contextmanager
def _on_jetstream(servers: Servers) -> Iterator[tuple[str, Costs | None]]:
    with servers.store() as store:
        yield store.url, Costs(servers, store)


@contextmanager
def _on_postgres(server: databases.Databases) -> Iterator[tuple[str, Costs | None]]:
    with server.fresh(sides.WINDLASS) as url:
        server.quiesce(url)
        yield url, None


def _round(fresh: Fresh, plan: Plan) -> Iterator[tuple[str, float]]:
    number = plan.drained
    with fresh() as (url, costs):
        yield BULK, fill(url, number)
        if costs is not None:
            yield from _costs(BULK, costs, number)
        one = drained([url], number, processes=1, slots=plan.slots)
        yield ONE, one.rate
        if costs is not None:
            yield f"{ONE}: {WORKER}", one.processor / number * 1e6
            yield from _costs(ONE, costs, number)
        check(url, number)
    with fresh() as (url, _):
        fill(url, number)
        yield TWO, drained([url], number, processes=2, slots=plan.slots).rate
        check(url, number)
    for callers, what in CALLERS.items():
        calls = {"number": min(plan.drained, plan.enqueued * callers), "callers": callers}
        with fresh() as (url, _):
            yield what, run(PROGRAM, "aenqueue", url=url, **calls)["rate"]
    with fresh() as (url, _), running(PROGRAM, "serve", url=url, number=plan.picked_up) as worker:
        run(PROGRAM, "send", url=url, number=plan.picked_up, gap=plan.gap)
        seen = worker.answer()
    yield P50, seen["p50"]
    yield P99, seen["p99"]


def _costs(what: str, costs: Costs, number: int) -> Iterator[tuple[str, float]]:
    """Yield what one of these tasks has cost since the last call."""
    spent = costs.spent()
    yield f"{what}: {OWNER}", spent.owners / number * 1e6
    yield f"{what}: {SERVERS}", spent.nodes / number * 1e6
    yield f"{what}: {LOG}", spent.log_bytes / number
