"""The cost of fairness and limits on Redis: drains by one worker process, compared with a plain queue."""

from benchmarks.figures import TASKS, Figure, Findings, Target
from benchmarks.parts.fairness import MANY, PROGRAM, ROUND_ROBIN, Crew, Variant, compare, rate_of
from benchmarks.parts.plan import Plan
from benchmarks.parts.redis.sides import SLOTS, SYNCS, described, empty, started
from benchmarks.processes import run
from benchmarks.progress import tell

DRAIN = "drain, 1 worker process"
SPARE = 3 * SLOTS  # tasks beyond those that count: the worker is still busy at the last start that counts
AT_ONCE = 1_000  # tasks of a batch, which is one script
AT_LEAST = 0.7
VARIANTS = (
    Variant(who="plain"),
    Variant(
        who="1,000 tenants", queues={"default": ROUND_ROBIN}, filled={"tenants": MANY}, at_least=AT_LEAST
    ),
    Variant(
        who="a cap of 10,000", limits={"all": {"queue": "default", "running": 10_000}}, at_least=AT_LEAST
    ),
    Variant(
        who="a cap each, 1,000 keys",
        limits={"each": {"queue": "default", "by": "key", "running": 10}},
        filled={"keys": MANY},
        at_least=AT_LEAST,
    ),
)


def measure(plan: Plan) -> Findings:
    """Run all variants in turn, round after round, each on an empty server."""
    findings = Findings()
    for sync, settings in SYNCS.items():
        part = f"fairness, Redis {sync}"
        rates: dict[str, list[float]] = {}
        repeated: list[float] = []
        with started(plan.folder, settings) as (url, client):
            findings.facts |= described(client)
            for turn in range(plan.rounds):
                for variant in VARIANTS:
                    empty(client)
                    rate, twice = _drained(url, variant, plan)
                    rates.setdefault(variant.who, []).append(rate)
                    repeated.append(twice)
                    tell(f"fairness on Redis … round {turn + 1}, {variant.who}: {rate:,.0f} /s")
        bounds = {variant.who: variant.at_least for variant in VARIANTS}
        compare(findings, part, DRAIN, rates, bounds, f" on Redis {sync}")
        twice_run = Figure(part, DRAIN, "ran twice", TASKS, tuple(repeated))
        findings.targets.append(Target(f"no task ran twice on Redis {sync}", twice_run, at_most=0))
    return findings


def _drained(url: str, variant: Variant, plan: Plan) -> tuple[float, int]:
    """Return how many tasks one process started per second, and how many of them it started twice."""
    number = plan.drained
    run(PROGRAM, "put", url=url, queues=variant.queues, limits=variant.limits)
    run(PROGRAM, "fill", url=url, number=number + SPARE, at_once=AT_ONCE, **variant.filled)
    crew = Crew(folder=plan.folder, processes=1, slots=SLOTS, queues=("default",))
    tallies = crew.work(url, number, number + SPARE)
    return rate_of(tallies, 0, number), sum(runs > 1 for tally in tallies for runs in tally.runs)
