"""The schema: made once however many come at once, through a pooler, without great rights; up and down."""

import asyncio
import re
import subprocess
from collections.abc import Callable
from uuid import uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres
from windlass import App
from windlass._store.protocol import Phase
from windlass._stores.migrations import Step, load_steps
from windlass._stores.postgres import schema
from windlass._stores.postgres.connection.address import parse
from windlass._stores.postgres.connection.client import Connections
from windlass.errors import InvalidOption, NotSupported, SchemaMismatch

from .conftest import new_schema

KNOWN = load_steps("windlass._stores.postgres")
NEWEST = len(KNOWN)

OBJECTS = """
SELECT c.relname::text, c.relkind::text, pg_get_indexdef(i.indexrelid), pg_get_expr(c.relpartbound, c.oid)
FROM pg_class AS c LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
WHERE c.relnamespace = to_regnamespace($1) ORDER BY 1
"""


async def objects(connections: Connections) -> list[tuple[object, ...]]:
    async with connections.one() as connection:
        return [tuple(row) for row in await connection.fetch(OBJECTS, connections.address.schema)]


def further(*phases: str) -> tuple[Step, ...]:
    """The known steps and synthetic ones after them."""
    more = [
        Step(
            number=NEWEST + n,
            name=f"more{n}",
            up=f"-- phase: {phase}\nCREATE TABLE windlass.more{n} (a integer);",
            down=f"DROP TABLE windlass.more{n};",
        )
        for n, phase in enumerate(phases, 1)
    ]
    return (*KNOWN, *more)


async def test_up_down_up_gives_the_same_schema(connections: Connections) -> None:
    up = await schema.migrate(connections, None)
    first = await objects(connections)
    down = await schema.migrate(connections, 0)
    nothing = await objects(connections)
    await schema.migrate(connections, None)

    assert [(m.number, m.applied) for m in up] == [(n, True) for n in range(1, NEWEST + 1)]
    assert [(m.number, m.applied) for m in down] == [(n, False) for n in range(NEWEST, 0, -1)]
    assert [name for name, *_ in nothing] == ["schema_version", "schema_version_pkey"]
    assert await objects(connections) == first


@pytest.mark.parametrize("server", ["postgres15", "postgres_newest", "pgbouncer"])
async def test_any_number_may_make_it_at_once(request: pytest.FixtureRequest, server: str) -> None:
    running: Postgres | PgBouncer = request.getfixturevalue(server)
    url = new_schema(running.url)
    all_of_them = [Connections(parse(url)) for _ in range(8)]

    await asyncio.gather(*(schema.ensure(connections) for connections in all_of_them))
    listed = await schema.listed(all_of_them[0])
    down = await asyncio.gather(*(schema.migrate(connections, 0) for connections in all_of_them))
    for connections in all_of_them:
        await connections.close()

    assert [(m.number, m.applied) for m in listed] == [(n, True) for n in range(1, NEWEST + 1)]
    assert sum(map(len, down)) == NEWEST


async def test_nobody_meets_half_of_a_new_one(connections: Connections) -> None:
    """A program that starts while another makes the schema must not take it for an old one."""
    seen: set[int] = set()
    made = asyncio.create_task(schema.ensure(connections))
    while not made.done():
        seen.add(sum(step.applied for step in await schema.listed(connections)))
    await made
    assert seen <= {0, NEWEST}


async def test_where_nothing_is_missing_nobody_waits_for_the_lock(connections: Connections) -> None:
    await schema.ensure(connections)
    other = await connections.unpooled()
    async with other.transaction():
        key = schema.lock_key(connections.address.schema)
        await other.execute(f"SELECT pg_advisory_xact_lock({key})")

        await asyncio.wait_for(schema.ensure(connections), 5)
    await other.close()


async def test_the_number_is_asked_without_harm_to_a_transaction(connections: Connections) -> None:
    assert await connections.play(schema.number) == 0
    await schema.ensure(connections)
    assert await connections.play(schema.number) == NEWEST


async def test_there_is_no_step_beyond_the_last(connections: Connections) -> None:
    with pytest.raises(InvalidOption, match="from 0"):
        await schema.migrate(connections, 99)


async def test_a_newer_schema_is_refused_and_left_alone(connections: Connections) -> None:
    await schema.ensure(connections)
    async with connections.one() as connection:
        newer = f"UPDATE {connections.address.schema}.schema_version SET number = {NEWEST + 1}"
        await connection.execute(newer)

    with pytest.raises(SchemaMismatch, match="upgrade windlass"):
        await schema.ensure(connections)
    with pytest.raises(SchemaMismatch, match="upgrade windlass"):
        await schema.migrate(connections, None)

    assert [m.number for m in await schema.listed(connections)] == list(range(1, NEWEST + 2))


