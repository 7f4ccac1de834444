"""No hot statement scans or sorts the table, whatever is in it."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from windlass._model.filter import Dimension, Filter, Page
from windlass._model.state import PENDING, State
from windlass._stores.sqlite import SQLiteStore
from windlass._stores.sqlite.connection.open import connect
from windlass._stores.sqlite.read.filters import count_query, page_query
from windlass._stores.sqlite.rows import statement
from windlass.testing.conformance.steps import complete, settle, some_tasks, worker_on

HOT = {
    "ready": "windlass_task_ready",
    "ready_rowids": "windlass_task_ready",
    "ready_of_types": "windlass_task_ready",
    "queues_with_ready": "windlass_task_ready",
    "claim": "INTEGER PRIMARY KEY",
    "tasks": "INTEGER PRIMARY KEY",
    "leased": "INTEGER PRIMARY KEY",
    "complete": "sqlite_autoindex_windlass_task_1",
    "keep": "sqlite_autoindex_windlass_task_1",
    "mark": "sqlite_autoindex_windlass_task_1",
    "is_held": "sqlite_autoindex_windlass_task_1",
    "existing": "sqlite_autoindex_windlass_task_1",
    "ended": "sqlite_autoindex_windlass_task_1",
    "standing": "windlass_task_fingerprint",
    "granted": "windlass_task_running",
    "silent": "windlass_task_running",
    "rescue": "INTEGER PRIMARY KEY",
    "due": "windlass_task_scheduled",
    "next_due": "windlass_task_scheduled",
    "promote": "INTEGER PRIMARY KEY",
    "ended_types": "windlass_task_ended",
    "expired": "windlass_task_ended (queue=? AND type=? AND state=? AND finished_at=? AND rowid>?)",
    "expired_edge": "windlass_task_ended (queue=? AND type=? AND state=? AND finished_at=? AND rowid>?)",
    "forget": "sqlite_autoindex_windlass_task_1",
    "any_ready": "windlass_task_ready",
    "lanes": "windlass_task_ready",
    "sizes": "windlass_task_ready",
    "keys": "windlass_task_ready",
    "heads": "windlass_task_ready",
    "left_heads": "windlass_task_ready",
    "level": "windlass_task_level",
    "middle_level": "windlass_task_ready",
    "limited": "windlass_task_limited",
    "permitted": "sqlite_autoindex_windlass_task_1",
    "permit": "INTEGER PRIMARY KEY",
    "running": "windlass_task_running",
    "set_lane": "INTEGER PRIMARY KEY",
    "due_laned": "INTEGER PRIMARY KEY",
    "ready_queues": "windlass_task_ready",
    "ready_after": "windlass_task_ready (queue=? AND (lane,key,rank,id)>(?,?,?,?))",
    "window": "sqlite_autoindex_windlass_task_1",
    "window_back": "sqlite_autoindex_windlass_task_1",
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """A table with a few thousand tasks in every state that matters, for tests that only look at plans."""
    path = tmp_path_factory.mktemp("filled") / "windlass.db"
    asyncio.run(fill(SQLiteStore(path)))
    with closing(connect(path)) as connection:
        yield connection


async def fill(store: SQLiteStore) -> None:
    await store.open()
    await store.enqueue(some_tasks(2000))
    await store.enqueue(some_tasks(500, queue="other"))
    worker = await worker_on(store)
    claimed = await worker.claim(1000)
    await settle(store, *[complete(c) for c in claimed[:900]])
    await store.close()


def plan(connection: sqlite3.Connection, sql: str, parameters: object) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]


@pytest.mark.parametrize("name", HOT)
def test_hot_statements_go_by_their_index(name: str, filled: sqlite3.Connection) -> None:
    sql = statement(name)
    values = {"limit": 10, "rows": 10, "queue": "default", "state": "completed"}
    names = {word: values.get(word, 1) for word in re.findall(r":(\w+)", sql)}

    steps = plan(filled, sql, names or (None,) * sql.count("?"))

    on_tasks = [step for step in steps if re.search(r"windlass_task\b|\btask\b", step)]
    assert any(HOT[name] in step for step in on_tasks), steps
    for step in on_tasks:
        assert not re.fullmatch(r"SCAN (windlass_task|task)", step), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


def test_the_next_type_of_ended_tasks_is_looked_up_and_not_read_up_to(filled: sqlite3.Connection) -> None:
    steps = plan(filled, statement("ended_types"), ())

    assert "SEARCH next USING COVERING INDEX windlass_task_ended (queue=? AND type>?)" in steps


def test_the_first_tasks_of_many_queues_are_looked_up_one_by_one(filled: sqlite3.Connection) -> None:
    """What is sorted is one task of each queue, not a backlog."""
    steps = plan(filled, statement("first_heads"), {"queues": '["a","b"]', "now": 1, "limit": 10})

    assert not any(re.match(r"SCAN (head|task|expired)", step) for step in steps), steps
    assert any("windlass_task_ready (queue=? AND lane=? AND key=?)" in step for step in steps), steps


@pytest.mark.parametrize(
    "where",
    [
        Filter(ids=("a", "b")),
        Filter(ids=("a", "b"), states=(State.DEAD,)),
        Filter(ids=("a", "b"), states=(State.CANCELLED, State.DEAD), types=("a",)),
        Filter(ids=("a", "b"), states=(State.READY, State.SCHEDULED, State.WAITING, State.RUNNING)),
        Filter(root="a"),
        Filter(idempotency_key="a"),
        Filter(states=(State.DEAD,)),
        Filter(states=(State.RUNNING,)),
        Filter(states=tuple(PENDING), expires_before=datetime(2026, 1, 1, tzinfo=UTC)),
    ],
    ids=[
        "ids",
        "ids to discard",
        "ids to replay",
        "ids to cancel",
        "root",
        "key",
        "dead",
        "running",
        "expiring",
    ],
)
def test_selective_filters_go_by_an_index(where: Filter, filled: sqlite3.Connection) -> None:
    query = page_query("find", where, Page())

    steps = plan(filled, query.sql, query.parameters)

    assert not any(
        step in ("SCAN task", "SCAN task USING INDEX sqlite_autoindex_windlass_task_1") for step in steps
    ), steps


def test_dead_letters_of_a_failure_are_paged_in_the_order_of_its_index(filled: sqlite3.Connection) -> None:
    query = page_query("find", Filter(states=(State.DEAD,), failures=("f",)), Page(newest_first=True))

    assert plan(filled, query.sql, query.parameters) == [
        "SEARCH task USING INDEX windlass_task_failure (failure=?)"
    ]


@pytest.mark.parametrize("rest", [{}, {"tenants": ("t",), "queues": ("q",)}])
def test_dead_letters_are_counted_without_reading_or_sorting_them(
    filled: sqlite3.Connection, rest: dict[str, tuple[str, ...]]
) -> None:
    by = (Dimension.FAILURE, Dimension.TYPE, Dimension.QUEUE)
    query = count_query(Filter(states=(State.DEAD,), **rest), by, (None, None), sized=False)

    steps = plan(filled, query.sql, query.parameters)

    assert "USING COVERING INDEX windlass_task_dead_count" in steps[0]
    assert not any("TEMP B-TREE" in step for step in steps)


async def test_a_claim_over_many_queues_is_in_order_over_all(store: SQLiteStore) -> None:
    batch = [task for n in range(20) for task in some_tasks(3, queue=f"q{n}", priority=n * 7 % 5)]
    await store.enqueue(batch)
    worker = await worker_on(store)

    claimed = await worker.claim(25, *[f"q{n}" for n in range(20)])

    expected = sorted(batch, key=lambda new: (-new.priority, new.id))[:25]
    assert [c.task.id for c in claimed] == [new.id for new in expected]
