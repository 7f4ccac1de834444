"""A store with millions of tasks: some real ones in every state, and copies of their rows."""

import logging
import sqlite3
from collections.abc import Iterator

import psycopg

from benchmarks.runs import probe
from windlass import App, Fatal, WorkerSettings

REAL = 1_000  # of each kind; the rest are copies
QUEUES, TYPES, TENANTS, ERRORS = 10, 40, 50, 25


def fill(url: str, ready: int, dead: int, completed: int) -> None:
    """Make the store; the numbers are those of tasks by state."""
    logging.getLogger("windlass").setLevel(logging.CRITICAL)  # it would tell of each that dies
    numbers = {"ready": ready, "dead": dead, "completed": completed}
    probe.looped(_real(url))
    if url.startswith("sqlite"):
        _copy_sqlite(url.removeprefix("sqlite:///"), numbers)
    else:
        _copy_postgres(url, numbers)


async def _real(url: str) -> None:
    app = App(url)

    async def run(n: int) -> int:
        if n // 200 % 2:  # not by type, tenant or queue
            raise Fatal(f"service {n % ERRORS // 2} of {'abcdefgh'[n % 8]} refused order {n}")
        return n

    handlers = [app.task(name=f"shop.type{number}")(run) for number in range(TYPES)]
    await app.open()
    for purpose in ("end", "stay"):
        for n in range(REAL * 2 if purpose == "end" else REAL):
            queue, tenant = f"{purpose}{n % QUEUES}", f"tenant{n % TENANTS}"
            await handlers[n % TYPES].using(queue=queue, tenant=tenant).aenqueue(n=n)
    queues = tuple(f"end{number}" for number in range(QUEUES))
    await app.worker(WorkerSettings(queues=queues, drain=True, slots=50)).run()
    await app.operator.alerts.add("dead", count=1)
    await app.operator.limits.set("shop", create=True, type="shop.type1", running=10)
    await app.close()


def _copies(numbers: dict[str, int]) -> Iterator[tuple[str, int]]:
    for state, number in numbers.items():
        yield state, max(number // REAL - 1, 0)


def _copy_postgres(url: str, numbers: dict[str, int]) -> None:
    """Copy rows in the database, each with an id of its own that sorts by time."""
    with psycopg.connect(url, autocommit=True) as connection:
        for state, times in _copies(numbers):
            table = "history" if state == "completed" else "task"
            rows = connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'windlass' "
                "AND table_name = %s AND column_name NOT IN ('id', 'root') AND is_generated = 'NEVER'",
                (table,),
            )
            columns = ", ".join(f'"{row[0]}"' for row in rows)
            connection.execute(
                f"INSERT INTO windlass.{table} (id, root, {columns}) "
                f"SELECT one.id, one.id, {columns} FROM ("
                f"SELECT (lpad(to_hex((extract(epoch FROM created_at) * 1000)::bigint + n), 12, '0') || '7' "
                f"|| substr(md5(random()::text), 1, 19))::uuid AS id, {columns} "
                f"FROM windlass.{table}, generate_series(1, {times}) AS n WHERE state = '{state}'"
                f") AS one",
            )
        connection.execute("VACUUM (ANALYZE)")


def _copy_sqlite(path: str, numbers: dict[str, int]) -> None:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name FROM pragma_table_xinfo('windlass_task') WHERE hidden = 0")
    columns = ", ".join(name for (name,) in found if name not in ("id", "root"))
    for state, times in _copies(numbers):
        connection.execute(
            f"WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {times}), "
            f"made AS (SELECT printf('%012x', created_at / 1000 + n) AS t, "
            f"lower(hex(randomblob(10))) AS r, {columns} FROM windlass_task, n WHERE state = '{state}') "
            f"INSERT INTO windlass_task (id, root, {columns}) "
            f"SELECT id, id, {columns} FROM (SELECT substr(t, 1, 8) || '-' || substr(t, 9) || '-7' || "
            f"substr(r, 1, 3) || '-8' || substr(r, 4, 3) || '-' || substr(r, 7, 12) AS id, {columns} "
            f"FROM made)"
        )
        connection.commit()
    connection.execute("ANALYZE")
    connection.commit()
    connection.close()
