"""Long answers are read a window at a time, and come out as if they were not."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from windlass._model.filter import Action, CancelTasks, Count, Dimension, Filter, Page, Slice
from windlass._model.state import State
from windlass._stores.sqlite import SQLiteStore, actions
from windlass._stores.sqlite import store as store_module
from windlass._stores.sqlite.asking import Reader
from windlass._stores.sqlite.connection import connect
from windlass._stores.sqlite.transaction import Transaction
from windlass.testing.conformance.steps import SOMEBODY, some_tasks


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
    apply = actions.apply

    def watched(tx: Transaction, action: Action, where: Filter, limit: int) -> list[str]:
        seen.append(where)
        return apply(tx, action, where, limit)

    monkeypatch.setattr(actions, "apply", watched)
    expected = [task.id for task in reader.find(where, Page(limit=5)).items]

    assert await store.apply(CancelTasks(by=SOMEBODY), where, limit=5) == expected
    assert [one.ids is not None for one in seen] == [True]


async def test_what_has_moved_since_the_look_is_left_alone_and_others_take_its_place(
    store: SQLiteStore, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_SPARE", 1)
    ids = [task.id for task in reader.find(Filter(types=("t1",)), Page()).items]
    apply = actions.apply
    stolen: list[str] = []

    def stealing(tx: Transaction, action: Action, where: Filter, limit: int) -> list[str]:
        if not stolen:
            stolen.extend(ids[:4])
            apply(tx, action, Filter(ids=tuple(stolen)), 10)
        return apply(tx, action, where, limit)

    monkeypatch.setattr(actions, "apply", stealing)

    assert await store.apply(CancelTasks(by=SOMEBODY), Filter(types=("t1",)), limit=3) == ids[4:7]


def test_the_connection_is_closed_by_whoever_opened_it(path: Path) -> None:
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("truncate",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")
