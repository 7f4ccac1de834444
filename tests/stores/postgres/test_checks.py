"""The health report: each trouble is found, and the finding says what to do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres
from windlass._store.protocol import Durability, Finding, Severity
from windlass._stores.migrations import Step, load_steps
from windlass._stores.postgres import schema
from windlass._stores.postgres.connection.address import parse
from windlass._stores.postgres.connection.client import Connections
from windlass._stores.postgres.connection.server import Server
from windlass._stores.postgres.upkeep import checks

from .conftest import new_schema


async def run(connections: Connections, sql: str, *parameters: Any) -> None:
    async with connections.one() as connection:
        await connection.execute(sql.format(schema=connections.address.schema), *parameters)


async def found(connections: Connections, subject: str, now: datetime | None = None) -> list[Finding]:
    """What is wrong with a subject."""
    findings = await checks.check(connections, now)
    assert all(finding.message for finding in findings)
    return [one for one in findings if one.subject == subject and one.severity is not Severity.OK]


@pytest.fixture
async def made(connections: Connections) -> Connections:
    await schema.ensure(connections)
    return connections


@pytest.mark.parametrize("server", ["postgres15", "postgres_newest"])
async def test_a_fresh_store_is_well_but_for_what_tests_do_without(
    request: pytest.FixtureRequest, server: str
) -> None:
    running: Postgres = request.getfixturevalue(server)
    connections = Connections(parse(new_schema(running.url)))
    await schema.ensure(connections)

    findings = await checks.check(connections, None)
    await connections.close()

    assert {one.subject for one in findings if one.severity is not Severity.OK} == {"durability"}
    assert {one.subject for one in findings} >= {"schema", "indexes", "tables", "history", "vacuum", "clock"}


async def test_without_a_schema_there_is_nothing_to_look_at(connections: Connections) -> None:
    (finding,) = await checks.check(connections, None)

    assert (finding.severity, finding.subject) == (Severity.ERROR, "schema")
    assert "windlass migrate" in finding.message


async def test_an_outstanding_step_for_after_is_a_reminder(
    made: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = load_steps("windlass._stores.postgres")
    late = Step(
        number=len(known) + 1,
        name="late",
        up="-- phase: after\nCREATE INDEX task_late ON windlass.task (type);",
        down="DROP INDEX windlass.task_late;",
    )
    monkeypatch.setattr(schema, "steps", lambda: (*known, late))

    (reminder,) = await found(made, "schema")

    assert reminder.severity is Severity.WARNING
    assert "--phase after" in reminder.message
    assert await found(made, "indexes") == []


async def test_missing_and_unusable_indexes(made: Connections) -> None:
    await run(made, "DROP INDEX {schema}.task_ready")
    await run(made, "ALTER TABLE {schema}.session DROP CONSTRAINT session_pkey")
    await run(made, "CREATE INDEX history_more ON ONLY {schema}.history (type)")

    missing, broken = await found(made, "indexes")

    assert "session_pkey, task_ready" in missing.message
    assert "history_more" in broken.message
    assert "REINDEX" in broken.message


def test_what_the_scripts_make_is_read_off_them() -> None:
    expected = checks.created_by(load_steps("windlass._stores.postgres"))

    assert {"task", "history", "history_rest", "idempotency", "session"} <= expected.tables
    assert expected.unlogged == {"listener"}
    assert {
        "task_pkey",
        "task_ready",
        "task_fingerprint",
        "history_id",
        "idempotency_pkey",
    } <= expected.indexes
    assert "history_pkey" not in expected.indexes


async def test_tables_that_a_crash_would_empty(made: Connections) -> None:
    await run(made, "ALTER TABLE {schema}.idempotency SET UNLOGGED")

    (finding,) = await found(made, "tables")

    assert "idempotency SET LOGGED" in finding.message


async def test_a_table_that_nobody_vacuums(made: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MIN_DEAD_ROWS", 10)
    table = f"{made.address.schema}.idempotency"
    async with made.one() as connection:
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        await connection.execute(
            f"INSERT INTO {table} SELECT '', n::text, gen_random_uuid(), '' FROM generate_series(1, 50) AS n"
        )
        await connection.execute(f"DELETE FROM {table}")
        await connection.execute("SELECT pg_stat_force_next_flush()")

    messages = [finding.message for finding in await found(made, "vacuum")]

    assert any("autovacuum is off" in message and "RESET" in message for message in messages)
    assert any("50 dead rows" in message and "never vacuumed" in message for message in messages)


async def test_days_that_are_missing_and_tasks_without_one(made: Connections) -> None:
    later = datetime.now(UTC) + timedelta(days=2)
    await run(
        made,
        "INSERT INTO {schema}.session (id, worker, about, started_at, beat_at, expires_at) "
        "VALUES ('s', 'w', '{{}}', now(), now(), now())",
    )

    (missing,) = await found(made, "history", later)
    (expired,) = await found(made, "tasks", later)

    assert f"{later.date() + timedelta(days=1)}" in missing.message
    assert "1 worker session has expired" in expired.message


async def test_a_transaction_that_pins_vacuum(made: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_TRANSACTION_SECONDS", 0.0)
    other = await asyncpg.connect(made.address.dsn, server_settings={"application_name": "shop"})
    async with other.transaction(isolation="repeatable_read"):
        await other.execute("SELECT 1")

        messages = [finding.message for finding in await found(made, "vacuum")]

    pid = other.get_server_pid()
    await other.close()
    assert any(
        f"process {pid} (shop)" in message and "pg_terminate_backend" in message for message in messages
    )


async def test_tasks_that_lie_about(made: Connections) -> None:
    for state in ("running", "waiting"):
        await run(
            made,
            "INSERT INTO {schema}.task (id, root, run_at, created_at, boost, priority, max_attempts, state, "
            "type, queue, tenant, payload, enqueued_by, rank) VALUES (gen_random_uuid(), gen_random_uuid(), "
            f"now(), now(), 0, 0, 5, '{state}', 't', 'q', '', '{{{{}}}}', '', 0)",
        )

    messages = [finding.message for finding in await found(made, "tasks")]

    assert any("running without a session" in message for message in messages)
    assert any("waiting for no other task" in message for message in messages)


async def test_clocks_that_differ(made: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_CLOCK_SKEW", timedelta(days=-1))

    (finding,) = await found(made, "clock")

    assert "time server" in finding.message


async def test_a_pooler_wants_a_way_round_it(pgbouncer: PgBouncer, postgres_newest: Postgres) -> None:
    url = new_schema(pgbouncer.url)
    without = Connections(parse(url))
    past = Connections(parse(f"{url}&listen={postgres_newest.url}"))
    await schema.ensure(without)

    (finding,) = await found(without, "pooler")
    assert "listen=" in finding.message
    assert await found(past, "pooler") == []
    for connections in (without, past):
        await connections.close()


async def test_who_may_see_little_is_told_so(made: Connections, postgres15: Postgres) -> None:
    name = made.address.schema
    await run(
        made,
        f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {name} TO {name}; "
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {name}",
    )
    modest = Connections(parse(f"{postgres15.url.replace('://windlass', f'://{name}')}?schema={name}"))

    findings = await checks.check(modest, None)
    await modest.close()

    assert [one for one in findings if one.severity is Severity.ERROR] == []
    assert any(one.subject == "rights" and "pg_read_all_stats" in one.message for one in findings)


@pytest.mark.parametrize(
    ("settings", "durability", "word"),
    [
        ({"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}, Durability.DURABLE, "disk"),
        ({"fsync": "on", "synchronous_commit": "local"}, Durability.DURABLE, "disk"),
        ({"fsync": "off"}, Durability.RELAXED, "fsync"),
        ({"synchronous_commit": "off"}, Durability.RELAXED, "synchronous_commit"),
        ({"full_page_writes": "off"}, Durability.RELAXED, "full_page_writes"),
    ],
)
def test_the_promise_is_what_the_server_is_set_up_for(
    settings: dict[str, str], durability: Durability, word: str
) -> None:
    promise = Server(pooled=False, settings=settings).promise

    assert promise.durability is durability
    assert word in promise.why
