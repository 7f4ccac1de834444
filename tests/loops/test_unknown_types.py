"""Tasks of types that a worker has no handler for: it leaves them to others, and claims its own only."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.loops.workers import drained, eventually, pause, tasks, working
from windlass import App, State
from windlass._model.lease import Claim
from windlass._model.verdict import Settled, Settlement
from windlass._store.forward import ForwardingStore
from windlass._stores.memory import MemoryStore
from windlass._worker import needs
from windlass.testing.conformance.steps import some_tasks


class Recorded(ForwardingStore):
    """A store that records the claims that are sent along with settlements."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.claims: list[Claim] = []

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        if claim is not None:
            self.claims.append(claim)
        return await self.inner.settle(batch, claim)


@pytest.fixture
def store() -> Recorded:
    return Recorded(MemoryStore())


def program(store: Any, name: str) -> tuple[App, list[int]]:
    """A program that declares one type; and the numbers of the tasks of it that have run."""
    app, ran = App(store), []

    @app.task(name=name)
    async def handler(n: int = 0) -> None:
        ran.append(n)

    return app, ran


async def send(app: App, name: str, number: int) -> None:
    await app.client.enqueue_tasks(some_tasks(number, type=name, payload=b"{}"))


async def test_workers_of_different_types_share_a_queue(store: Recorded) -> None:
    (mail, mailed), (bank, paid) = program(store, "mail"), program(store, "pay")
    for _ in range(20):
        await send(mail, "mail", 10)
        await send(mail, "pay", 10)

    async with working(mail, name="mail"), working(bank, name="bank"):
        await eventually(lambda: len(mailed) == len(paid) == 200)

    ended = await tasks(mail)
    assert {(task.state, task.attempt) for task in ended} == {(State.COMPLETED, 1)}
    assert (
        max(task.fence for task in ended) <= 3
    )  # few were claimed by the wrong worker, none again and again


async def test_a_task_behind_thousands_of_another_type_starts_at_once(store: Recorded) -> None:
    app, ran = program(store, "mail")
    await send(app, "pay", 3_000)
    async with working(app, poll=60):
        await eventually(lambda: len(store.claims) > 1)
        await send(app, "mail", 1)
        await eventually(lambda: ran == [0], within=1)

    others = await tasks(app, State.READY)
    assert len(others) == 1_000  # a page of them
    assert {(task.attempt, task.unhandled_since, task.error) for task in others} == {(0, None, None)}


async def test_a_worker_that_finds_only_others_does_not_claim_without_a_pause(store: Recorded) -> None:
    app, _ = program(store, "mail")
    await send(app, "pay", 100)
    async with working(app, poll=60):
        await eventually(lambda: store.claims and store.claims[-1].types == ("mail",))
        await pause(0.3)
        settled = len(store.claims)
        await pause(0.3)

    assert len(store.claims) <= settled + 1
    assert settled < 10


async def test_a_worker_that_meets_no_other_type_claims_any(store: Recorded) -> None:
    app, ran = program(store, "mail")
    await send(app, "mail", 50)
    await drained(app)

    assert len(ran) == 50
    assert {claim.types for claim in store.claims} == {None}


async def test_after_a_time_a_worker_claims_any_type_again(
    store: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "CLAIM_ANY_AFTER", 0.1)
    app, _ = program(store, "mail")
    await send(app, "pay", 1)
    async with working(app, poll=0.05):
        await eventually(lambda: [claim.types for claim in store.claims].count(None) >= 3)

    kinds = [claim.types for claim in store.claims]
    assert kinds[0] is None
    assert ("mail",) in kinds
    (task,) = await tasks(app)
    assert (task.state, task.attempt) == (State.READY, 0)


async def test_a_drain_leaves_other_types_ready(store: Recorded) -> None:
    app, ran = program(store, "mail")
    await send(app, "pay", 20)
    await send(app, "mail", 5)
    await asyncio.wait_for(drained(app), 5)

    assert len(ran) == 5
    assert len(await tasks(app, State.READY)) == 20
