"""The history's days: made ahead, dropped whole with what hangs on them, and never at the cost of others."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from windlass._model.state import State
from windlass._stores.postgres import schema
from windlass._stores.postgres.connection.client import Connections
from windlass._stores.postgres.script import Query
from windlass._stores.postgres.upkeep import partitions

NOON = datetime(2024, 5, 15, 12, tzinfo=UTC)
TODAY = NOON.date()
DAY = timedelta(days=1)

ENDED = """
INSERT INTO {schema}.history (
    id, root, run_at, created_at, claimed_at, finished_at, boost, fence, duration, priority, attempt,
    max_attempts, cancel_requested, state, type, queue, tenant, payload, idempotency_key, enqueued_by
) VALUES ($1, $1, $2, $2, $2, $2, 0, $3, 0, 0, 1, 5, false, 'completed', 't', 'q', '', '{{}}', $4, '')
"""


async def run(connections: Connections, sql: str, *parameters: Any) -> list[Any]:
    async with connections.one() as connection:
        rows = await connection.fetch(sql.format(schema=connections.address.schema), *parameters)
        return [row[0] for row in rows]


async def ended(connections: Connections, at: datetime, fence: int = 1, key: str | None = None) -> str:
    task_id = str(uuid4())
    await run(connections, ENDED, task_id, at, fence, key)
    return task_id


@pytest.fixture
async def made(connections: Connections) -> Connections:
    await schema.ensure(connections, NOON)
    return connections


async def test_a_new_schema_has_the_days_around_now(made: Connections) -> None:
    expected = [TODAY + n * DAY for n in (-1, 0, 1, 2)]

    assert await partitions.existing(made) == expected
    assert await partitions.prepare(made, NOON) == 0


async def test_days_begin_at_midnight_utc(made: Connections) -> None:
    midnight = datetime(2024, 5, 15, tzinfo=UTC)
    await ended(made, midnight)
    await ended(made, midnight - timedelta(microseconds=1))

    for day in ("20240514", "20240515"):
        assert await run(made, f"SELECT count(*) FROM {{schema}}.history_{day}") == [1]


async def test_days_are_made_ahead_by_any_number_at_once(made: Connections) -> None:
    later = NOON + 2 * DAY

    taken = await asyncio.gather(*(partitions.prepare(made, later) for _ in range(4)))

    assert sum(taken) == 2
    assert await partitions.existing(made) == [TODAY + n * DAY for n in range(-1, 5)]


async def test_a_day_whose_tasks_lie_elsewhere_already_is_left_out(made: Connections) -> None:
    await ended(made, NOON + 4 * DAY)

    assert await partitions.ensure_days(made, [TODAY + n * DAY for n in (3, 4, 5)]) == 2

    assert TODAY + 4 * DAY not in await partitions.existing(made)
    assert await run(made, "SELECT count(*) FROM {schema}.history_rest") == [1]


async def test_a_lock_held_by_another_is_not_waited_for(made: Connections) -> None:
    other = await made.unpooled()
    async with other.transaction():
        await other.execute(f"LOCK TABLE {made.address.schema}.history IN ACCESS SHARE MODE")
        await other.execute(f"LOCK TABLE {made.address.schema}.history_rest IN ACCESS SHARE MODE")

        assert await asyncio.wait_for(partitions.prepare(made, NOON + DAY), 5) == 0
        assert not await asyncio.wait_for(partitions.drop_before(made, TODAY), 5)
    await other.close()

    assert await partitions.prepare(made, NOON + DAY) == 1
    assert await partitions.existing(made) == [TODAY + n * DAY for n in (-1, 0, 1, 2, 3)]


async def test_a_row_type_that_another_process_has_just_created_is_not_an_error(made: Connections) -> None:
    """Two processes that create the same day collide at its row type if the first has not committed yet."""
    await run(made, f"CREATE TYPE {{schema}}.history_{TODAY + 3 * DAY:%Y%m%d} AS (n int)")

    assert await partitions.prepare(made, NOON + DAY) == 0

    await run(made, f"DROP TYPE {{schema}}.history_{TODAY + 3 * DAY:%Y%m%d}")
    assert await partitions.prepare(made, NOON + DAY) == 1


async def test_a_task_that_ends_while_its_day_is_made_is_stored_in_it(made: Connections) -> None:
    """As after days without a keeper: the row was on its way to the default partition."""
    later, schema = NOON + 5 * DAY, made.address.schema
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{schema}.history_rest'::regclass"
    other = await made.unpooled()
    async with other.transaction():
        await other.execute(partitions.create_statement(later.date(), schema))
        insert = Query("ended", (str(uuid4()), later, 1, None), ENDED.format(schema=schema))
        ending = asyncio.create_task(made.fetch(insert))
        async with asyncio.timeout(10):
            while await run(made, waits) == [0]:
                assert not ending.done()
    await other.close()

    await ending
    assert await run(made, f"SELECT count(*) FROM {{schema}}.history_{later:%Y%m%d}") == [1]


async def test_settling_goes_on_while_a_day_is_made(made: Connections) -> None:
    """Who holds the history for inserting is no hindrance, nor is he hindered."""
    other = await made.unpooled()
    async with other.transaction():
        await other.execute(ENDED.format(schema=made.address.schema), str(uuid4()), NOON, 1, None)

        assert await partitions.prepare(made, NOON + DAY) == 1
    await other.close()


class TestDropping:
    async def test_days_go_with_what_hangs_on_them(self, made: Connections) -> None:
        yesterday = NOON - DAY
        gone = [await ended(made, yesterday, fence=2, key="k"), await ended(made, yesterday)]
        kept = await ended(made, NOON, fence=2, key="other")
        for task_id in (gone[0], kept):
            await run(
                made,
                "INSERT INTO {schema}.attempt (task_id, fence, number, claimed_at, finished_at, duration, "
                "outcome) VALUES ($1, 1, 1, $2, $2, 0, 'x')",
                task_id,
                yesterday,
            )
        for key, task_id, until in (("k", gone[0], None), ("other", kept, None), ("timed", gone[0], NOON)):
            await run(
                made, "INSERT INTO {schema}.idempotency VALUES ('', $1, $2, '', $3)", key, task_id, until
            )

        assert (await partitions.drop_before(made, TODAY)).total() == 2

        assert await partitions.existing(made) == [TODAY + n * DAY for n in (0, 1, 2)]
        assert [str(found) for found in await run(made, "SELECT task_id FROM {schema}.attempt")] == [kept]
        assert await run(made, "SELECT key FROM {schema}.idempotency ORDER BY key") == ["other", "timed"]

    async def test_a_day_that_another_task_waits_for_stays(self, made: Connections) -> None:
        predecessor = await ended(made, NOON - DAY, fence=2)
        await run(made, "INSERT INTO {schema}.dependency VALUES ($1, gen_random_uuid())", predecessor)
        assert not await partitions.drop_before(made, TODAY + DAY)

        assert await partitions.existing(made) == [TODAY + n * DAY for n in (-1, 1, 2)]

    async def test_what_others_need_of_a_day_stays_and_the_rest_goes(self, made: Connections) -> None:
        schema = made.address.schema
        needed, gone = await ended(made, NOON - DAY, fence=2, key="n"), await ended(made, NOON - DAY, 2, "g")
        for key, task_id in (("n", needed), ("g", gone)):
            await run(made, "INSERT INTO {schema}.idempotency VALUES ('', $1, $2, '', NULL)", key, task_id)
        await run(made, "INSERT INTO {schema}.dependency VALUES ($1, gen_random_uuid())", needed)

        assert (await partitions.drop_before(made, TODAY)).total() == 1
        assert not await partitions.drop_before(made, TODAY)

        assert await partitions.existing(made) == [TODAY + n * DAY for n in (-1, 0, 1, 2)]
        assert [str(found) for found in await run(made, "SELECT id FROM {schema}.history")] == [needed]
        assert await run(made, "SELECT key FROM {schema}.idempotency") == ["n"]
        indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = $1 AND tablename = $2"
        names = [f"history_{day:%Y%m%d}" for day in (TODAY - DAY, TODAY)]
        assert await run(made, indexes, schema, names[0]) == await run(made, indexes, schema, names[1])

        await run(made, "DELETE FROM {schema}.dependency")
        assert (await partitions.drop_before(made, TODAY)).total() == 1
        assert await partitions.existing(made) == [TODAY + n * DAY for n in (0, 1, 2)]

    async def test_a_day_stays_while_more_than_half_of_it_is_needed(self, made: Connections) -> None:
        ids = [await ended(made, NOON - DAY) for _ in range(3)]
        for needed in ids[:2]:
            await run(made, "INSERT INTO {schema}.dependency VALUES ($1, gen_random_uuid())", needed)

        assert not await partitions.drop_before(made, TODAY)

        assert await run(made, "SELECT count(*) FROM {schema}.history") == [3]

    async def test_a_task_enqueued_meanwhile_keeps_what_it_needs(self, made: Connections) -> None:
        """An enqueue holds what it needs until it commits; a drop does not wait for it."""
        needed = await ended(made, NOON - DAY)
        await ended(made, NOON - DAY)
        schema = made.address.schema
        other = await made.unpooled()
        async with other.transaction():
            await other.execute(f"SELECT FROM {schema}.history WHERE id = $1 FOR KEY SHARE", needed)
            await other.execute(f"INSERT INTO {schema}.dependency VALUES ($1, gen_random_uuid())", needed)

            assert not await asyncio.wait_for(partitions.drop_before(made, TODAY), 5)
            assert await run(made, "SELECT count(*) FROM {schema}.history") == [2]
        await other.close()

        assert (await partitions.drop_before(made, TODAY)).total() == 1
        assert [str(found) for found in await run(made, "SELECT id FROM {schema}.history")] == [needed]

    @pytest.mark.parametrize(
        "meanwhile",
        [
            "INSERT INTO {schema}.dependency VALUES ('{gone}', gen_random_uuid())",
            "DELETE FROM {schema}.dependency",
        ],
        ids=["enqueued", "completed"],
    )
    async def test_a_record_and_its_key_stay_or_go_together(self, made: Connections, meanwhile: str) -> None:
        """Joins come and go while a day becomes smaller: here when a key is deleted."""
        needed, gone = [await ended(made, NOON - DAY, fence=2, key=key) for key in ("n", "g")]
        for key, task_id in (("n", needed), ("g", gone)):
            await run(made, "INSERT INTO {schema}.idempotency VALUES ('', $1, $2, '', NULL)", key, task_id)
        await run(made, "INSERT INTO {schema}.dependency VALUES ($1, gen_random_uuid())", needed)
        change = meanwhile.format(schema=made.address.schema, gone=gone)
        function = "CREATE FUNCTION {schema}.change() RETURNS trigger LANGUAGE plpgsql AS "
        await run(made, f"{function} $$BEGIN {change}; RETURN NULL; END$$")
        await run(
            made,
            "CREATE TRIGGER change AFTER DELETE ON {schema}.idempotency "
            "FOR EACH ROW EXECUTE FUNCTION {schema}.change()",
        )

        await partitions.drop_before(made, TODAY)

        records = {str(found) for found in await run(made, "SELECT id FROM {schema}.history")}
        keys = {str(found) for found in await run(made, "SELECT task_id FROM {schema}.idempotency")}
        assert needed in records
        assert keys == records

    async def test_a_drop_does_not_wait_for_a_task_that_is_enqueued_after_a_cancelled_join(
        self, made: Connections
    ) -> None:
        join, needed = await ended(made, NOON - DAY), await ended(made, NOON - DAY)
        schema = made.address.schema
        await run(made, "UPDATE {schema}.history SET state = 'cancelled' WHERE id = $1", join)
        await run(made, "INSERT INTO {schema}.dependency VALUES ($1, $2)", needed, join)
        other = await made.unpooled()
        async with other.transaction():
            await other.execute(f"SELECT FROM {schema}.history WHERE id = $1 FOR KEY SHARE", join)
            await other.execute(f"INSERT INTO {schema}.dependency VALUES ($1, gen_random_uuid())", join)

            assert not await asyncio.wait_for(partitions.drop_before(made, TODAY), 5)
        await other.close()

        assert not await partitions.drop_before(made, TODAY)
        assert await run(made, "SELECT count(*) FROM {schema}.history") == [2]

        await run(made, "DELETE FROM {schema}.dependency WHERE predecessor = $1", join)
        dropped = await partitions.drop_before(made, TODAY)
        assert dropped == {("q", State.CANCELLED): 1, ("q", State.COMPLETED): 1}
        assert await run(made, "SELECT count(*) FROM {schema}.dependency") == [0]

    async def test_several_processes_may_drop_the_same_days(self, made: Connections) -> None:
        days = [TODAY - n * DAY for n in range(1, 6)]
        await partitions.ensure_days(made, days)
        needed = []
        for day in days:
            at = datetime.combine(day, NOON.timetz())
            ids = [await ended(made, at) for _ in range(4)]
            if day.day % 2:
                needed.append(ids[0])
                await run(made, "INSERT INTO {schema}.dependency VALUES ($1, gen_random_uuid())", ids[0])

        dropped = await asyncio.gather(*(partitions.drop_before(made, TODAY) for _ in range(4)))
        dropped.append(await partitions.drop_before(made, TODAY))

        assert sum(one.total() for one in dropped) == 4 * len(days) - len(needed)
        left = {str(found) for found in await run(made, "SELECT id FROM {schema}.history")}
        assert left == {*needed}

    async def test_nothing_to_drop(self, made: Connections) -> None:
        assert not await partitions.drop_before(made, date(2020, 1, 1))


@pytest.mark.parametrize("name", ["history_rest", "history", "task", "history_2024", "history_2024051x"])
def test_not_every_table_is_a_day(name: str) -> None:
    assert partitions.day_of(name) is None
