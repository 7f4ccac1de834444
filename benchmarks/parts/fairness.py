"""The cost of fairness and limits on Postgres: drains by one worker process, compared with a plain queue.

Each variant has more tasks than are timed, so that the worker is still busy at the last start that counts.
A variant's rate is measured from its first start to the last that counts.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import databases
from benchmarks.databases import Databases
from benchmarks.figures import RATE, TASKS, Figure, Findings, Target, ratio
from benchmarks.parts.plan import Plan
from benchmarks.processes import run, running
from benchmarks.progress import tell
from benchmarks.runs.tally import Tally
from benchmarks.sides import WINDLASS
from benchmarks.worker_drain import wait_until

PART = "fairness, Postgres"
PROGRAM = "on_windlass_fair"
DRAIN, BULK = "drain, 1 worker process", "enqueue in bulk"
SLOTS = WINDLASS.settings["slots"]
SPARE = 3 * SLOTS  # tasks beyond those that count
AT_ONCE = 250_000  # tasks that one process enqueues
MANY, VERY_MANY = 1_000, 10_000

ROUND_ROBIN = {"fairness": "round_robin"}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The settings of the queue, the tasks in it, and its target relative to the plain queue."""

    who: str
    queues: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    filled: dict[str, Any] = field(default_factory=dict)  # options of `fill`
    before: tuple[dict[str, Any], ...] = ()  # other tasks in the store, as options of `fill`
    big: int = 0  # tasks of one tenant, in a store that is filled once and then copied
    at_least: float | None = None


def variants(big: int) -> list[Variant]:
    """Return the plain queue and the variants that are compared with it."""
    default = {"default": ROUND_ROBIN}
    return [
        Variant(who="plain"),
        Variant(
            who="1,000 tenants",
            queues=default,
            filled={"tenants": MANY},
            at_least=0.6,
        ),
        Variant(
            who=f"10,000 tenants, one {big:,}",
            queues=default,
            filled={"tenants": VERY_MANY},
            big=big,
            at_least=0.5,
        ),
        Variant(
            who="plain beside others",
            queues={"fair": ROUND_ROBIN, "shared": {"shares": {"low": 10}}},
            limits={
                "few": {"queue": "limited", "running": 5},
                "each": {"queue": "limited", "by": "key", "running": 1},
            },
            before=(
                {"queue": "fair", "tenants": MANY, "number": 2 * MANY},
                {"queue": "limited", "keys": MANY, "number": 2 * MANY},
            ),
            at_least=0.97,
        ),
        Variant(
            who="by lot, 1,000 tenants", queues={"default": {"fairness": "random"}}, filled={"tenants": MANY}
        ),
        Variant(
            who="shares of levels",
            queues={"default": {"shares": {"medium": 30, "low": 10}}},
            filled={"levels": True},
        ),
        Variant(who="a cap of 10,000", limits={"all": {"queue": "default", "running": 10_000}}),
        Variant(
            who="a cap each, 1,000 keys",
            limits={"each": {"queue": "default", "by": "key", "running": 10}},
            filled={"keys": MANY},
        ),
    ]


def measure(plan: Plan) -> Findings:
    """Run all variants in turn, round after round, each in a new database."""
    compared = variants(plan.on_postgres.beside)
    drains: dict[str, list[float]] = {}
    bulks: dict[str, list[float]] = {}
    repeated: list[float] = []
    with databases.started(plan.folder, plan.version) as server, ExitStack() as stack:
        models = {one.who: stack.enter_context(_model(server, one, plan)) for one in compared if one.big}
        for turn in range(plan.rounds):
            for variant in compared:
                with _loaded(server, variant, plan, models.get(variant.who)) as (url, bulk):
                    server.quiesce(url)
                    rate, twice = _drained(url, plan)
                drains.setdefault(variant.who, []).append(rate)
                repeated.append(twice)
                if bulk:
                    bulks.setdefault(variant.who, []).append(bulk)
                tell(f"fairness … round {turn + 1}, {variant.who}: {rate:,.0f} /s")
        findings = Findings(facts=server.described())
    compare(findings, PART, DRAIN, drains, {one.who: one.at_least for one in compared})
    compare(findings, PART, BULK, bulks, {})
    findings.targets.append(
        Target("no task ran twice", Figure(PART, DRAIN, "ran twice", TASKS, tuple(repeated)), at_most=0)
    )
    return findings


