"""A store that an older windlass has left: its tables in the log, in an older schema."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import time_ns

from windlass._ids import new_ids
from windlass._model.task import NewTask, TaskId
from windlass._stores.jetstream.address import Address
from windlass._stores.jetstream.checks import prepare
from windlass._stores.jetstream.client import connect
from windlass._stores.jetstream.entry import PAGE_BYTES, pack
from windlass._stores.jetstream.log import Appender
from windlass._stores.jetstream.stream import StreamLog
from windlass._stores.sqlite import SQLiteStore

BATCH = 1000


async def write_old_store(
    address: Address, folder: Path, *, schema: int, tasks: int, queues: Sequence[str]
) -> list[TaskId]:
    """Write tasks into a log that is empty, in this version of the schema; returns their ids."""
    path = folder / "old.db"
    ids = await _write_file(path, schema, tasks, queues)
    data = path.read_bytes()
    pages = {at // PAGE_BYTES + 1: data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)}
    client = await connect(address)
    try:
        await prepare(client, address)
        log = StreamLog(client, address)
        appender = Appender(log, place=1, owner="of an older version", now=lambda: time_ns() // 1000)
        await appender.take()
        await appender.commit(pack(pages), len(pages))
    finally:
        await client.close()
    return ids


async def _write_file(path: Path, schema: int, tasks: int, queues: Sequence[str]) -> list[TaskId]:
    store = SQLiteStore(path)
    await store.open()
    ids = new_ids(tasks)
    noise = Random(tasks)
    for first in range(0, tasks, BATCH):
        await store.enqueue(
            [
                NewTask(
                    id=task_id,
                    type="old",
                    payload=b'{"noise":"%s"}' % noise.randbytes(100).hex().encode(),
                    root=task_id,
                    queue=noise.choice(queues),
                )
                for task_id in ids[first : first + BATCH]
            ]
        )
    await store.close()
    await store.migrate(schema)
    return ids
