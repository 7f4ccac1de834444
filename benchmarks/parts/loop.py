"""Part 4: the overhead of the worker on the memory store, compared with a bare asyncio task."""

from benchmarks.figures import MICROSECONDS, Figure, Findings, Target, ratio
from benchmarks.parts.plan import Plan
from benchmarks.processes import run

PART = "worker loop, memory"
AT_MOST = 4.0


def measure(plan: Plan) -> Findings:
    """Run both in one process, one round after another."""
    answers = [run("on_windlass", "loop", number=plan.looped, slots=plan.slots) for _ in range(plan.rounds)]
    findings = Findings()
    ours, bare = (
        findings.add(Figure(PART, what, who, MICROSECONDS, tuple(answer[key] for answer in answers)))
        for key, what, who in (
            ("windlass", "claim, run, settle, record", "windlass"),
            ("bare", "create_task and await", "asyncio"),
        )
    )
    times = findings.add(ratio(PART, "time a task", ours, bare))
    findings.targets.append(Target("worker loop beside asyncio", times, at_most=AT_MOST))
    return findings
