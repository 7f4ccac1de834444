"""Part 5, for orientation: handlers in threads and in child processes, and the worker's memory over time."""

from typing import Any

from benchmarks.figures import MEGABYTES, RATE, Figure, Findings
from benchmarks.parts.plan import Plan, url
from benchmarks.processes import run

PART = "other handlers, SQLite"
MEMORY = "worker memory, SQLite"


def measure(plan: Plan) -> Findings:
    """Run a few rounds of each variant in turn, and the long one once."""
    rounds = min(plan.rounds, 3)
    rates: dict[str, list[float]] = {"thread": [], "process": []}
    for number in range(rounds):
        for kind, many in (("thread", plan.threaded), ("process", plan.in_processes)):
            rates[kind].append(_drained(plan, f"{kind}-{number}", many, kind)["rate"])
    findings = Findings()
    findings.add(Figure(PART, "blocking, in threads", "windlass", RATE, tuple(rates["thread"])))
    findings.add(Figure(PART, "in child processes", "windlass", RATE, tuple(rates["process"])))
    aged = _drained(plan, "aged", plan.aged, "loop")
    findings.add(Figure(MEMORY, "before", "windlass", MEGABYTES, (aged["before"],)))
    findings.add(Figure(MEMORY, f"after {plan.aged:,} tasks", "windlass", MEGABYTES, (aged["after"],)))
    return findings


def _drained(plan: Plan, name: str, number: int, kind: str) -> dict[str, Any]:
    path = plan.path(f"rates-{name}")
    run("on_windlass", "preload", url=url(path), number=number, kind=kind)
    return run("on_windlass", "drain", url=url(path), number=number, slots=plan.slots, kind=kind)
