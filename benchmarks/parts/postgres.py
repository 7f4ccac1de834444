"""Comparison with other queues on Postgres: enqueue, bulk, drain and pickup, all on one private server.

Sides take turns, each run in a new database. Every drain counts tasks that never ran or ran twice.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import databases, sides
from benchmarks.figures import (
    MILLISECONDS,
    RATE,
    TASKS,
    Figure,
    Findings,
    Target,
    percentile,
    ratio,
)
from benchmarks.parts.plan import DEFAULT_SLOTS, LEAST, Plan
from benchmarks.processes import RunFailed, run, running
from benchmarks.progress import tell
from benchmarks.runs.tally import Tally
from benchmarks.sides import Side
from benchmarks.worker_drain import drained, wait_until

IDLE_SECONDS = 2.0
OUR = sides.WINDLASS.who
ENQUEUE, DRAIN, PICKUP = "enqueue, Postgres", "drain, Postgres", "pickup, Postgres"
ONE_BY_ONE, BULK = "one by one", "in bulk"
ONE, TWO = "1 worker process", "2 worker processes"
FEW = f"1 process, {DEFAULT_SLOTS} slots"
AMISS = "lost or repeated"
POINTS = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Row:
    """A measurement, and the target of windlass relative to a peer; `best` is the best peer."""

    part: str
    what: str
    unit: str
    at_least: dict[str, float]
    at_most: dict[str, float]


ROWS = (
    Row(ENQUEUE, ONE_BY_ONE, RATE, {"best": 1}, {}),
    Row(ENQUEUE, BULK, RATE, {"best": 2}, {}),
    Row(DRAIN, ONE, RATE, {"graphile-worker": 2, "pgqueuer": 3, "procrastinate": 60}, {}),
    Row(DRAIN, TWO, RATE, {"graphile-worker": 2, "pgqueuer": 2}, {}),
    Row(DRAIN, FEW, RATE, {}, {}),
    Row(DRAIN, AMISS, TASKS, {}, {}),
    Row(PICKUP, "p50", MILLISECONDS, {}, {"best": 1}),
    Row(PICKUP, "p95", MILLISECONDS, {}, {}),
    Row(PICKUP, "p99", MILLISECONDS, {}, {"best": 1}),
)
Found = dict[str, dict[str, list[float]]]  # values of each round by measurement and side


def measure(plan: Plan) -> Findings:
    """Run every side in turn, each round starting with another."""
    taking_part = sides.able(plan.without, lambda line: print(f"\n  {line}", file=sys.stderr))
    found: Found = {row.what: {side.who: [] for side in taking_part} for row in ROWS}
    with databases.started(plan.folder, plan.version) as server:
        for number in range(plan.rounds):
            turn = number % len(taking_part)
            for side in [*taking_part[turn:], *taking_part[:turn]]:
                tell(f"postgres … round {number + 1} of {plan.rounds}: {side.who}")
                for what, value in _round(side, plan, server.fresh, server.quiesce):
                    found[what][side.who].append(value)
        facts = server.described() | sides.versions(taking_part)
        facts["slots, Postgres"] = str(sides.WINDLASS.settings["slots"])
    findings = Findings(facts=facts)
    for row in ROWS:
        findings.extend(judged(row, found[row.what]))
    return findings


def _round(
    side: Side,
    plan: Plan,
    fresh: Callable[[Side], AbstractContextManager[str]],
    quiesce: Callable[[str], None],
) -> Iterator[tuple[str, float]]:
    sizes = plan.on_postgres
    with fresh(side) as url:
        quiesce(url)
        yield ONE_BY_ONE, run(side.program, "enqueue", url=url, number=sizes.enqueued, gap=0)["rate"]
        _stand(side, url, sizes.enqueued)
    with fresh(side) as url:
        quiesce(url)
        number = shared(sizes.bulk, side)
        yield BULK, run(side.program, "fill", url=url, number=number, at_once=side.at_once)["rate"]
        _stand(side, url, number)
    amiss = 0
    drains = [(ONE, side, 1), (TWO, side, 2)]
    if side is sides.WINDLASS:
        drains.append((FEW, replace(side, settings={"slots": DEFAULT_SLOTS}), 1))
    for what, worker, processes in drains:
        with fresh(side) as url:
            number = shared(sizes.drained, side)
            run(side.program, "fill", url=url, number=number, at_once=side.at_once)
            quiesce(url)
            result = drained(worker, url, number, folder=plan.folder, processes=processes)
            yield what, result.rate
            amiss += result.lost + result.repeated
    yield AMISS, amiss
    with fresh(side) as url:
        latencies = _picked_up(side, url, plan)
        yield from ((what, percentile(latencies, share) * 1000) for what, share in POINTS.items())


def shared(number: int, side: Side) -> int:
    """Return the side's share of a number of tasks."""
    return max(LEAST, round(number * side.share))


def _stand(side: Side, url: str, number: int) -> None:
    with side.counting(url) as count:
        if (standing := count(number)) != number:
            raise RunFailed(f"{side.who}: {number} tasks were enqueued, {standing} stand")


def _picked_up(side: Side, url: str, plan: Plan) -> list[float]:
    """Return the seconds from each enqueue call to the start of the handler in an idle worker."""
    path, number = plan.folder / "tally-pickup", plan.on_postgres.picked_up
    tally = Tally.made(path, number)
    options: dict[str, Any] = {"url": url, "number": number}
    with running(side.program, "work", tally=str(path), **options, **side.settings) as worker:
        worker.say("go")
        time.sleep(IDLE_SECONDS)
        sent = run(side.program, "enqueue", gap=plan.gap, **options)["sent"]
        wait_until(lambda: tally.count >= number, [worker], f"{side.who} picked up {number}")
        worker.say("stop")
        worker.answer()
    return [start - began for start, began in zip(tally.starts, sent, strict=True)]


def judged(row: Row, values: dict[str, list[float]]) -> Findings:
    """Return the figures of a row, the ratios of windlass to the others, and their targets."""
    findings = Findings()
    figures = {
        who: Figure(row.part, row.what, who, row.unit, tuple(each)) for who, each in values.items() if each
    }
    for figure in figures.values():
        findings.add(figure)
    ours = figures.pop(OUR, None)
    if ours is None:
        return findings
    if row.what == AMISS:
        findings.targets.append(Target("every task ran once", ours, at_most=0))
        return findings
    times = {who: findings.add(ratio(row.part, row.what, ours, theirs)) for who, theirs in figures.items()}
    if times:
        best = (max if row.unit == RATE else min)(figures.values(), key=lambda figure: figure.median)
        times["best"] = times[best.who]
    name = f"{row.part.partition(',')[0]}, {row.what}"
    bounds = [(who, {"at_least": bound}) for who, bound in row.at_least.items()]
    bounds += [(who, {"at_most": bound}) for who, bound in row.at_most.items()]
    for who, bound in bounds:
        if who in times:
            whom = times[who].who.rpartition(" : ")[2] + (" (best peer)" if who == "best" else "")
            findings.targets.append(Target(f"{name}, beside {whom}", times[who], **bound))
    return findings
