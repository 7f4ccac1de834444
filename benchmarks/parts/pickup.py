"""Part 3: from the call that enqueues to the start of the handler, on an idle worker; SQLite."""

from typing import Any

from benchmarks.figures import MILLISECONDS, PERCENT, Figure, Findings
from benchmarks.parts.plan import Plan, url
from benchmarks.processes import run, running

PART = "pickup, SQLite"
FAST, DEFAULT = 0.001, 0.1  # poll intervals of an idle Huey, in seconds


def measure(plan: Plan) -> Findings:
    """Run every variant in turn; two rounds suffice for a distribution of hundreds."""
    answers: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(min(plan.rounds, 2)):
        for variant, answer in _variants(plan, number):
            answers.setdefault(variant, []).append(answer)
    findings = Findings()
    for (what, who), several in answers.items():
        for key in ("p50", "p99"):
            values = tuple(answer[key] for answer in several)
            findings.add(Figure(PART, f"{what}, {key}", who, MILLISECONDS, values))
        if "idle" in several[0]:
            idle = tuple(answer["idle"] for answer in several)
            findings.add(Figure(PART, "processor while idle", who, PERCENT, idle))
    return findings


def _variants(plan: Plan, number: int) -> Any:
    sending = {"number": plan.picked_up, "gap": plan.gap}
    path = plan.path(f"pickup-windlass-{number}")
    yield ("same process", "windlass"), run("on_windlass", "pickup", url=url(path), **sending)
    path = plan.path(f"pickup-huey-{number}")
    yield ("same process", "huey, 1 ms"), run("on_huey", "pickup", path=str(path), delay=FAST, **sending)
    path = plan.path(f"pickup-windlass-across-{number}")
    with running("on_windlass", "serve", url=url(path), number=plan.picked_up) as worker:
        run("on_windlass", "send", url=url(path), **sending)
        yield ("two processes", "windlass"), worker.answer()
    for who, delay in (("huey, 1 ms", FAST), ("huey, default", DEFAULT)):
        path = plan.path(f"pickup-huey-across-{delay}-{number}")
        with running("on_huey", "serve", path=str(path), number=plan.picked_up, delay=delay) as worker:
            run("on_huey", "send", path=str(path), **sending)
            yield ("two processes", who), worker.answer()
