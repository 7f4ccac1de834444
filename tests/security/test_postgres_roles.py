"""The roles of docs/least-privilege.md on a real Postgres: enough for each program, and no more."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta

import asyncpg
import psycopg
import pytest

from tests.docs.blocks import DOCS, blocks_of
from tests.examples import sample
from tests.loops.workers import drained, tasks
from tests.security.whole_program import enqueue, program, use_everything
from tests.servers.postgres import QUICK, Postgres
from windlass import App, Retention, State
from windlass._store.protocol import Severity
from windlass._stores.postgres import PostgresStore
from windlass.errors import DuplicateTask, StoreError
from windlass.testing.clock import ManualClock

ROLES = ("owner", "app", "producer", "reader")
TABLES = (
    *("task", "history", "history_rest", "idempotency", "dependency", "attempt", "session", "listener"),
    *("queue", "audit", "lead", "permit", "bucket", "record", "schema_version"),
)


class Shop:
    """A database with the roles of the page, and a table of somebody else."""

    def __init__(self, server: Postgres) -> None:
        self._url = server.new_database("shop")
        self.told: list[str] = []  # by programs, before there was a schema
        with self.connect("") as connection:
            for block in self._blocks("setup.sql"):
                connection.execute(block)
            connection.execute("CREATE SCHEMA other; CREATE TABLE other.secret (text text)")
            connection.execute("CREATE TABLE public.orders (id integer PRIMARY KEY)")

    def _blocks(self, name: str) -> list[bytes]:
        page = DOCS / "least-privilege.md"
        return [one.text.encode() for one in blocks_of(page) if (one.language, one.info) == ("sql", name)]

    async def try_without_schema(self) -> None:
        for role in ("app", "producer", "reader"):
            app = App(self.url(role))
            for attempt in (app.operator.migrate(), app.client.send("report", {})):
                with pytest.raises(StoreError) as raised:
                    await attempt
                self.told.append(str(raised.value))
            await app.close()

    async def migrate(self) -> None:
        app = App(self.url("owner"))
        await app.operator.migrate()
        await app.close()
        with self.connect("owner") as connection:
            for block in self._blocks("grants.sql"):
                connection.execute(block)

    def url(self, role: str) -> str:
        return self._url.replace("://windlass@", f"://windlass_{role}@")

    def connect(self, role: str) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(self.url(role) if role else self._url, autocommit=True)


@pytest.fixture(scope="module", params=sample([None], [15]))
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("postgres")
    with Postgres.start(folder, version=request.param, settings=QUICK) as server:
        shop = Shop(server)
        asyncio.run(shop.try_without_schema())
        asyncio.run(shop.migrate())
        yield shop


def test_without_the_schema_a_program_is_told_who_must_create_it(shop: Shop) -> None:
    assert len(shop.told) == 6
    for said in shop.told:
        assert "may not create or migrate" in said
        assert "run `windlass migrate` as the owner of the schema" in said


async def test_the_application_works_whole(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "windlass.keeper"):
        await use_everything(lambda: shop.url("app"))
    assert "cannot finish the chore" not in caplog.text


async def test_a_producer_enqueues_and_waits(shop: Shop) -> None:
    producer, worker = program(shop.url("producer")), program(shop.url("app"))
    await enqueue(producer)
    connection = await asyncpg.connect(shop.url("producer"))
    async with connection.transaction():
        await producer.client.send("report", {}, within=connection)
    await connection.close()
    handle = await producer.client.send("report", {"paid": 5})
    await drained(worker)
    assert await handle.result(timeout=5) == 1
    await producer.client.send("report", {}, after=[handle.id])  # which has ended
    with suppress(DuplicateTask):
        await enqueue(producer)
    await drained(worker)
    for app in (producer, worker):
        await app.close()


async def test_a_reader_sees_what_there_is(shop: Shop) -> None:
    app = App(shop.url("reader"))
    assert await tasks(app, State.COMPLETED)
    assert (await app.operator.audit()).items
    assert [one for one in await app.operator.check() if one.severity is Severity.ERROR] == []
    await app.operator.history("1h")
    async for _ in app.operator.export():
        continue
    with pytest.raises(StoreError, match="denied access"):
        await app.client.send("report", {})
    await app.close()


# -- what is refused ---------------------------------------------------------------------------------

DDL = (
    *(f"DROP TABLE windlass.{name}" for name in TABLES),
    *(f"TRUNCATE windlass.{name}" for name in TABLES),
    *(f"ALTER TABLE windlass.{name} ADD COLUMN x integer" for name in TABLES),
    *(f"CREATE TABLE {schema}.x ()" for schema in ("windlass", "public", "other")),
    *("CREATE TEMP TABLE x ()", "CREATE SCHEMA x", "CREATE ROLE x", "CREATE DATABASE x"),
    *("CREATE VIEW windlass.x AS SELECT 1", "CREATE INDEX ON windlass.task (tenant)"),
    *("DROP INDEX windlass.task_ready", "DROP SCHEMA windlass CASCADE", "ALTER SCHEMA windlass RENAME TO x"),
    "CREATE FUNCTION windlass.x() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "CREATE TRIGGER x AFTER INSERT ON windlass.task EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "ALTER TABLE windlass.history DETACH PARTITION windlass.history_rest",
    *("ALTER TABLE windlass.task OWNER TO CURRENT_USER", "REINDEX TABLE windlass.task"),
    *("COMMENT ON TABLE windlass.task IS 'x'", "GRANT windlass_owner TO CURRENT_USER"),
)
OTHERS = (
    *("SELECT * FROM other.secret", "INSERT INTO other.secret VALUES ('x')", "SELECT * FROM public.orders"),
    *("SELECT * FROM pg_authid", "SELECT * FROM pg_shadow", "SELECT * FROM pg_statistic"),
    *("SET ROLE windlass", "SET SESSION AUTHORIZATION windlass"),
    *("ALTER ROLE windlass_app SUPERUSER", "ALTER SYSTEM SET fsync = off", "DROP DATABASE windlass"),
    *("ALTER DATABASE shop OWNER TO CURRENT_USER", "CHECKPOINT", "SELECT pg_reload_conf()"),
    *("COPY windlass.task TO PROGRAM 'true'", "COPY (SELECT 1) TO PROGRAM 'true'"),
    *("COPY windlass.task FROM PROGRAM 'true'", "COPY (SELECT 1) TO '/tmp/x'"),
    *("COPY windlass.task FROM '/etc/passwd'", "SELECT pg_read_file('/etc/passwd')"),
    *("SELECT pg_ls_dir('.')", "SELECT lo_import('/etc/passwd')", "SELECT pg_read_binary_file('PG_VERSION')"),
    *("SELECT pg_switch_wal()", "SELECT pg_create_restore_point('x')", "SELECT pg_stat_reset()"),
    *("LOAD 'x'", "CREATE PUBLICATION x FOR ALL TABLES", "SET session_replication_role = replica"),
    *("SELECT pg_create_physical_replication_slot('x')", "SET lo_compat_privileges = on"),
)
MAY_INSERT = {"task", "dependency", "idempotency"}
MAY_UPDATE = {("task", "awaited"), ("history", "trace")}  # columns; and all of `idempotency`
ALONE = ("CREATE DATABASE", "DROP DATABASE", "ALTER SYSTEM")  # not in a transaction
APPENDED = ("schema_version", "audit")  # by an application, if at all


def forbidden(role: str, columns: list[tuple[str, str]]) -> Iterator[str]:
    """Statements that a role must not run."""
    if role == "owner":
        yield from (sql for sql in DDL if "windlass" not in sql)
        yield from (sql for sql in OTHERS if "windlass." not in sql or "COPY" in sql)
        return
    yield from (*DDL, *OTHERS)
    tables = APPENDED if role == "app" else TABLES
    yield from (f"DELETE FROM windlass.{name}" for name in tables)
    if role == "app":
        yield "INSERT INTO windlass.schema_version DEFAULT VALUES"
    else:
        may = MAY_INSERT if role == "producer" else set()
        yield from (f"INSERT INTO windlass.{name} DEFAULT VALUES" for name in TABLES if name not in may)
    for name, column in columns:
        is_its = role == "producer" and ((name, column) in MAY_UPDATE or name == "idempotency")
        if name in tables and not is_its:
            yield f"UPDATE windlass.{name} SET {column} = {column}"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_refused_everything_else(shop: Shop, role: str) -> None:
    sql = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'windlass'"
    with shop.connect("") as connection:
        columns = [(str(name), str(column)) for name, column in connection.execute(sql.encode())]
    statements = [*dict.fromkeys(forbidden(role, columns))]
    done: dict[str, str] = {}
    with shop.connect(role) as connection:
        for statement in statements:
            is_alone = statement.startswith(ALONE)
            try:
                with nullcontext() if is_alone else connection.transaction(force_rollback=True):
                    connection.execute(statement.encode())
                done[statement] = "done"
            except psycopg.errors.InsufficientPrivilege:
                continue
            except psycopg.Error as error:
                done[statement] = f"{error.sqlstate}: {error}"

    assert len(statements) >= (30 if role == "owner" else 100)
    assert done == {}


async def test_a_keeper_of_another_user_than_the_owner_does_all_but_partitions(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so once, and rows are pruned one by one; a keeper of the owner then has partitions."""
    clock = ManualClock(datetime.now(UTC))
    keep = Retention(completed=timedelta(days=3), cancelled=timedelta(days=3))
    store, owner = (PostgresStore.from_url(shop.url(role), clock=clock) for role in ("app", "owner"))
    app = program(store)
    await app.publish()
    for _ in range(8):
        await app.client.send("report", {})
        await drained(app)
        await store.prune(keep, 100)
        clock.advance(86400)
    kept = await tasks(app, State.COMPLETED)
    (finding,) = [one for one in await store.check() if one.subject == "history"]

    assert caplog.text.count("cannot create or drop daily partitions") == 1
    assert "run a keeper as the owner of the tables" in caplog.text
    assert finding.severity is Severity.WARNING
    assert "as the owner of the tables, which this user is not" in finding.message

    await owner.prune(keep, 1000)
    left = await tasks(app, State.COMPLETED)
    (finding,) = [one for one in await store.check() if one.subject == "history"]
    assert finding.severity is Severity.OK
    assert len(left) < len(kept)
    await app.close()
    await owner.close()
