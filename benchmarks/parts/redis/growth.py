"""A store with a million scheduled and a million dead tasks on Redis: its drain, and its slowest scripts.

A script's duration is what the server's SLOWLOG says, so it includes the time in which another process had
the processor.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from benchmarks import sides
from benchmarks.figures import MILLISECONDS, RATE, Figure, Findings, Target, ratio
from benchmarks.parts.growth import MONTH_SECONDS
from benchmarks.parts.plan import LEAST, Plan
from benchmarks.parts.redis.sides import SLOTS, described, empty, started
from benchmarks.processes import RunFailed, run
from benchmarks.progress import tell
from benchmarks.worker_drain import drained

PROGRAM = "on_windlass_crowd"
WINDLASS = replace(sides.WINDLASS, settings={"slots": SLOTS}, at_once=1_000)
PART, SCRIPTS = "growth, Redis everysec", "slowest script, Redis everysec"
SOME = 100_000  # tasks that one process enqueues
BESIDE, LONGEST_MS = 0.9, 5.0
OPERATIONS = (
    *("enqueue 1", "enqueue 250", "enqueue 1,000", "settle 250, claim 250"),
    *("promote", "rescue", "find", "count", "replay", "cancel", "discard", "prune"),
)


def measure(plan: Plan) -> Findings:
    """Fill one server, drain there and on an empty one in turn, then time the scripts."""
    number = plan.on_postgres.beside
    with ExitStack() as stack:
        empty_url, empty_client = stack.enter_context(started(plan.folder))
        url, client = stack.enter_context(started(plan.folder))
        _crowd(url, client, number)
        alone, beside = [], []
        for _ in range(plan.rounds):
            empty(empty_client)
            alone.append(_drained(empty_url, plan))
            beside.append(_drained(url, plan))
        slowest = {what: list(_slowest(url, client, what, plan.rounds)) for what in OPERATIONS}
        findings = Findings(facts=described(client))
    what = f"drain, beside 2 x {number:,}"
    crowded = findings.add(Figure(PART, what, "windlass", RATE, tuple(beside)))
    plain = findings.add(Figure(PART, "drain, empty store", "windlass", RATE, tuple(alone)))
    times = findings.add(replace(ratio(PART, what, crowded, plain), who="beside : empty"))
    findings.targets.append(Target(f"{what} on Redis, to empty", times, at_least=BESIDE))
    for operation, values in slowest.items():
        longest = findings.add(Figure(SCRIPTS, operation, "windlass", MILLISECONDS, tuple(values)))
        findings.targets.append(Target(f"slowest script on Redis, {operation}", longest, at_most=LONGEST_MS))
    return findings


def _crowd(url: str, client: Any, number: int) -> None:
    """Fill the store, and wait until the server has rewritten its append-only file."""
    some = max(LEAST, min(SOME, number))
    for done in range(0, number, some):
        later = {"queue": "later", "delay": MONTH_SECONDS}
        run(WINDLASS.program, "fill", url=url, number=some, at_once=WINDLASS.at_once, **later)
        run(PROGRAM, "bury", url=url, number=some)
        tell(f"growth on Redis … {done + some:,} of {number:,}")
    while client.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(0.1)


def _drained(url: str, plan: Plan) -> float:
    run(WINDLASS.program, "fill", url=url, number=plan.drained, at_once=WINDLASS.at_once)
    result = drained(WINDLASS, url, plan.drained, folder=plan.folder)
    if result.lost or result.repeated:
        raise RunFailed(f"{result.lost} lost, {result.repeated} repeated")
    return result.rate


def _slowest(url: str, client: Any, what: str, rounds: int) -> Iterator[float]:
    """Return the milliseconds of the slowest script of each round."""
    client.config_set("slowlog-log-slower-than", 100)
    client.config_set("slowlog-max-len", 10_000)
    for _ in range(rounds):
        client.slowlog_reset()
        run(PROGRAM, "do", url=url, what=what)
        scripts = [one for one in client.slowlog_get(10_000) if one["command"].startswith(b"EVAL")]
        yield max((one["duration"] for one in scripts), default=0) / 1000
