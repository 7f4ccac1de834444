"""Part 2: enqueueing on SQLite, one by one, in bulk, and by many callers at once; durable on return."""

from typing import Any

from benchmarks.figures import MILLISECONDS, RATE, Figure, Findings
from benchmarks.parts.plan import Plan, url
from benchmarks.processes import run

PART = "enqueue, SQLite"
CALLERS = 16


def measure(plan: Plan) -> Findings:
    """Run every variant in turn, round after round."""
    answers: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(plan.rounds):
        for way, answer in _ways(plan, number):
            answers.setdefault(way, []).append(answer)
    findings = Findings()
    for (what, who), several in answers.items():
        for key, unit, tail in (
            ("p50", MILLISECONDS, ", p50"),
            ("p99", MILLISECONDS, ", p99"),
            ("rate", RATE, ""),
        ):
            if key in several[0] and not (key == "rate" and "one" in what):
                values = tuple(answer[key] for answer in several)
                findings.add(Figure(PART, f"{what}{tail}", who, unit, values))
    return findings


def _ways(plan: Plan, number: int) -> Any:
    one = {"number": plan.enqueued}
    path = plan.path(f"enqueue-sync-{number}")
    yield ("one, blocking", "windlass"), run("on_windlass", "enqueue", url=url(path), **one)
    path = plan.path(f"enqueue-huey-{number}")
    yield ("one, blocking", "huey"), run("on_huey", "enqueue", path=str(path), **one)
    path = plan.path(f"enqueue-async-{number}")
    yield ("one, async", "windlass"), run("on_windlass", "aenqueue", url=url(path), callers=1, **one)
    path = plan.path(f"enqueue-many-{number}")
    calls = {"number": plan.enqueued * 4, "callers": CALLERS}
    yield (f"{CALLERS} callers", "windlass"), run("on_windlass", "aenqueue", url=url(path), **calls)
    path = plan.path(f"enqueue-bulk-{number}")
    yield ("bulk of 1,000", "windlass"), run("on_windlass", "preload", url=url(path), number=plan.bulk)
