"""Long answers are read a window at a time, and come out as if they were not."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from windlass._model.filter import Action, CancelTasks, Count, Dimension, Filter, Page, Slice
from windlass._model.state import State
from windlass._stores.sqlite import SQLiteStore, rule_player
from windlass._stores.sqlite import store as store_module
from windlass._stores.sqlite.connection.open import connect
from windlass._stores.sqlite.read.filters import count_states_query, state_size_queries
from windlass._stores.sqlite.read.find import Reader
from windlass._stores.sqlite.transaction import Transaction
from windlass.testing.conformance.steps import (
    OPERATOR,
    bury,
    complete,
    enqueue_and_claim,
    enqueue_one,
    settle_now,
    some_tasks,
    worker_on,
)


@pytest.fixture
async def reader(store: SQLiteStore, path: Path) -> Iterator[Reader]:
    await store.enqueue([new for n in range(50) for new in some_tasks(1, type=f"t{n % 3}")])
    with closing(connect(path)) as connection:
        yield Reader(connection, window=7)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("types", [None, ("t1",), ("t1", "t2"), ("none",)])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_pages_are_the_same_through_any_window(
    reader: Reader, newest_first: bool, types: tuple[str, ...] | None, limit: int
) -> None:
    where = Filter(types=types)
    everything = [
        task for task in reader.find(Filter(), Page(limit=1000)).items if not types or task.type in types
    ]
    expected = [task.id for task in everything][:: -1 if newest_first else 1]

    found, page = [], Page(limit=limit, newest_first=newest_first)
    while True:
        part = reader.find(where, page)
        assert len(part.items) <= limit
        found += [task.id for task in part.items]
        if part.cursor is None:
            break
        page = Page(limit=limit, newest_first=newest_first, cursor=part.cursor)

    assert found == expected


def test_a_count_over_several_windows_says_that_it_is_not_exact(reader: Reader) -> None:
    counts = reader.count(Filter(), (Dimension.TYPE,))

    assert [(count.values, count.number, count.exact) for count in counts] == [
        (("t0",), 17, False),
        (("t1",), 17, False),
        (("t2",), 16, False),
    ]
    assert reader.count(Filter(types=("none",)), ()) == [Count(values=(), number=0, exact=False)]


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_ids_are_those_of_the_tasks(reader: Reader, limit: int) -> None:
    for where in (Filter(), Filter(types=("t1",)), Filter(states=(State.RUNNING,))):
        tasks, page = reader.find(where, Page(limit=limit)), Page(limit=limit)
        assert reader.find_ids(where, page) == Slice(
            items=tuple(task.id for task in tasks.items), cursor=tasks.cursor
        )


@pytest.mark.parametrize("where", [Filter(types=("t1",)), Filter(states=(State.READY,)), Filter()])
async def test_what_an_action_is_for_is_not_looked_for_within_its_transaction(
    store: SQLiteStore, reader: Reader, where: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Filter] = []
    apply = rule_player.apply

    def watched(tx: Transaction, action: Action, where: Filter, limit: int) -> list[str]:
        seen.append(where)
        return apply(tx, action, where, limit)

    monkeypatch.setattr(rule_player, "apply", watched)
    expected = [task.id for task in reader.find(where, Page(limit=5)).items]

    assert list((await store.apply(CancelTasks(by=OPERATOR), where, limit=5)).ids) == list(expected)
    assert [one.ids is not None for one in seen] == [True]


async def test_what_has_moved_since_the_look_is_left_alone_and_others_take_its_place(
    store: SQLiteStore, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_SPARE", 1)
    ids = [task.id for task in reader.find(Filter(types=("t1",)), Page()).items]
    apply = rule_player.apply
    stolen: list[str] = []

    def stealing(tx: Transaction, action: Action, where: Filter, limit: int) -> list[str]:
        if not stolen:
            stolen.extend(ids[:4])
            apply(tx, action, Filter(ids=tuple(stolen)), 10)
        return apply(tx, action, where, limit)

    monkeypatch.setattr(rule_player, "apply", stealing)

    assert list((await store.apply(CancelTasks(by=OPERATOR), Filter(types=("t1",)), limit=3)).ids) == list(
        ids[4:7]
    )


def test_the_connection_is_closed_by_whoever_opened_it(path: Path) -> None:
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("truncate",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


OPEN = (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)


@pytest.fixture
async def mixed(store: SQLiteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """Every state, of two types in two queues."""
    worker = await worker_on(store)
    options = [{"type": f"t{number % 2}", "queue": f"q{number % 3 % 2}"} for number in range(12)]
    claimed = [await enqueue_and_claim(store, worker, **one) for one in options]
    for number, (before, one) in enumerate(zip(claimed, options, strict=True)):
        await enqueue_one(store, **one, after=(before.task.id,))
        await enqueue_one(store, **one)
        await enqueue_one(store, **one, delay=timedelta(hours=1))
        if number % 4 == 0:
            await settle_now(store, bury(before))
        if number % 4 == 1:
            await settle_now(store, complete(before))
    with closing(connect(path)) as connection:
        yield connection


STATES = [OPEN, OPEN[:1], OPEN[1:3], (State.READY, State.READY), OPEN[3:]]
DIMENSIONS = [(), (Dimension.QUEUE, Dimension.STATE), (Dimension.STATE, Dimension.TYPE, Dimension.QUEUE)]


@pytest.mark.parametrize("rest", [{}, {"types": ("t1",)}, {"queues": ("q0",), "types": ("t0", "t1")}])
def test_few_tasks_are_counted_by_their_state_and_many_in_windows(
    mixed: sqlite3.Connection, rest: dict[str, Any]
) -> None:
    for states, by in product(STATES, DIMENSIONS):
        where = Filter(states=states, **rest)
        by_state = Reader(mixed).count(where, by)
        in_windows = Reader(mixed, window=2).count(where, by)

        assert all(count.exact for count in by_state), where
        assert not any(count.exact for count in in_windows), where
        assert by_state == [replace(count, exact=True) for count in in_windows], where


@pytest.mark.parametrize("by", [(), (Dimension.QUEUE, Dimension.TYPE, Dimension.STATE)])
def test_counting_by_state_reads_no_more_than_those_tasks(
    mixed: sqlite3.Connection, by: tuple[Dimension, ...]
) -> None:
    queries = [
        *(count_states_query(Filter(states=OPEN), by, sized=sized) for sized in (False, True)),
        *state_size_queries(Filter(states=OPEN), 10),
    ]
    for query in queries:
        steps = mixed.execute(f"EXPLAIN QUERY PLAN {query.sql}", query.parameters).fetchall()
        scans = [step[-1] for step in steps if step[-1].startswith("SCAN task")]
        assert all("USING" in scan and "INDEX windlass_task_" in scan for scan in scans), scans


async def test_no_state_at_all_matches_nothing_whatever_else_is_asked(store: SQLiteStore) -> None:
    for where in (Filter(states=(), chained=True), Filter(states=(), failures=("x",))):
        assert not (await store.find(where, Page())).items
        assert not await store.count(where, (Dimension.STATE,))
