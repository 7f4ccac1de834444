"""Work under limits, and whether they held: by the diaries of the runs, and by what was seen in the store."""

import asyncio
import json
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
from msgspec import Struct

from tests.system import program
from tests.system.checker import LOST_WORKER, SECOND, Report, Violation, check
from tests.system.fleet import Fleet
from tests.system.history import History, Run
from tests.system.program import CAPS
from windlass import Task
from windlass._model.attempt import Attempt

ACCOUNTS = 4  # of each cap, so there are 20 keys
EVERY = 0.005
RATE, BURST = 50.0, 20
ROUNDING = 1e-3  # of a token: instants are whole microseconds

Key = tuple[str, str]  # a type and an account


def keys() -> dict[Key, int]:
    """Every key that is capped, and its cap."""
    names = [(cap, f"{program.__name__}.capped{cap}") for cap in CAPS]
    return {(name, f"{number}"): cap for cap, name in names for number in range(ACCOUNTS)}


def cap_them(fleet: Fleet) -> None:
    """Five limits, each by account."""
    for cap in CAPS:
        limits = fleet.app.sync_operator.limits
        limits.set(
            f"cap-{cap}", type=f"{program.__name__}.capped{cap}", by="account", running=cap, create=True
        )


def enqueue_them(fleet: Fleet, *, each: int, seconds: float) -> None:
    """Under each key `each` tasks for each that may run, in a mixed order."""
    for _ in range(each):
        for (name, account), cap in keys().items():
            fleet.enqueue(name.rpartition(".")[2], cap, account=account, seconds=seconds)


# -- the store, looked at from beside ----------------------------------------------------------------


class Looks(Struct):
    """What was seen: how often somebody looked, and the most that ran under each key at one look."""

    number: int = 0
    most: Counter[Key] = Counter()

    def note(self, rows: Sequence[tuple[str, str, int]]) -> None:
        """The rows of one statement: they show one instant."""
        self.number += 1
        for name, account, running in rows:
            self.most[name, account] = max(self.most[name, account], running)


@contextmanager
def looking(fleet: Fleet) -> Iterator[Looks]:
    """Count what runs, all the time, on a connection of its own."""
    looks, over = Looks(most=Counter()), threading.Event()
    look = _on_server if fleet.server else _on_file
    thread = threading.Thread(target=look, args=(fleet, looks, over))
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()


def _on_server(fleet: Fleet, looks: Looks, over: threading.Event) -> None:
    parts = urlsplit(fleet.server)
    schema = parse_qs(parts.query)["schema"][0]
    sql = (
        "SELECT type, convert_from(payload, 'UTF8')::json ->> 'account', count(*)"
        f" FROM {schema}.task WHERE state = 'running' GROUP BY 1, 2"
    )
    while not over.is_set():
        # A server that is restarted sends everybody away.
        with suppress(psycopg.OperationalError):
            url = parts._replace(query="").geturl()
            with psycopg.connect(url, autocommit=True) as connection:
                while not over.wait(EVERY):
                    looks.note(connection.execute(sql.encode()).fetchall())
        over.wait(EVERY)


def _on_file(fleet: Fleet, looks: Looks, over: threading.Event) -> None:
    sql = (
        "SELECT type, json_extract(CAST(payload AS TEXT), '$.account'), count(*)"
        " FROM windlass_task WHERE state = 'running' GROUP BY 1, 2"
    )
    file = Path(fleet.folder / "windlass.db").absolute()
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as connection:
        while not over.wait(EVERY):
            looks.note(connection.execute(sql).fetchall())


# -- caps --------------------------------------------------------------------------------------------


def history_of(fleet: Fleet) -> History:
    """All that happened."""
    return asyncio.run(fleet.history())


def checked_caps(fleet: Fleet, looks: Looks) -> Report:
    """The report on all that happened: the promises to every task, and those of the limits."""
    history = history_of(fleet)
    report = check(history)
    ran = most_at_once(history)
    for found, most in (("ran", ran), ("held", looks.most)):
        for key, cap in keys().items():
            report.numbers[f"most {found}, cap {cap}"] = max(
                report.numbers[f"most {found}, cap {cap}"], most[key]
            )
            if most[key] > cap:
                report.violations.append(Violation(f"more {found} than may", f"{key}: {most[key]} of {cap}"))
    report.numbers["looks into the store"] = looks.number
    starts = [run.started.at for run in history.runs]
    report.numbers["seconds of work"] = round((max(starts) - min(starts)) / SECOND)
    for usage in fleet.app.sync_operator.limits.usages():
        if usage.running:
            leaked = f"{usage.limit} {usage.value}: {usage.running}"
            report.violations.append(Violation("leaked permit", leaked))
    return report


