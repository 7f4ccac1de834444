"""Hints over NATS: to every process while there are few workers, to one first if there are many."""

import asyncio
from pathlib import Path

import pytest

from tests.loops.workers import eventually
from tests.servers.owners import Owners
from windlass._model.lease import Claim
from windlass._store.protocol import Wake
from windlass._stores.jetstream import JetStreamStore
from windlass.testing.conformance.steps import a_task, worker_on

HANDLES = 8


class Idle:
    """A process' worth of listeners: a handle with one that counts its hints."""

    def __init__(self, store: JetStreamStore, queue: str) -> None:
        self.store = store
        self.hints = 0
        self._listening = asyncio.create_task(self._listen(queue))

    async def _listen(self, queue: str) -> None:
        async for wake in self.store.wakes([queue]):
            if wake is Wake.READY:
                self.hints += 1

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.wait([self._listening])
        await self.store.close()


async def idle_handles(store: JetStreamStore, queue: str) -> list[Idle]:
    """Handles that listen; each has had the hint that comes with listening."""
    handles = [Idle(store.another(), queue) for _ in range(HANDLES)]
    await eventually(lambda: all(one.hints == 1 for one in handles))
    return handles


@pytest.mark.parametrize("queue", ["mail", "mail.to/all *>"])
async def test_every_process_is_hinted_at_while_there_are_few_workers(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path, queue: str
) -> None:
    owners.start(url, tmp_path)
    handles = await idle_handles(store, queue)
    await store.enqueue([a_task(queue=queue)])
    await eventually(lambda: all(one.hints == 2 for one in handles))
    await store.enqueue([a_task(queue="other")])
    await store.enqueue([a_task(queue=queue)])
    await eventually(lambda: all(one.hints == 3 for one in handles))
    for one in handles:
        await one.close()


async def test_of_many_workers_one_process_is_hinted_at_and_all_if_it_does_not_claim(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._stores.jetstream.notify.MANY_WORKERS", 1)
    monkeypatch.setattr("windlass._stores.jetstream.notify.PATIENCE_SECONDS", 2.0)
    owners.start(url, tmp_path)
    handles = await idle_handles(store, "mail")
    worker = await worker_on(store)
    await store.enqueue([a_task(queue="mail")])
    await eventually(lambda: sum(one.hints for one in handles) == HANDLES + 1)
    wish = Claim(session=worker.session, queues=("mail",), limit=5, number=1)
    assert len(await store.claim(wish)) == 1

    await store.enqueue([a_task(queue="mail")])  # The wave before has ended; nobody claims in this one.
    await eventually(lambda: sum(one.hints for one in handles) == 2 * HANDLES + 2, within=20)
    for one in handles:
        await one.close()


async def test_a_listener_that_is_cancelled_at_once_leaves_the_connection_as_it_is(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """nats-py stops reading for good if a PONG arrives for a flush that was cancelled."""
    owners.start(url, tmp_path)
    await store.open()
    client = (await store._lines.line()).client
    for _ in range(5):
        hints = store.wakes(["mail"])
        listening = asyncio.ensure_future(anext(hints))
        while not client._pongs and not listening.done():  # noqa: ASYNC110 - the next turn is too late
            await asyncio.sleep(0)
        listening.cancel()
        await asyncio.wait([listening])
        await client.flush()
    assert not client._reading_task.done()
    assert not [one for one in caplog.messages if "encountered error" in one]
