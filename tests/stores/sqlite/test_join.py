"""Enqueueing within the caller's own transaction: both or neither. (P9)"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from windlass._model.state import State
from windlass._stores.sqlite import SQLiteStore
from windlass.errors import (
    DuplicateTask,
    IdempotencyConflict,
    InvalidOption,
    NotSupported,
    SchemaMismatch,
    StoreUnavailable,
)
from windlass.testing.conformance.steps import a_task, exists, state_of

Peek = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def connection(store: SQLiteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's own, as `sqlite3.connect` gives it."""
    with closing(sqlite3.connect(path)) as connection:
        with connection:
            connection.execute("CREATE TABLE orders (number INTEGER)")
        yield connection


async def test_both_stand_after_the_callers_commit(
    store: SQLiteStore, connection: sqlite3.Connection
) -> None:
    new = a_task()
    connection.execute("INSERT INTO orders VALUES (1)")
    answers = store.join(connection).enqueue([new])
    before = await exists(store, new.id)

    connection.commit()

    assert [(answer.id, answer.created) for answer in answers] == [(new.id, True)]
    assert not before
    assert await state_of(store, new.id) is State.READY


async def test_a_run_at_out_of_bounds_is_refused(store: SQLiteStore, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO orders VALUES (1)")

    with pytest.raises(InvalidOption, match="run_at must be from 1970 to ten years from now"):
        store.join(connection).enqueue([a_task(run_at=datetime.max.replace(tzinfo=UTC))])

    connection.commit()
    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)


async def test_neither_stands_after_the_callers_rollback(
    store: SQLiteStore, connection: sqlite3.Connection, peek: Peek
) -> None:
    new = a_task(idempotency_key="k", fingerprint="f")
    connection.execute("INSERT INTO orders VALUES (1)")
    store.join(connection).enqueue([new])

    connection.rollback()

    assert not await exists(store, new.id)
    assert peek("SELECT count(*) FROM orders") == [(0,)]
    assert peek("SELECT count(*) FROM windlass_idempotency") == [(0,)]


@pytest.mark.parametrize(
    ("standing", "wish", "refusal"),
    [
        ({"fingerprint": "f"}, {"fingerprint": "f"}, DuplicateTask),
        (
            {"idempotency_key": "k", "idempotency_digest": "a"},
            {"idempotency_key": "k", "idempotency_digest": "b"},
            IdempotencyConflict,
        ),
    ],
    ids=["fingerprint", "key"],
)
async def test_a_refusal_leaves_the_transaction_usable(
    store: SQLiteStore,
    connection: sqlite3.Connection,
    peek: Peek,
    standing: dict[str, str],
    wish: dict[str, str],
    refusal: type[Exception],
) -> None:
    await store.enqueue([a_task(**standing)])
    innocent, refused, after = a_task(), a_task(**wish), a_task()
    connection.execute("INSERT INTO orders VALUES (1)")

    with pytest.raises(refusal):
        store.join(connection).enqueue([innocent, refused])
    store.join(connection).enqueue([after])
    connection.commit()

    assert peek("SELECT count(*) FROM orders") == [(1,)]
    assert not await exists(store, innocent.id)
    assert await exists(store, after.id)


async def test_a_repeated_key_answers_with_the_standing_task(
    store: SQLiteStore, connection: sqlite3.Connection
) -> None:
    first = a_task(idempotency_key="k")
    await store.enqueue([first])

    (answer,) = store.join(connection).enqueue([a_task(idempotency_key="k")])

    assert (answer.id, answer.created) == (first.id, False)
    connection.rollback()


async def test_with_no_transaction_open_one_is_begun_as_by_any_insert(
    store: SQLiteStore, connection: sqlite3.Connection
) -> None:
    new = a_task()

    store.join(connection).enqueue([new])

    assert connection.in_transaction
    assert not await exists(store, new.id)
    connection.commit()
    assert await exists(store, new.id)


async def test_in_autocommit_mode_the_tasks_stand_at_once(store: SQLiteStore, path: Path) -> None:
    new = a_task()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        store.join(connection).enqueue([new])

        assert not connection.in_transaction
    assert await exists(store, new.id)


async def test_a_refusal_in_autocommit_mode_leaves_nothing_open(store: SQLiteStore, path: Path) -> None:
    await store.enqueue([a_task(fingerprint="f")])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(DuplicateTask):
            store.join(connection).enqueue([a_task(fingerprint="f")])

        assert not connection.in_transaction


async def test_the_callers_own_factories_do_not_matter_and_stay(
    store: SQLiteStore, connection: sqlite3.Connection
) -> None:
    connection.row_factory = lambda _, row: dict(enumerate(row))
    connection.text_factory = bytes
    first = a_task(idempotency_key="k")

    store.join(connection).enqueue([first])
    (again,) = store.join(connection).enqueue([a_task(idempotency_key="k")])

    assert again.id == first.id
    assert connection.text_factory is bytes
    connection.rollback()


async def test_a_successor_waits_for_a_predecessor_of_the_same_transaction(
    store: SQLiteStore, connection: sqlite3.Connection
) -> None:
    first = a_task()
    second = a_task(after=(first.id,))

    store.join(connection).enqueue([first])
    store.join(connection).enqueue([second])
    connection.commit()

    assert await state_of(store, second.id) is State.WAITING


async def test_another_file_is_refused_by_name(store: SQLiteStore, tmp_path: Path, path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE other (a)")
        with pytest.raises(InvalidOption, match=r"other\.db.*windlass\.db"):
            store.join(connection)
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(InvalidOption, match="in-memory"):
        store.join(connection)


async def test_the_same_file_by_another_path_is_the_same_file(
    store: SQLiteStore, path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)

    with closing(sqlite3.connect(link)) as connection:
        store.join(connection).enqueue([a_task()])
        connection.rollback()


@pytest.mark.parametrize("kind", [lambda engine: engine.connect(), Session], ids=["connection", "session"])
async def test_connections_and_sessions_of_sqlalchemy(
    kind: Callable[[Engine], Any], store: SQLiteStore, path: Path, connection: sqlite3.Connection
) -> None:
    kept, dropped = a_task(), a_task()
    engine = create_engine(f"sqlite:///{path}")
    try:
        with kind(engine) as joined:
            joined.execute(text("INSERT INTO orders VALUES (1)"))
            store.join(joined).enqueue([kept])
            joined.commit()
            joined.execute(text("INSERT INTO orders VALUES (2)"))
            store.join(joined).enqueue([dropped])
            joined.rollback()
    finally:
        engine.dispose()

    assert await state_of(store, kept.id) is State.READY
    assert not await exists(store, dropped.id)
    assert connection.execute("SELECT number FROM orders").fetchall() == [(1,)]


async def test_something_else_than_a_connection_is_not_supported(store: SQLiteStore) -> None:
    with pytest.raises(NotSupported, match=r"sqlite3\.Connection"):
        store.join(object())


def test_a_missing_schema_is_said_to_be_made_how(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER)")
        with pytest.raises(SchemaMismatch, match=r"app\.setup\(\).*windlass migrate"):
            SQLiteStore(path).join(connection)


async def test_a_busy_file_is_unavailable_and_the_callers_transaction_stays_his(
    store: SQLiteStore, path: Path
) -> None:
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as blocker,
        closing(sqlite3.connect(path, timeout=0)) as connection,
    ):
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            store.join(connection).enqueue([a_task()])
        blocker.execute("ROLLBACK")

        connection.rollback()
        store.join(connection).enqueue([a_task()])
        connection.commit()
