"""Webhook delivery: one request, and what its response means."""

import asyncio
import socket

import pytest

from tests.loops.webhook_receiver import SECRET, webhook_receiver
from windlass import _webhook as delivery_module
from windlass._policy.addresses import parse_networks

LOOPBACK = delivery_module.new_fetcher(parse_networks(["127.0.0.1"]))
EMPTY = delivery_module.Message("a", b'{"data": {}}')


async def test_a_response_that_is_not_http_is_a_failure() -> None:
    def talk(listening: socket.socket) -> None:
        connected, _ = listening.accept()
        with connected:
            connected.recv(100_000)
            connected.sendall(b"\x1b[2J hunter2\r\n" * 100)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        talking = asyncio.to_thread(talk, listening)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        answer, _ = await asyncio.gather(delivery_module.deliver(url, EMPTY, None, LOOPBACK), talking)

    assert (answer.taken, answer.status, answer.reason) == (False, None, "BadStatusLine")


async def test_an_unknown_status_is_reported_as_a_number() -> None:
    with webhook_receiver(799) as receiver:
        answer = await delivery_module.deliver(receiver.url, EMPTY, None, LOOPBACK)

    assert (answer.taken, answer.reason) == (False, "799")


async def test_an_id_that_cannot_be_signed_is_a_failure() -> None:
    with webhook_receiver() as receiver:
        unfit = delivery_module.Message("a.b", b"{}")
        answer = await delivery_module.deliver(receiver.url, unfit, SECRET, LOOPBACK)

    assert (answer.taken, receiver.messages) == (False, [])
    assert answer.reason.startswith("message_id must be")


async def test_an_address_inside_the_network_is_not_reached() -> None:
    with webhook_receiver() as receiver:
        answer = await delivery_module.deliver(receiver.url, EMPTY, None, delivery_module.new_fetcher())

    assert (answer.taken, answer.status, receiver.messages) == (False, None, [])
    assert answer.reason == (
        "the address 127.0.0.1 is not public; if requests to it are intended, add its network to "
        "allow_addresses"
    )


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://[bad/", "http://a:b@127.0.0.1/", "", "//x"])
async def test_a_url_that_was_stored_unchecked_is_a_failure(url: str) -> None:
    answer = await delivery_module.deliver(url, EMPTY, None, LOOPBACK)

    assert (answer.taken, answer.status) == (False, None)
