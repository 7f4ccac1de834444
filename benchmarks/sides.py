"""The sides measured on Postgres: windlass and its peers, and which of them can run here."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import psycopg

from benchmarks import node
from benchmarks.processes import Program
from windlass import App, Filter, State

UNFINISHED = (State.READY, State.RUNNING)  # no task waits here, and none in the default queue is scheduled
Count = Callable[[int], int]  # unfinished tasks: exact up to the given number, else any greater number


@dataclass(frozen=True, kw_only=True)
class Side:
    """A queue to measure. Slow ones get a fraction of the tasks, since rates are compared.

    `unfinished` is what follows SELECT for tasks that have not durably ended; `None`: it is asked itself.
    """

    who: str
    program: Program
    unfinished: str | None
    share: float = 1.0
    at_once: int = 1_000  # tasks of one bulk call
    settings: dict[str, Any] = field(default_factory=dict)  # worker settings that its program leaves open

    @contextmanager
    def counting(self, url: str) -> Iterator[Count]:
        """Return a function that counts the unfinished tasks of a database on one connection."""
        if self.unfinished is None:
            with _asked(url) as count:
                yield count
            return
        statement = f"SELECT count(*) FROM (SELECT {self.unfinished} LIMIT %s) AS unfinished".encode()
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            yield lambda number: (connection.execute(statement, [number + 1]).fetchone() or (0,))[0]


@contextmanager
def _asked(url: str) -> Iterator[Count]:
    """Count windlass tasks by its API. Large counts are estimates; near the end tasks are listed instead."""
    app = App(url)
    where = Filter(states=UNFINISHED, queues=("default",))

    async def count(number: int) -> int:
        counts = await app.operator.count(where)
        if number and not all(found.exact for found in counts):
            return len([task async for task in app.operator.every(where)])
        return sum(found.number for found in counts)

    with asyncio.Runner() as runner:
        yield lambda number: runner.run(count(number))
        runner.run(app.close())


WINDLASS = Side(
    who="windlass",
    program="on_windlass_server",
    unfinished=None,
    at_once=10_000,
    settings={"slots": 1000},
)
GRAPHILE = Side(
    who="graphile-worker",
    program=(),  # set once it is installed
    unfinished="FROM graphile_worker._private_jobs",
)
PGQUEUER = Side(who="pgqueuer", program="on_pgqueuer", unfinished="FROM pgqueuer")
PROCRASTINATE = Side(
    who="procrastinate",
    program="on_procrastinate",
    unfinished="FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    share=0.07,
)
CHANCY = Side(
    who="chancy",
    program="on_chancy",
    unfinished="FROM chancy_jobs WHERE queue = 'default' AND state IN ('pending', 'running', 'retrying')",
    share=0.2,
)
SIDES = (WINDLASS, GRAPHILE, PGQUEUER, PROCRASTINATE, CHANCY)


def able(left_out: Collection[str], say: Callable[[str], None]) -> list[Side]:
    """Return the sides that can run here and are not excluded; report to `say` those that cannot."""
    found = [side for side in SIDES if side.who not in left_out]
    if GRAPHILE not in found:
        return found
    if not node.is_able():
        say("graphile-worker is left out: it needs node and npm, which are not here")
        return [side for side in found if side is not GRAPHILE]
    return [replace(side, program=node.GRAPHILE.program()) if side is GRAPHILE else side for side in found]


def versions(sides: Sequence[Side]) -> dict[str, str]:
    """Return the peers' versions, for the head of the report."""
    return {
        side.who: node.GRAPHILE.version() if side.who == GRAPHILE.who else version(side.who)
        for side in sides
        if side is not WINDLASS
    }
