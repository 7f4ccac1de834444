"""Servers and streams that are unfit for a store are refused, with the reason."""

from typing import Any

import pytest
from nats.js.api import RetentionPolicy, StorageType, StreamConfig

from windlass._store.protocol import Durability
from windlass._stores.jetstream.address import parse
from windlass._stores.jetstream.checks import Servers, prepare
from windlass._stores.jetstream.client import connect
from windlass.errors import StoreError

UNFIT: dict[str, Any] = {
    "max_msgs": 100,
    "max_bytes": 1 << 20,
    "max_age": 60.0,
    "max_msg_size": 1000,
    "max_msgs_per_subject": 1,
    "retention": RetentionPolicy.WORK_QUEUE,
    "allow_rollup_hdrs": True,
    "storage": StorageType.MEMORY,
}


@pytest.mark.parametrize("setting", UNFIT)
async def test_a_stream_that_could_lose_entries_is_refused(url: str, setting: str) -> None:
    address = parse(url)
    client = await connect(address)
    streams = client.jetstream()
    chosen = {"storage": StorageType.FILE, setting: UNFIT[setting]}
    await streams.add_stream(StreamConfig(address.log_stream, subjects=[address.subject("log")], **chosen))
    try:
        with pytest.raises(StoreError, match=f"{address.log_stream} is unfit .* another {setting};"):
            await prepare(client, address)
    finally:
        await streams.delete_stream(address.log_stream)
        await client.close()


async def test_streams_are_created_once(url: str) -> None:
    address = parse(url)
    client = await connect(address)
    try:
        assert await prepare(client, address) == await prepare(client, address)
    finally:
        for stream in (address.log_stream, address.base_stream):
            await client.jetstream().delete_stream(stream)
        await client.close()


@pytest.mark.parametrize(
    ("synced", "durability", "why"),
    [
        (True, Durability.DURABLE, "3 servers keep the log and a majority of them syncs"),
        (False, Durability.RELAXED, "set sync_interval: always"),
        (None, Durability.RELAXED, "not visible"),
    ],
)
def test_the_promise_depends_on_what_is_synced(synced: bool | None, durability: Durability, why: str) -> None:
    promise = Servers(version=(2, 15, 1), replicas=3, max_payload=1 << 20, synced=synced).promise
    assert promise.durability is durability
    assert why in promise.why
