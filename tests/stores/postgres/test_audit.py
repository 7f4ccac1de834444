"""The audit log in Postgres: one transaction with what it tells of, and no line lost on the way down. (I3)"""

import pytest

from windlass._model.limit import Limit
from windlass._model.queue import QueueSettings
from windlass._model.record import Audit, StoredRecord
from windlass._model.schedule import Schedule
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.connection.client import Connections
from windlass.testing.conformance.steps import OPERATOR, all_records, cancel, enqueue_one

BEFORE_SUBJECTS = 2
NO_TASK = "00000000-0000-0000-0000-000000000000"

NO_LINES = "ALTER TABLE {schema}.audit ADD CONSTRAINT no_line_today CHECK (false) NOT VALID"
LINES_BELOW = "SELECT task_id::text, detail FROM {schema}.audit ORDER BY id"
AS_OLD_CODE_DOES = """
INSERT INTO {schema}.audit (id, at, who, why, action, task_id, detail)
SELECT gen_random_uuid(), now(), 'ann', '', 'cancel', '{task}', ''
"""


async def execute(connections: Connections, sql: str) -> list[tuple[object, ...]]:
    async with connections.one() as connection:
        schema = connections.address.schema
        return [tuple(row) for row in await connection.fetch(sql.format(schema=schema, task=NO_TASK))]


@pytest.mark.parametrize(
    ("record", "standing"),
    [
        (QueueSettings(name="a", paused=True), QueueSettings(name="b")),
        (Limit(name="a", running=1), Limit(name="b", running=2)),
        (Schedule(name="a", type="t"), Schedule(name="b", type="t")),
    ],
    ids=["queue", "limit", "schedule"],
)
async def test_what_cannot_be_logged_is_not_done(
    store: PostgresStore,
    connections: Connections,
    record: QueueSettings | StoredRecord,
    standing: QueueSettings | StoredRecord,
) -> None:
    await store.put(standing)
    await execute(connections, NO_LINES)

    with pytest.raises(Exception, match="no_line_today"):
        await store.put(record, OPERATOR)
    with pytest.raises(Exception, match="no_line_today"):
        await store.remove(type(record), "b", OPERATOR)

    assert await all_records(store, type(record)) == (standing,)


async def test_going_down_and_up_keeps_every_line(store: PostgresStore, connections: Connections) -> None:
    task_id = await enqueue_one(store)
    await cancel(store, task_id)
    await store.put(QueueSettings(name="mail", stripes=2), OPERATOR)
    await store.remove(QueueSettings, "mail", OPERATOR)
    cancelled, put, removed = await all_records(store, Audit)

    await store.migrate(BEFORE_SUBJECTS)
    below = await execute(connections, LINES_BELOW)
    await store.migrate()

    assert below == [
        (task_id, cancelled.detail),
        (NO_TASK, f"queue mail {put.detail}"),
        (NO_TASK, "queue mail"),
    ]
    lines = await all_records(store, Audit)
    assert lines[0] == cancelled
    assert [line.id for line in lines] == [cancelled.id, put.id, removed.id]


async def test_code_of_before_goes_on_to_write_lines(store: PostgresStore, connections: Connections) -> None:
    await execute(connections, AS_OLD_CODE_DOES)

    (line,) = await all_records(store, Audit)
    assert (line.task_id, line.subject) == (NO_TASK, "")
