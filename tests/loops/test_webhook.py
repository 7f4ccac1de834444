"""Webhook delivery: one request, and what its response means."""

import asyncio
import socket

from tests.loops.webhook_receiver import SECRET, webhook_receiver
from windlass import _webhook as delivery_module

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
        answer, _ = await asyncio.gather(delivery_module.deliver(url, EMPTY, None), talking)

    assert (answer.taken, answer.status, answer.reason) == (False, None, "BadStatusLine")


async def test_an_unknown_status_is_reported_as_a_number() -> None:
    with webhook_receiver(799) as receiver:
        answer = await delivery_module.deliver(receiver.url, EMPTY, None)

    assert (answer.taken, answer.reason) == (False, "799")


async def test_an_id_that_cannot_be_signed_is_a_failure() -> None:
    with webhook_receiver() as receiver:
        unfit = delivery_module.Message("a.b", b"{}")
        answer = await delivery_module.deliver(receiver.url, unfit, SECRET)

    assert (answer.taken, answer.reason, receiver.messages) == (False, "InvalidOption", [])
