"""Growth on Postgres, windlass alone: beside and after millions of tasks, with vacuum held back; memory."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

import psycopg

from benchmarks import databases
from benchmarks.databases import Databases
from benchmarks.figures import MEGABYTES, RATE, TIMES, Figure, Findings, Target, ratio
from benchmarks.parts.plan import LEAST, Plan
from benchmarks.processes import RunFailed, run, running
from benchmarks.progress import tell
from benchmarks.runs.tally import Tally, amiss
from benchmarks.sides import WINDLASS
from benchmarks.worker_drain import drained, wait_until

PART = "growth, Postgres"
MONTH_SECONDS = 30 * 86_400
ENDS = 3  # windows at each end of a series whose medians are compared
STEPS = 10  # windows that a shorter series is cut into
SAMPLES = 20
BESIDE, CHURNED, PINNED, MEMORY = 0.8, 0.8, 0.5, 1.1


def measure(plan: Plan) -> Findings:
    """Run all on one server, each run in its own database."""
    findings = Findings()
    with databases.started(plan.folder, plan.version) as server:
        for part in (_beside, _churned, _pinned, _aged):
            findings.extend(part(plan, server))
        findings.facts |= server.described()
    return findings


def _beside(plan: Plan, server: Databases) -> Findings:
    """Drain an empty store and one with scheduled, finished and another queue's tasks, in turn."""
    sizes, empty, full = plan.on_postgres, [], []
    with server.fresh(WINDLASS) as crowded:
        _fill(crowded, sizes.beside, "scheduled", queue="later", delay=MONTH_SECONDS)
        _fill(crowded, sizes.beside, "ready in another queue", queue="other")
        list(_windows(crowded, sizes.beside, sizes.window, plan.folder, "finished"))
        server.quiesce(crowded)
        for _ in range(plan.rounds):
            with server.fresh(WINDLASS) as url:
                empty += _windows(url, sizes.drained, sizes.drained, plan.folder, "on an empty store")
            full += _windows(crowded, sizes.drained, sizes.drained, plan.folder, "beside")
    findings = Findings()
    alone = findings.add(Figure(PART, "drain, empty store", "windlass", RATE, tuple(empty)))
    what = f"drain, beside 3 x {sizes.beside:,}"
    beside = findings.add(Figure(PART, what, "windlass", RATE, tuple(full)))
    times = ratio(PART, what, beside, alone)
    findings.add(Figure(PART, what, "beside : empty", TIMES, times.values))
    findings.targets.append(Target(f"{what}, to empty", times, at_least=BESIDE))
    return findings


def _churned(plan: Plan, server: Databases) -> Findings:
    """Enqueue and drain, again and again, in one database."""
    sizes = plan.on_postgres
    with server.fresh(WINDLASS) as url:
        rates = tuple(_windows(url, sizes.churned, sizes.window, plan.folder, "churned"))
    what = f"churning {sizes.churned:,}"
    figure = Figure(PART, what, "windlass", RATE, rates, along=f"windows of {sizes.window:,} tasks")
    return _compared(figure, rates[:ENDS], "end : start", at_least=CHURNED)


def _pinned(plan: Plan, server: Databases) -> Findings:
    """The same while an idle transaction holds back vacuum."""
    number = plan.on_postgres.pinned
    window = max(LEAST, number // STEPS)
    with server.fresh(WINDLASS) as url:
        free = list(_windows(url, ENDS * window, window, plan.folder, "before the idle transaction"))
        with _idle_transaction(url):
            pinned = tuple(_windows(url, number, window, plan.folder, "beside an idle transaction"))
    what = f"idle transaction, {number:,}"
    figure = Figure(PART, what, "windlass", RATE, pinned, along=f"windows of {window:,} tasks")
    return _compared(figure, free, "pinned : free", at_least=PINNED)


def _aged(plan: Plan, server: Databases) -> Findings:
    """Sample the private memory of one worker process over many tasks."""
    number = plan.on_postgres.aged
    window = max(LEAST, number // SAMPLES)
    path, sampled = plan.folder / "tally-aged", []
    tally = Tally.made(path, window)
    options = {"number": window, "tally": str(path), **WINDLASS.settings}
    with server.fresh(WINDLASS) as url, running(WINDLASS.program, "work", url=url, **options) as worker:
        worker.say("go")
        for turn in range(1, SAMPLES + 1):
            run(WINDLASS.program, "fill", url=url, number=window, at_once=WINDLASS.at_once)
            wait_until(lambda enough=turn * window: tally.count >= enough, [worker], "the window had run")
            sampled.append(_own_megabytes(worker.pid))
            tell(f"growth … through one worker: {turn * window:,} of {number:,}")
        worker.say("stop")
        worker.answer()
    if any(amiss([tally], SAMPLES)):
        raise RunFailed(f"lost and repeated: {amiss([tally], SAMPLES)}")
    what, along = f"memory over {number:,}", f"windows of {window:,} tasks"
    figure = Figure(PART, what, "windlass", MEGABYTES, tuple(sampled), along=along)
    return _compared(figure, sampled[1 : 1 + ENDS], "end : start", at_most=MEMORY)


def _windows(url: str, number: int, window: int, folder: Path, what: str) -> Iterator[float]:
    """Enqueue and drain window by window; return the rate of each drain."""
    for done in range(0, number, window):
        run(WINDLASS.program, "fill", url=url, number=window, at_once=WINDLASS.at_once)
        result = drained(WINDLASS, url, window, folder=folder)
        if result.lost or result.repeated:
            raise RunFailed(f"{what}: {result.lost} lost, {result.repeated} repeated")
        tell(f"growth … {what}: {done + window:,} of {number:,}")
        yield result.rate


def _fill(url: str, number: int, what: str, **options: object) -> None:
    """Enqueue this many tasks and leave them."""
    some = max(LEAST, number // STEPS)
    for done in range(0, number, some):
        run(WINDLASS.program, "fill", url=url, number=some, at_once=WINDLASS.at_once, **options)
        tell(f"growth … {what}: {done + some:,} of {number:,}")


@contextmanager
def _idle_transaction(url: str) -> Iterator[None]:
    """Keep a transaction with a snapshot open for the duration of the block."""
    with closing(psycopg.connect(url)) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT pg_current_snapshot()")
        yield


def _compared(figure: Figure, base: Sequence[float], who: str, **bound: float) -> Findings:
    """Divide the end of a series by its start."""
    times = Figure(PART, figure.what, who, TIMES, (median(figure.values[-ENDS:]) / median(base),))
    return Findings([figure, times], [Target(f"{figure.what}, {who}", times, **bound)])


def _own_megabytes(pid: int) -> float:
    """Return the resident memory without mapped files, since the tally is one."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1000
