"""Tasks without a limit, while other tasks of the store are at their limit: on Postgres, in 8 processes.

The same tasks and workers: alone; with a queue whose tasks wait for permits that are never returned; with a
queue whose tasks start and end; and in one queue with the waiting tasks. The first tenth is not counted,
because the processes do not start at the same time.
"""

from dataclasses import dataclass

from benchmarks import databases
from benchmarks.databases import Databases
from benchmarks.figures import Findings
from benchmarks.parts.fairness import PROGRAM, Crew, compare, rate_of
from benchmarks.parts.plan import Plan
from benchmarks.processes import run
from benchmarks.progress import tell
from benchmarks.sides import WINDLASS

PART = "beside limits, Postgres"
WHAT = "8 worker processes"
PROCESSES, SLOTS = 8, 32
SPARE = 3 * PROCESSES * SLOTS
CAPS = (1, 2, 3, 4, 5)
KEYS = 4  # per cap
WAITING = 10_000  # tasks that are at their limit, or reach it


@dataclass(frozen=True)
class Variant:
    """The other tasks of the store, their queue, and the target."""

    who: str
    type: str = ""
    queue: str = ""
    at_least: float | None = None


VARIANTS = (
    Variant("alone"),
    Variant("beside a blocked queue", "hold", "capped", at_least=0.8),
    Variant("beside a busy capped queue", "linger", "capped"),
    Variant("in one queue with the blocked", "hold", "default"),
)


def measure(plan: Plan) -> Findings:
    """Run all variants in turn, round after round, each in a new database."""
    rates: dict[str, list[float]] = {}
    with databases.started(plan.folder, plan.version) as server:
        for turn in range(plan.rounds):
            for variant in VARIANTS:
                rate = _measured(server, variant, plan)
                rates.setdefault(variant.who, []).append(rate)
                tell(f"beside … round {turn + 1}, {variant.who}: {rate:,.0f} /s")
        findings = Findings(facts=server.described())
    compare(findings, PART, WHAT, rates, {variant.who: variant.at_least for variant in VARIANTS})
    return findings


def _measured(server: Databases, variant: Variant, plan: Plan) -> float:
    number = plan.on_postgres.drained
    crew = Crew(folder=plan.folder, processes=PROCESSES, slots=SLOTS, queues=("default", "capped"))
    with server.fresh(WINDLASS) as url:
        if variant.type:
            _cap(url, variant, max(1, min(WAITING, number)))
        run(PROGRAM, "fill", url=url, number=number + SPARE)
        server.quiesce(url)
        tallies = crew.work(url, number, number + SPARE)
        return rate_of(tallies, number // 10, number)


def _cap(url: str, variant: Variant, waiting: int) -> None:
    """Return twenty keys with caps of 1 to 5, a tenant for each cap."""
    limits = {
        f"cap-{cap}": {"type": variant.type, "tenant": f"t{number}", "by": "key", "running": cap}
        for number, cap in enumerate(CAPS)
    }
    if variant.queue != "default":
        limits = {name: {**options, "queue": variant.queue} for name, options in limits.items()}
    run(PROGRAM, "put", url=url, queues={}, limits=limits)
    options = {"type": variant.type, "queue": variant.queue, "tenants": len(CAPS), "keys": len(CAPS) * KEYS}
    run(PROGRAM, "fill", url=url, number=waiting, **options)
