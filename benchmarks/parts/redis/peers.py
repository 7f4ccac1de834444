"""Comparison with other queues on Redis: drain, enqueue and pickup, synced every second and at every write.

Sides take turns, each run on an empty server. Of the peers only BullMQ keeps a record of an ended task.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.figures import MICROSECONDS, MILLISECONDS, RATE, Findings
from benchmarks.parts.plan import DEFAULT_SLOTS, LEAST, Plan
from benchmarks.parts.postgres import Row, judged
from benchmarks.parts.redis.sides import SLOTS, SYNCS, WINDLASS, Side, able, described, empty, started
from benchmarks.processes import RunFailed, run, running
from benchmarks.progress import tell

ONE, TWO = "1 worker process", "2 worker processes"
FEW = f"1 process, {DEFAULT_SLOTS} slots"
PROCESSOR = "processor time a task"
BULK, BLOCKING, ASYNC = "bulk of 1,000", "one, blocking", "one, async"
P50, P99 = "two processes, p50", "two processes, p99"

Found = dict[str, dict[str, list[float]]]  # values of each round by measurement and side


def rows(sync: str) -> tuple[Row, ...]:
    """Return what is measured, with the targets."""
    drain, enqueue, pickup = (f"{part} on Redis {sync}" for part in ("drain", "enqueue", "pickup"))
    return (
        Row(drain, ONE, RATE, {"bullmq": 3, "huey": 6}, {}),
        Row(drain, TWO, RATE, {"bullmq": 3, "huey": 6}, {}),
        Row(drain, FEW, RATE, {}, {}),
        Row(drain, PROCESSOR, MICROSECONDS, {}, {}),
        Row(enqueue, BULK, RATE, {"best": 3}, {}),
        Row(enqueue, BLOCKING, RATE, {"best": 1}, {}),
        Row(enqueue, ASYNC, RATE, {"best": 1}, {}),
        Row(pickup, P50, MILLISECONDS, {}, {"best": 1}),
        Row(pickup, P99, MILLISECONDS, {}, {}),
    )


def measure(plan: Plan) -> Findings:
    """Run every side in turn, round after round, on a server of each kind."""
    taking_part = able(plan.without)
    findings = Findings(facts={"slots, Redis": str(SLOTS)})
    for sync, settings in SYNCS.items():
        measured = rows(sync)
        found: Found = {row.what: {} for row in measured}
        with started(plan.folder, settings) as (url, client):
            findings.facts |= described(client)
            for number in range(plan.rounds):
                for side in taking_part:
                    tell(f"redis … {sync}, round {number + 1} of {plan.rounds}: {side.who}")
                    for what, value in _round(side, plan, url, client):
                        found[what].setdefault(side.who, []).append(value)
        for row in measured:
            findings.extend(judged(row, found[row.what]))
    return findings


def _round(side: Side, plan: Plan, url: str, client: object) -> Iterator[tuple[str, float]]:
    where = side.at(url)
    number = max(LEAST, round(plan.drained * side.share))
    empty(client)
    filled = run(side.program, "preload", **where, number=number)
    if side.has_bulk:
        yield BULK, filled["rate"]
    drained = run(side.program, "drain", **where, number=number, **side.busy)
    yield ONE, drained["rate"]
    yield PROCESSOR, drained["processor"]
    empty(client)
    run(side.program, "preload", **where, number=number)
    yield TWO, _shared(side, url, number)
    if side is WINDLASS:
        empty(client)
        run(side.program, "preload", **where, number=number)
        yield FEW, run(side.program, "drain", **where, number=number, slots=DEFAULT_SLOTS)["rate"]
    empty(client)
    if side is WINDLASS or not side.is_async:
        yield BLOCKING, run(side.program, "enqueue", **where, number=plan.enqueued)["rate"]
        empty(client)
    if side is WINDLASS:
        yield ASYNC, run(side.program, "aenqueue", **where, number=plan.enqueued, callers=1)["rate"]
    elif side.is_async:
        yield ASYNC, run(side.program, "enqueue", **where, number=plan.enqueued)["rate"]
    empty(client)
    with running(side.program, "serve", **where, number=plan.picked_up, **side.idle) as worker:
        run(side.program, "send", **where, number=plan.picked_up, gap=plan.gap)
        seen = worker.answer()
    yield P50, seen["p50"]
    yield P99, seen["p99"]


def _shared(side: Side, url: str, number: int, processes: int = 2) -> float:
    """Return the rate of several worker processes, from their common start to the last end."""
    where = side.at(url)
    with ExitStack() as stack:
        crew = [
            stack.enter_context(running(side.program, "share", **where, **side.busy))
            for _ in range(processes)
        ]
        for worker in crew:
            worker.say("go")
        answers = [worker.answer() for worker in crew]
    runs = [n for answer in answers for n in answer["seen"]]
    if len(runs) < number or sorted(set(runs)) != list(range(number)):
        raise RunFailed(f"{side.who}: {len(runs)} runs of {len(set(runs))} tasks, not {number}")
    if side is WINDLASS:
        if len(runs) > number:
            raise RunFailed(f"{len(runs) - number} of {number} tasks ran again")
        run(side.program, "recorded", **where, number=number)
    return number / (max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers))