def compare(
    findings: Findings,
    part: str,
    what: str,
    rates: dict[str, list[float]],
    bounds: dict[str, float | None],
    where: str = "",
) -> None:
    """Return the rates, the ratio of each to the first, and the targets; `where` ends their names."""
    figures = [Figure(part, what, who, RATE, tuple(values)) for who, values in rates.items()]
    first = findings.add(figures[0])
    for figure in figures[1:]:
        findings.add(figure)
        times = findings.add(ratio(part, what, figure, first))
        if (bound := bounds.get(figure.who)) is not None:
            findings.targets.append(Target(f"{figure.who}, beside {first.who}{where}", times, at_least=bound))


# -- loading -----------------------------------------------------------------------------------------


@contextmanager
def _model(server: Databases, variant: Variant, plan: Plan) -> Iterator[str]:
    """Fill a large store once, to be copied for each run."""
    with server.fresh(WINDLASS) as url:
        run(PROGRAM, "put", url=url, queues=variant.queues, limits=variant.limits)
        beyond = _timed(plan) + SPARE  # the numbers of the other tasks come first
        for first in range(0, variant.big, AT_ONCE):
            number = min(AT_ONCE, variant.big - first)
            run(PROGRAM, "fill", url=url, number=number, first=beyond + first, tenant="big")
        run(PROGRAM, "fill", url=url, number=beyond, **variant.filled)
        server.quiesce(url)
        yield url


@contextmanager
def _loaded(
    server: Databases, variant: Variant, plan: Plan, model: str | None
) -> Iterator[tuple[str, float]]:
    """Yield a store with the variant's tasks, and how many were enqueued per second; 0 for a copy."""
    if model is not None:
        with server.copied(model) as url:
            yield url, 0.0
        return
    with server.fresh(WINDLASS) as url:
        run(PROGRAM, "put", url=url, queues=variant.queues, limits=variant.limits)
        for beside in variant.before:
            run(PROGRAM, "fill", url=url, **beside)
        number = _timed(plan) + SPARE
        yield url, run(PROGRAM, "fill", url=url, number=number, **variant.filled)["rate"]


def _timed(plan: Plan) -> int:
    return plan.on_postgres.drained


# -- working -----------------------------------------------------------------------------------------


def _drained(url: str, plan: Plan) -> tuple[float, int]:
    """Return how many tasks one process started per second, and how many of them it started twice."""
    number = _timed(plan)
    crew = Crew(folder=plan.folder, processes=1, slots=SLOTS, queues=("default",))
    tallies = crew.work(url, number, number + SPARE + plan.on_postgres.beside)
    return rate_of(tallies, 0, number), sum(runs > 1 for tally in tallies for runs in tally.runs)


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Worker processes with the same settings."""

    folder: Path
    processes: int
    slots: int
    queues: tuple[str, ...]

    def work(self, url: str, number: int, below: int) -> list[Tally]:
        """Run workers until `number` tasks have started; all tasks have numbers below `below`."""
        with ExitStack() as stack:
            crew, tallies = [], []
            for worker in range(self.processes):
                path = self.folder / f"tally-{worker}"
                tallies.append(Tally.made(path, below))
                options = {"number": below, "tally": str(path), "slots": self.slots, "queues": self.queues}
                crew.append(stack.enter_context(running(PROGRAM, "work", url=url, **options)))
            for member in crew:
                member.say("go")
            wait_until(lambda: sum(tally.count for tally in tallies) >= number, crew, f"{number} had started")
            for member in crew:
                member.say("stop")
            for member in crew:
                member.answer()
        return tallies


def rate_of(tallies: list[Tally], first: int, last: int) -> float:
    """Return the starts per second between the starts number `first` and `last`."""
    starts = sorted(start for tally in tallies for start in tally.starts if start)
    return (last - 1 - first) / (starts[last - 1] - starts[first])
