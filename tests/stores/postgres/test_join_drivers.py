"""What is peculiar to one driver, or to the ways its connections can be set up. (P9)"""

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.adapt import Dumper, Loader
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.docs.blocks import DOCS, blocks_of
from tests.servers.postgres import Postgres
from tests.stores.postgres.callers import ORDER
from windlass import App
from windlass._model.state import State
from windlass._store.protocol import Store
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.join.psycopg import Connection as Lent
from windlass.errors import DuplicateTask, InvalidOption, NotSupported
from windlass.testing.conformance.steps import a_task, all_tasks, cancel, enqueue_one, exists, load, state_of


@pytest.fixture(scope="module")
def database(postgres_newest: Postgres) -> str:
    url = postgres_newest.new_database(f"drivers_{uuid4().hex[:12]}")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (number integer)")
    return url


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore.from_url(database)
    await opened.open()
    yield opened
    await opened.close()


async def enqueue_all_ways(store: PostgresStore, connection: psycopg.Connection[Any]) -> None:
    """Tasks that make every kind of value go there and come back."""
    key = uuid4().hex
    cancelled = await enqueue_one(store)
    await cancel(store, cancelled)
    keyed, doomed = a_task(idempotency_key=key, fingerprint=key), a_task(after=(cancelled,))

    store.join(connection).enqueue([keyed, doomed])
    with pytest.raises(DuplicateTask):
        store.join(connection).enqueue([a_task(fingerprint=key)])
    connection.commit()

    assert await state_of(store, keyed.id) is State.READY
    task = await load(store, doomed.id)
    assert (task.state, task.finished_at is not None) == (State.CANCELLED, True)


# -- psycopg -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = 'sql_standard'",
        "bytea_output = 'escape'",
        "TimeZone = 'Asia/Kathmandu'",
        "client_encoding = 'LATIN1'",
        "extra_float_digits = -5",
    ],
)
async def test_psycopg_whatever_the_session_is_set_to(store: PostgresStore, setting: str) -> None:
    with psycopg.connect(store.address.dsn) as connection:
        connection.execute(f"SET {setting}")
        await enqueue_all_ways(store, connection)


class Shouting(Loader):
    """What a program may have registered for types of its own liking."""

    def load(self, data: Any) -> str:
        return bytes(data).decode().upper()


class Numbering(Dumper):
    """The same, the other way."""

    def dump(self, obj: Any) -> bytes:
        return b"0"


async def test_psycopg_whatever_adapters_it_has(store: PostgresStore) -> None:
    with psycopg.connect(store.address.dsn) as connection:
        for kind in ("text", "timestamptz", "bytea", "bool", "int8"):
            connection.adapters.register_loader(kind, Shouting)
        for kind in (str, int, bool, list):
            connection.adapters.register_dumper(kind, Numbering)
        await enqueue_all_ways(store, connection)


async def test_psycopg_in_a_block_on_a_connection_that_commits_by_itself(store: PostgresStore) -> None:
    kept, undone = a_task(fingerprint=uuid4().hex), a_task(fingerprint=uuid4().hex)
    with psycopg.connect(store.address.dsn, autocommit=True) as connection:
        with connection.transaction():
            with connection.transaction(force_rollback=True):
                store.join(connection).enqueue([undone])
            store.join(connection).enqueue([kept])
            inside = await exists(store, kept.id)

        assert [inside, await exists(store, kept.id), await exists(store, undone.id)] == [False, True, False]


async def test_psycopg_in_a_pipeline(store: PostgresStore) -> None:
    plain, keyed = a_task(), a_task(idempotency_key=uuid4().hex)
    with psycopg.connect(store.address.dsn) as connection:
        with connection.pipeline():
            connection.execute(ORDER)
            store.join(connection).enqueue([plain])
            store.join(connection).enqueue([keyed])
        connection.commit()

    assert await exists(store, plain.id)
    assert await exists(store, keyed.id)