def most_at_once(history: History) -> Counter[Key]:
    """The most runs under each key at one moment, by the diaries.

    A run whose process was killed is over with the kill. But its permit must not be used again before it
    was rescued: so it counts until the instant that the rescue's own line gives, if there is one.
    """
    tasks = {task.id: task for task in history.tasks}
    kills = {fault.worker: fault.ended for fault in history.faults if fault.kind == "kill"}
    events: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for run in history.runs:
        key = _key(tasks[run.started.task_id])
        ended = _ended(run, history, kills)
        events[key] += [(run.started.at, 1), (max(ended, run.started.at + 1), -1)]
    most: Counter[Key] = Counter()
    for key, changes in events.items():
        running = 0
        for _, change in sorted(changes):  # who ends at the moment that another starts has ended
            running += change
            most[key] = max(most[key], running)
    return most


def _key(task: Task) -> Key:
    return task.type, json.loads(task.payload).get("account", "")


def _ended(run: Run, history: History, kills: dict[str, int]) -> int:
    if run.ended is not None:
        return run.ended.at
    rescued = [line for line in history.attempts[run.started.task_id] if _is_rescue(line, run)]
    if rescued:
        return int(rescued[0].finished_at.timestamp() * 1e9) - history.wall
    return kills.get(run.started.worker, run.started.at)


def _is_rescue(line: Attempt, run: Run) -> bool:
    lost = line.error is not None and line.error.type == LOST_WORKER
    return lost and line.fence > run.started.fence and line.worker == run.started.worker


# -- rates -------------------------------------------------------------------------------------------


class Pace(Struct, kw_only=True):
    """How starts kept to a rate: the most that a window had beyond what it may have, and the share used."""

    starts: int
    seconds: float
    excess: float
    share: float

    def __str__(self) -> str:
        return (
            f"{self.starts} starts in {self.seconds:.2f} s, {self.share:.1%} of what may;"
            f" at most {self.excess:+.3f} beyond it in any window"
        )


def pace(instants: Sequence[float], rate: float = RATE, burst: int = BURST) -> Pace:
    """Starts, in seconds, held against every window that begins and ends with one of them.

    A window of `t` seconds may have `burst + rate * t`. A bucket that is full at the beginning, gains with
    time and pays for each start has its lowest level where the worst window ends: so one pass will do.
    """
    ordered = sorted(instants)
    level = lowest = float(burst - 1)
    for before, instant in pairwise(ordered):
        level = min(level + (instant - before) * rate, float(burst)) - 1.0
        lowest = min(lowest, level)
    seconds = ordered[-1] - ordered[0]
    return Pace(
        starts=len(ordered),
        seconds=seconds,
        excess=-lowest,
        share=len(ordered) / (burst + rate * seconds),
    )


class Rated(Struct, kw_only=True):
    """Starts under one rate: all of them, those while there was work, and those of the handlers."""

    claims: Pace
    while_work: Pace
    handlers: Pace
    late: list[float]  # seconds from each claim to the start of its handler, in order

    def lines(self) -> str:
        """What was found."""
        middle, most = self.late[len(self.late) // 2], self.late[-1]
        return (
            f"  claims, by the store's clock: {self.claims}\n"
            f"  while there was work:         {self.while_work}\n"
            f"  handlers, by the diaries:     {self.handlers}\n"
            f"  handlers start after claims:  {middle * 1000:.1f} ms (median), {most * 1000:.1f} ms (most)"
        )


def rated(history: History, kind: str) -> Rated:
    """How the tasks of a kind started. Every attempt is a start, also one that was lost with its worker."""
    tasks = {task.id for task in history.tasks if task.type == f"{program.__name__}.{kind}"}
    lines = [line for task_id in tasks for line in history.attempts[task_id]]
    starts = [line.claimed_at.timestamp() for line in lines]
    # As long as a task had never been tried there was work.
    until = max(line.claimed_at.timestamp() for line in lines if line.number == 1)
    claims = {(line.task_id, line.fence): line.claimed_at.timestamp() for line in lines}
    handlers = {
        (run.started.task_id, run.started.fence): (run.started.at + history.wall) / 1e9
        for run in history.runs
        if run.started.task_id in tasks
    }
    return Rated(
        claims=pace(starts),
        while_work=pace([start for start in starts if start <= until]),
        handlers=pace(list(handlers.values())),
        late=sorted(handlers[key] - claims[key] for key in handlers.keys() & claims.keys()),
    )


def rate_them(fleet: Fleet, *, seconds: float) -> None:
    """A rate, and as much work as it lets start in that time."""
    name = f"{program.__name__}.quick"
    fleet.app.sync_operator.limits.set("rate", type=name, rate=RATE, burst=BURST, create=True)
    fleet.enqueue("quick", BURST + round(RATE * seconds))


def checked_rate(fleet: Fleet, tell: Callable[[str], Any]) -> Rated:
    """The promises to every task, and the rate; what it was is told."""
    history = history_of(fleet)
    report = check(history)
    found = rated(history, "quick")
    tell(f"{report.lines()}\n{found.lines()}")
    assert report.violations == []
    assert found.claims.excess <= ROUNDING
    assert found.while_work.share >= 0.95
    return found
