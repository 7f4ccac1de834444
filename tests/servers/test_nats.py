"""The private NATS servers do what tests rely on: they keep what they acknowledged, and can be cut off."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import nats
import pytest
from nats.errors import Error
from nats.js import JetStreamContext

from tests.servers.nats import Nats
from tests.servers.nats_cluster import NatsCluster
from tests.servers.nats_proxy import Disturbance, NatsProxy

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]
NUMBER = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Nats]:
    with Nats.start(tmp_path) as server:
        yield server


@asynccontextmanager
async def connected(*ports: int) -> AsyncIterator[JetStreamContext]:
    async def ignore(_: Exception) -> None: ...

    servers = [f"nats://127.0.0.1:{port}" for port in ports]
    client = await nats.connect(
        servers, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=ignore, allow_reconnect=True
    )
    try:
        yield client.jetstream(timeout=1)
    finally:
        await client.close()


async def persist(stream: JetStreamContext, data: bytes) -> None:
    """Publish until it is acknowledged."""
    while True:
        try:
            await stream.publish("log", data)
        except (Error, TimeoutError):
            continue
        return


async def test_a_server_keeps_what_it_acknowledged_when_it_is_killed(server: Nats) -> None:
    async with connected(server.port) as stream:
        await stream.add_stream(name="LOG", subjects=["log"])
        await stream.publish("log", b"1")

        server.restart(signal.SIGKILL)

        await persist(stream, b"2")
        assert (await stream.get_msg("LOG", 1)).data == b"1"


@pytest.mark.full
async def test_a_proxy_loses_doubles_and_delays_messages(server: Nats) -> None:
    with NatsProxy.start(server.port, seed=1) as proxy:
        async with connected(proxy.port) as stream:
            await stream.add_stream(name="LOG", subjects=["log"])
            proxy.disturb(Disturbance(lost=0.2, doubled=0.2, late=0.2, delay=0.3), subject="log")
            for number in range(NUMBER):
                with suppress(Error, TimeoutError):
                    await stream.publish("log", str(number).encode(), timeout=0.1)
            proxy.spare()
            await persist(stream, b"end")
            last = (await stream.stream_info("LOG")).state.last_seq
            stored = [(await stream.get_msg("LOG", place)).data for place in range(1, last + 1)]

    numbers = [int(data) for data in stored if data != b"end"]
    lost, doubled = proxy.lost["request lost"], proxy.lost["request doubled"]
    assert min(lost, doubled, proxy.lost["request late"]) > NUMBER / 20
    assert len(set(numbers)) >= NUMBER - lost - proxy.lost["request late"]
    assert len(numbers) - len(set(numbers)) == doubled
    assert numbers != sorted(numbers)


@pytest.mark.full
async def test_an_isolated_leader_is_replaced_and_catches_up(tmp_path: Path) -> None:
    with NatsCluster.start(tmp_path) as cluster:
        async with connected(*(node.port for node in cluster.nodes)) as stream:
            await stream.add_stream(name="LOG", subjects=["log"], num_replicas=3)
            leader = cluster.leader("LOG")
            assert leader is not None
            cluster.isolate(leader)
            others = [node.port for node in cluster.nodes if node is not leader]
            async with connected(*others) as reachable:
                await persist(reachable, b"1")
                cluster.heal()
                leader.restart(signal.SIGKILL)
                await persist(reachable, b"2")
                last = (await reachable.stream_info("LOG")).state.last_seq

            assert (await stream.get_msg("LOG", last)).data == b"2"