async def test_a_database_without_an_encoding(postgres_newest: Postgres) -> None:
    name = f"ascii_{uuid4().hex[:12]}"
    with psycopg.connect(postgres_newest.url, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    url = f"{postgres_newest.url.rpartition('/')[0]}/{name}"
    store = PostgresStore.from_url(url)
    await store.open()
    try:
        with psycopg.connect(url) as connection:
            await enqueue_all_ways(store, connection)
    finally:
        await store.close()


# -- values ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lent(database: str) -> Iterator[Lent]:
    with psycopg.connect(database) as connection:
        yield Lent(connection)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SPANS = st.timedeltas(timedelta(days=-300_000), timedelta(days=300_000))
FIRST, LAST = datetime(1, 1, 2), datetime(9999, 12, 30)  # noqa: DTZ001
INSTANTS = st.datetimes(FIRST, LAST, timezones=st.timezones(), allow_imaginary=False)


LISTS = {
    "text": TEXTS,
    "bytea": st.binary(),
    "interval": SPANS,
    "timestamptz": INSTANTS,
    "boolean": st.booleans(),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double precision": st.floats(allow_nan=False),
}


@given(lists=st.tuples(*[st.lists(st.none() | values) for values in LISTS.values()]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_lists_are_read_as_they_were_written(lent: Lent, lists: tuple[list[Any], ...]) -> None:
    sql = f"SELECT {', '.join(f'${n}::{kind}[]' for n, kind in enumerate(LISTS, 1))}"

    assert lent.fetch(sql, lists) == [lists]


# -- asyncpg -----------------------------------------------------------------------------------------


class OddRecord(asyncpg.Record):  # type: ignore[misc]  # asyncpg has no types
    def __getitem__(self, key: object) -> Any:
        raise AssertionError("rows of ours are not the caller's")


async def test_asyncpg_whatever_codecs_and_records_it_has(store: PostgresStore) -> None:
    connection = await asyncpg.connect(store.address.dsn, record_class=OddRecord)
    try:
        for kind in ("uuid", "interval", "int8"):
            await connection.set_type_codec(kind, encoder=repr, decoder=str, schema="pg_catalog")
        key = uuid4().hex
        async with connection.transaction():
            await store.join(connection).enqueue([a_task(fingerprint=key)])
            with pytest.raises(DuplicateTask):
                await store.join(connection).enqueue([a_task(fingerprint=key)])
    finally:
        await connection.close()


async def test_a_wait_that_is_given_up_leaves_the_transaction_usable(store: PostgresStore) -> None:
    key = uuid4().hex
    one, other = await asyncpg.connect(store.address.dsn), await asyncpg.connect(store.address.dsn)
    try:
        first, second, after = a_task(idempotency_key=key), a_task(idempotency_key=key), a_task()
        async with one.transaction():
            await store.join(one).enqueue([first])
            async with other.transaction():
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await store.join(other).enqueue([second])
                await store.join(other).enqueue([after])

        assert [await exists(store, new.id) for new in (first, second, after)] == [True, False, True]
    finally:
        await one.close()
        await other.close()


async def test_who_wants_the_same_key_waits_for_the_first_to_commit(store: PostgresStore) -> None:
    key = uuid4().hex
    one, other = await asyncpg.connect(store.address.dsn), await asyncpg.connect(store.address.dsn)
    try:
        first = a_task(idempotency_key=key)
        async with other.transaction():
            async with one.transaction():
                await store.join(one).enqueue([first])
                waiting = asyncio.ensure_future(store.join(other).enqueue([a_task(idempotency_key=key)]))
                done, _ = await asyncio.wait([waiting], timeout=0.2)
                assert not done
            (answer,) = await waiting

        assert (answer.id, answer.created) == (first.id, False)
    finally:
        await one.close()
        await other.close()


# -- SQLAlchemy --------------------------------------------------------------------------------------


async def test_sqlalchemy_blocks_savepoints_and_scoped_sessions(store: PostgresStore) -> None:
    engine = create_engine(store.address.dsn.replace("postgresql://", "postgresql+psycopg://"))
    kept, undone, scoped = a_task(fingerprint=uuid4().hex), a_task(), a_task()
    try:
        with Session(engine) as session, session.begin():
            inner = session.begin_nested()
            store.join(session).enqueue([undone])
            inner.rollback()
            store.join(session).enqueue([kept])
        sessions = scoped_session(sessionmaker(engine))
        store.join(sessions).enqueue([scoped])
        sessions.commit()
        sessions.remove()
    finally:
        engine.dispose()

    assert [await exists(store, new.id) for new in (kept, undone, scoped)] == [True, False, True]


async def test_sqlalchemy_async_scoped_sessions(store: PostgresStore) -> None:
    engine = create_async_engine(store.address.dsn.replace("postgresql://", "postgresql+asyncpg://"))
    new, refused = a_task(fingerprint=uuid4().hex), uuid4().hex
    await enqueue_one(store, fingerprint=refused)
    sessions = async_scoped_session(async_sessionmaker(engine, class_=AsyncSession), asyncio.current_task)
    try:
        await store.join(sessions).enqueue([new])
        with pytest.raises(DuplicateTask):
            await store.join(sessions).enqueue([a_task(fingerprint=refused)])
        await sessions.execute(text(ORDER))
        await sessions.commit()
        await sessions.remove()
    finally:
        await engine.dispose()

    assert await exists(store, new.id)


# -- through the public names ------------------------------------------------------------------------


def app_on(store: Store) -> tuple[App, Any]:
    app = App(store)

    @app.task(name="orders.ship")
    def ship(order_id: int) -> None: ...

    return app, ship


async def test_a_task_type_within_a_blocking_connection(store: PostgresStore) -> None:
    _, ship = app_on(store)
    with psycopg.connect(store.address.dsn) as connection:
        connection.execute(ORDER)
        handle = ship.using(within=connection).enqueue(order_id=1)
        other = await ship.using(within=connection).aenqueue(order_id=2)
        before = await exists(store, handle.id)
        connection.commit()

    task = await load(store, handle.id)
    assert (before, task.type, json.loads(task.payload)) == (False, "orders.ship", {"order_id": 1})
    assert await exists(store, other.id)


async def test_a_task_type_within_an_async_connection(store: PostgresStore) -> None:
    app, ship = app_on(store)
    connection = await asyncpg.connect(store.address.dsn)
    try:
        async with connection.transaction():
            handle = await ship.using(within=connection, unique=True).aenqueue(order_id=uuid4().int % 10**9)
            steps = [ship.step(order_id=1), ship.step(order_id=2)]
            group = await app.client.enqueue_group(steps, ship.step(order_id=3), within=connection)
            before = await exists(store, handle.id)
        with pytest.raises(InvalidOption, match="aenqueue"):
            ship.using(within=connection).enqueue(order_id=1)
    finally:
        await connection.close()

    assert not before
    assert await state_of(store, handle.id) is State.READY
    assert await state_of(store, group[-1].id) is State.WAITING


# -- Django ------------------------------------------------------------------------------------------

DJANGO = """
    import sys
    from datetime import timedelta
    from urllib.parse import urlsplit

    import django
    from django.conf import settings

    address = urlsplit(sys.argv[1])
    settings.configure(
        USE_TZ=sys.argv[2] == "aware",
        TIME_ZONE="America/New_York",
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": address.path[1:],
                "USER": address.username,
                "HOST": address.hostname,
                "PORT": address.port,
            },
            "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
    )
    django.setup()

    from django.db import connection, connections, transaction

    from windlass import App
    from windlass.errors import DuplicateTask, InvalidOption, NotFound, NotSupported

    app = App(sys.argv[1])


    @app.task(name="django.ship")
    def ship(order_id: int, note: str = "") -> None: ...


    app.setup()
    made = []
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [77])
        made.append(ship.using(within=connection, delay="36h").enqueue(order_id=1, note="100 % {sure}"))
        unique = ship.using(within=connection, unique=True)
        made.append(unique.enqueue(order_id=2))
        try:
            unique.enqueue(order_id=2)
        except DuplicateTask:
            made.append(ship.using(within=connections["default"]).enqueue(order_id=3))
    try:
        with transaction.atomic():
            undone = ship.using(within=connection).enqueue(order_id=4)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    with transaction.atomic():
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1 / 0")
        except Exception:
            made.append(ship.using(within=connection).enqueue(order_id=5))
        try:
            with transaction.atomic(savepoint=False):
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        try:
            ship.using(within=connection).enqueue(order_id=5)
        except InvalidOption as error:
            assert "roll it back" in str(error), error
            transaction.set_rollback(False)
    made.append(ship.using(within=connection, idempotency_key="k").enqueue(order_id=6))
    try:
        ship.using(within=connections["other"]).enqueue(order_id=7)
    except NotSupported as error:
        assert "sqlite" in str(error)
    tasks = [handle.task() for handle in made]
    assert tasks[0].run_at - tasks[0].created_at == timedelta(hours=36)
    try:
        undone.task()
    except NotFound:
        print(len(tasks))
"""


@pytest.mark.system
@pytest.mark.parametrize("zone", ["aware", "naive"])
def test_django_from_its_own_programs(postgres_newest: Postgres, zone: str) -> None:
    url = postgres_newest.new_database(f"django_{uuid4().hex[:12]}")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (number integer)")

    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DJANGO), url, zone],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (ended.stdout, ended.returncode) == ("5\n", 0), ended.stderr


async def test_what_is_no_connection_but_looks_like_one(store: PostgresStore) -> None:
    engine = create_engine(store.address.dsn.replace("postgresql://", "postgresql+psycopg://"))
    with pytest.raises(NotSupported, match="Session"):
        store.join(engine)
    engine.dispose()


async def test_sqlalchemy_on_another_database(store: PostgresStore) -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(NotSupported, match="sqlite"):
        store.join(connection).enqueue([a_task()])
    engine.dispose()


# -- the page ----------------------------------------------------------------------------------------

DJANGO_PROGRAM = """
import sys

import django
from django.conf import settings

database = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": sys.argv[1],
    "USER": sys.argv[2],
    "HOST": sys.argv[3],
    "PORT": sys.argv[4],
}
settings.configure(DATABASES={"default": database})
django.setup()
import within_django

within_django.place(4)
"""
DJANGO_MODELS = """
from django.db import models


class Order(models.Model):
    id = models.IntegerField(primary_key=True)

    class Meta:
        app_label = "shop"
        db_table = "orders"
        managed = False
"""


@pytest.mark.system
async def test_the_page_about_it_can_be_followed(postgres_newest: Postgres, tmp_path: Path) -> None:
    url = postgres_newest.new_database(f"page_{uuid4().hex[:12]}")
    server, _, name = url.rpartition("/")
    blocks = {block.info: block.text for block in blocks_of(DOCS / "stores.md") if block.language == "python"}
    shown = [file for file in blocks if file.startswith("within_")]
    for file in ("shop.py", *shown):
        program = blocks[file].replace("//localhost/shop", f"{server.removeprefix('postgresql:')}/{name}")
        (tmp_path / file).write_text(program)
    (tmp_path / "models.py").write_text(DJANGO_MODELS)
    (tmp_path / "django_program.py").write_text(DJANGO_PROGRAM)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
    store = PostgresStore.from_url(url)
    await store.open()

    address = urlsplit(url)
    given = [name, address.username, address.hostname, str(address.port)]
    programs = [[file] for file in shown if file != "within_django.py"] + [["django_program.py", *given]]
    for program in programs:
        command = [sys.executable, "-W", "error", *program]
        ended = await asyncio.to_thread(
            subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
        )
        assert ended.returncode == 0, ended.stderr

    tasks = await all_tasks(store)
    await store.close()
    assert sorted(json.loads(task.payload)["order_id"] for task in tasks) == [1, 2, 3, 4]
