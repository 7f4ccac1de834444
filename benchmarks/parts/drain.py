"""Part 1: one worker process drains a full queue on SQLite, durably; windlass compared with Huey."""

from typing import Any

from benchmarks.figures import MICROSECONDS, RATE, Figure, Findings, Target, ratio
from benchmarks.parts.plan import DEFAULT_SLOTS, Plan, url
from benchmarks.processes import run

PART = "drain, SQLite"
AT_LEAST = 10.0


def measure(plan: Plan) -> Findings:
    """Run each in turn, round after round."""
    ours, few, theirs, recorded = [], [], [], []
    for number in range(plan.rounds):
        ours.append(_drained(plan, f"drain-windlass-{number}", plan.slots))
        few.append(_drained(plan, f"drain-windlass-few-{number}", DEFAULT_SLOTS)["rate"])
        path = plan.path(f"drain-huey-{number}")
        run("on_huey", "preload", path=str(path), number=plan.drained)
        theirs.append(run("on_huey", "drain", path=str(path), number=plan.drained))
        path = plan.path(f"drain-huey-results-{number}")
        fewer = plan.drained // 4  # it is slow, and only for orientation
        run("on_huey", "preload", path=str(path), number=fewer)
        recorded.append(run("on_huey", "drain", path=str(path), number=fewer, results=True))
    findings = Findings(facts={"slots, SQLite": str(plan.slots)})
    rates = []
    for who, answers in (("windlass", ours), ("huey", theirs), ("huey, results kept", recorded)):
        values = tuple(answer["rate"] for answer in answers)
        rates.append(findings.add(Figure(PART, "tasks, 1 worker process", who, RATE, values)))
        values = tuple(answer["processor"] for answer in answers)
        findings.add(Figure(PART, "processor time a task", who, MICROSECONDS, values))
    findings.add(Figure(PART, f"tasks, 1 process, {DEFAULT_SLOTS} slots", "windlass", RATE, tuple(few)))
    times = findings.add(ratio(PART, "tasks a second", rates[0], rates[1]))
    findings.add(ratio(PART, "tasks a second", rates[0], rates[2]))
    findings.targets.append(Target("drain beside Huey", times, at_least=AT_LEAST))
    return findings


def _drained(plan: Plan, name: str, slots: int) -> dict[str, Any]:
    """Drain a new store with a worker of this many slots."""
    path = plan.path(name)
    run("on_windlass", "preload", url=url(path), number=plan.drained)
    return run("on_windlass", "drain", url=url(path), number=plan.drained, slots=slots)