async def test_an_older_schema_waits_for_a_person(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    await schema.ensure(connections)
    monkeypatch.setattr(schema, "steps", lambda: further("before"))

    with pytest.raises(SchemaMismatch, match="windlass migrate"):
        await schema.ensure(connections)
    await schema.migrate(connections, None)

    await schema.ensure(connections)


async def test_outstanding_after_steps_are_tolerated(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    await schema.ensure(connections)
    monkeypatch.setattr(schema, "steps", lambda: further("before", "after"))
    with pytest.raises(SchemaMismatch):
        await schema.ensure(connections)
    await schema.migrate(connections, NEWEST + 1)

    await schema.ensure(connections)

    last = (await schema.listed(connections))[-1]
    assert (last.phase, last.applied) == (Phase.AFTER, False)


async def test_a_step_that_fails_leaves_nothing(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    await schema.ensure(connections)
    broken = Step(
        number=NEWEST + 1,
        name="broken",
        up="CREATE TABLE windlass.half (a integer); SELECT 1 / 0;",
        down="DROP TABLE windlass.half;",
    )
    monkeypatch.setattr(schema, "steps", lambda: (*KNOWN, broken))
    before = await objects(connections)

    with pytest.raises(asyncpg.DivisionByZeroError):
        await schema.migrate(connections, None)

    assert await objects(connections) == before
    assert await connections.play(schema.number) == NEWEST


async def test_who_may_only_use_a_schema_made_for_him_can_migrate(postgres15: Postgres) -> None:
    url = new_schema(postgres15.url)
    name = parse(url).schema
    owner = await asyncpg.connect(postgres15.url)
    await owner.execute(f"CREATE ROLE {name} LOGIN; CREATE SCHEMA {name} AUTHORIZATION {name}")
    await owner.close()
    connections = Connections(parse(url.replace("://windlass", f"://{name}")))

    await schema.ensure(connections)

    assert await connections.play(schema.number) == NEWEST
    await connections.close()


class TestMigrationsAsText:
    """The SQL of migrations, run by other programs than windlass."""

    def psql(
        self, server: Postgres, url: str, script: str, *options: str
    ) -> "subprocess.CompletedProcess[str]":
        command = [str(server.binaries / "psql"), "--no-psqlrc", "--quiet", *options, url]
        return subprocess.run(command, input=script, capture_output=True, text=True, timeout=50, check=False)

    def dump(self, server: Postgres, url: str) -> str:
        command = [str(server.binaries / "pg_dump"), url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
        return re.sub(r"(?m)^\\(un)?restrict .*$", "", done.stdout)  # a random word in each dump

    async def migrated(self, url: str, target: int | None = None) -> None:
        connections = Connections(parse(url))
        await schema.migrate(connections, target)
        await connections.close()

    @pytest.fixture
    def database(self, postgres15: Postgres) -> Callable[[], str]:
        """Make an empty database; returns its URL."""
        return lambda: postgres15.new_database(f"t_{uuid4().hex[:16]}")

    async def test_psql_makes_the_same_database(
        self, postgres15: Postgres, database: Callable[[], str]
    ) -> None:
        by_windlass, by_psql, in_two_parts = database(), database(), database()
        await self.migrated(by_windlass)

        whole = self.psql(postgres15, by_psql, App(by_psql).migration_sql())
        for script in (App(by_psql).migration_sql(0, 5), App(by_psql).migration_sql(5)):
            self.psql(postgres15, in_two_parts, script)

        assert (whole.returncode, whole.stderr) == (0, "")
        expected = self.dump(postgres15, by_windlass)
        assert "CREATE TABLE windlass.history_2" in expected
        assert self.dump(postgres15, by_psql) == expected
        assert self.dump(postgres15, in_two_parts) == expected

    async def test_psql_goes_back_like_windlass(
        self, postgres15: Postgres, database: Callable[[], str]
    ) -> None:
        by_windlass, by_psql = database(), database()
        for url in (by_windlass, by_psql):
            await self.migrated(url)
        await self.migrated(by_windlass, 3)

        self.psql(postgres15, by_psql, App(by_psql).migration_sql(NEWEST, 3))

        assert self.dump(postgres15, by_psql) == self.dump(postgres15, by_windlass)

    async def test_a_script_for_another_version_changes_nothing(
        self, postgres15: Postgres, database: Callable[[], str]
    ) -> None:
        url = database()
        await self.migrated(url, 7)
        before = self.dump(postgres15, url)

        for start in (0, 3, 8):
            refused = self.psql(postgres15, url, App(url).migration_sql(start), "--set=ON_ERROR_STOP=1")
            assert refused.returncode == 3
            assert f"migrates schema {start}, but the store has schema 7" in refused.stderr

        assert self.dump(postgres15, url) == before

    async def test_steps_that_are_not_due_are_skipped_by_a_psql_that_goes_on(
        self, postgres15: Postgres, database: Callable[[], str]
    ) -> None:
        by_windlass, by_psql = database(), database()
        await self.migrated(by_windlass)
        await self.migrated(by_psql, 7)

        done = self.psql(postgres15, by_psql, App(by_psql).migration_sql())

        assert done.stderr.count("this step migrates schema") == 7
        assert self.dump(postgres15, by_psql) == self.dump(postgres15, by_windlass)

    async def test_sqlalchemy_runs_it_as_alembic_would(
        self, postgres15: Postgres, database: Callable[[], str]
    ) -> None:
        by_windlass, by_alembic = database(), database()
        await self.migrated(by_windlass)
        engine = sqlalchemy.create_engine(by_alembic.replace("postgresql://", "postgresql+psycopg://"))

        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sqlalchemy.text(App(by_alembic).migration_sql()))
        engine.dispose()

        assert self.dump(postgres15, by_alembic) == self.dump(postgres15, by_windlass)

    async def test_a_schema_of_another_name_is_made(self, postgres15: Postgres, url: str) -> None:
        script = App(url).migration_sql()
        with psycopg.connect(postgres15.url, autocommit=True) as connection:
            connection.execute(script)

        assert "windlass." not in re.sub(r"(?m)^\s*--.*$", "", script)
        app = App(url)
        await app.open()
        await app.close()

    @pytest.mark.parametrize("url", ["sqlite:///tasks.db", "redis://localhost", "memory://"])
    def test_other_stores_have_none(self, url: str) -> None:
        with pytest.raises(NotSupported, match="only those of a store on Postgres"):
            App(url).migration_sql()
