"""Long answers are read a window at a time, and come out as if they were not."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from windlass._model.filter import Count, Dimension, Filter, Page
from windlass._stores.sqlite import SQLiteStore
from windlass._stores.sqlite.asking import Reader
from windlass._stores.sqlite.connection import connect
from windlass.testing.conformance.steps import some_tasks


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
    assert reader.count(Filter(), (Dimension.TYPE,)) == [
        Count(values=("t0",), number=17, exact=False),
        Count(values=("t1",), number=17, exact=False),
        Count(values=("t2",), number=16, exact=False),
    ]
    assert reader.count(Filter(types=("none",)), ()) == [Count(values=(), number=0, exact=False)]


def test_the_connection_is_closed_by_whoever_opened_it(path: Path) -> None:
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("truncate",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")
