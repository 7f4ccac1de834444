"""Servers and streams that are unfit for a store are refused, with the reason."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import ClusterInfo, PeerInfo, RetentionPolicy, StorageType, StreamConfig

from tests.servers.nats import Nats
from windlass._store.protocol import Durability, Severity
from windlass._stores.jetstream import checks
from windlass._stores.jetstream.address import parse
from windlass._stores.jetstream.checks import Servers, copies_finding, prepare
from windlass._stores.jetstream.client import connect
from windlass.errors import StoreError, StoreUnavailable


class Plain(Nats):
    """A server without JetStream."""

    def _settings(self) -> str:
        return f"listen: 127.0.0.1:{self.port}\nhttp: 127.0.0.1:{self.monitor_port}\n"


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


UP, BEHIND, OFFLINE = (
    PeerInfo("n1", current=True),
    PeerInfo("n2", current=False),
    PeerInfo("n3", current=False, offline=True),
)


@pytest.mark.parametrize(
    ("peers", "severity", "said"),
    [
        ([UP, UP], Severity.OK, "all 3 servers have the whole log"),
        ([UP, OFFLINE], Severity.WARNING, "n3 is offline: 2 of 3 servers"),
        ([BEHIND, UP], Severity.WARNING, "n2 is behind: 2 of 3 servers"),
        ([UP, UP, BEHIND, OFFLINE], Severity.WARNING, "n2 is behind, n3 is offline: 3 of 5 servers"),
    ],
)
def test_servers_without_the_whole_log_are_named(
    peers: list[PeerInfo], severity: Severity, said: str
) -> None:
    found = copies_finding(ClusterInfo(leader="n0", replicas=peers))
    assert found.severity is severity
    assert said in found.message


async def test_a_server_without_jetstream_is_reported_while_an_owner_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("windlass._stores.jetstream.checks._TRIES", 5)
    monkeypatch.setattr("windlass._stores.jetstream.checks._PAUSE", 0.01)
    with Plain.start(tmp_path) as server:
        client = await connect(parse(server.new_url()))
        try:
            with pytest.raises(StoreUnavailable, match=r"no server with JetStream .* \(nats-server -js\)"):
                await prepare(client, parse(server.new_url()))
        finally:
            await client.close()
    assert ["no server with JetStream answers" in line for line in caplog.messages] == [True]


@pytest.mark.parametrize(("ahead", "said"), [(3600, r"\d+ s ahead of"), (-3600, r"\d+ s behind")])
async def test_a_clock_that_differs_from_that_of_the_servers_is_reported(
    url: str, ahead: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = parse(url)
    client = await connect(address)
    streams = client.jetstream()
    try:
        await prepare(client, address)
        created = (await streams.stream_info(address.log_stream)).created
        assert created is not None
        monkeypatch.setattr(checks, "now", lambda: created + timedelta(seconds=ahead))
        found = {one.subject: one.message for one in (await prepare(client, address)).findings()}
    finally:
        for stream in (address.log_stream, address.base_stream):
            await streams.delete_stream(stream)
        await client.close()

    assert re.search(said, found["clock"])


async def test_several_replicas_on_a_single_server_are_refused_at_once(url: str) -> None:
    address = parse(url.replace("replicas=1", "replicas=3"))
    client = await connect(address)
    try:
        with pytest.raises(StoreError, match=r"replicas=3 needs that many servers .* replicas=1 one server"):
            await prepare(client, address)
    finally:
        await client.close()
