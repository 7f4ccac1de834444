"""Part 1: one worker process works off a full queue on SQLite, durably; windlass beside Huey."""

from benchmarks.figures import MICROSECONDS, RATE, Figure, Findings, Target, ratio
from benchmarks.parts.plan import Plan, url
from benchmarks.processes import run

PART = "drain, SQLite"
AT_LEAST = 10.0


def measure(plan: Plan) -> Findings:
    """Rounds of both, in turn."""
    ours, theirs = [], []
    for number in range(plan.rounds):
        path = plan.path(f"drain-windlass-{number}")
        run("on_windlass", "preload", url=url(path), number=plan.drained)
        ours.append(run("on_windlass", "drain", url=url(path), number=plan.drained, slots=plan.slots))
        path = plan.path(f"drain-huey-{number}")
        run("on_huey", "preload", path=str(path), number=plan.drained)
        theirs.append(run("on_huey", "drain", path=str(path), number=plan.drained))
    findings = Findings()
    rates = []
    for who, answers in (("windlass", ours), ("huey", theirs)):
        values = tuple(answer["rate"] for answer in answers)
        rates.append(findings.add(Figure(PART, f"{plan.drained:,} tasks, 1 process", who, RATE, values)))
        values = tuple(answer["processor"] for answer in answers)
        findings.add(Figure(PART, "processor time a task", who, MICROSECONDS, values))
    times = findings.add(ratio(PART, "tasks a second", *rates))
    findings.targets.append(Target("drain beside Huey", times, at_least=AT_LEAST))
    return findings
