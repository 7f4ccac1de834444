"""An operator's action on Postgres while another transaction changes the same tasks."""

import asyncio

from tests.loops.workers import eventually
from windlass._model.filter import Discard, Filter
from windlass._model.state import State
from windlass._stores.postgres import PostgresStore
from windlass.testing.conformance.steps import (
    OPERATOR,
    bury,
    enqueue_and_claim,
    settle_now,
    state_of,
    worker_on,
)

BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
REPLAYED = "UPDATE {schema}.task SET state = 'ready', finished_at = NULL WHERE id = $1"


async def test_a_task_that_leaves_the_state_meanwhile_is_left_alone(store: PostgresStore) -> None:
    """The action finds a dead task, waits for its lock, and must look at its state again."""
    worker = await worker_on(store)
    claimed = await enqueue_and_claim(store, worker)
    await settle_now(store, bury(claimed))
    task_id = claimed.task.id

    connections = store.connections
    async with connections.one() as connection, connections.transaction(connection):
        await connection.execute(REPLAYED.format(schema=connections.address.schema), task_id)
        applied = asyncio.create_task(
            store.apply(Discard(by=OPERATOR), Filter(states=(State.DEAD,)), limit=10)
        )
        await eventually(lambda: connection.fetchval(BLOCKED))

    assert (await applied).ids == ()
    assert await state_of(store, task_id) is State.READY
