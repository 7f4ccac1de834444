"""Keys are rotated beside running workers and producers: nothing is lost, unreadable, or in clear."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec.structs import replace

from tests.examples import sample
from tests.loops.workers import drained, eventually, settings
from tests.security.secret_ways import PREFIX, RING, hits
from tests.security.test_at_rest import MEMORY, STORES, Kept
from windlass import App, Backoff, Filter, State, chain
from windlass._encryption.keys import Keyring
from windlass._model.schedule import Schedule
from windlass._model.state import ENDED
from windlass._policy.secrets.encrypted import MARKER, key_ids
from windlass._store.protocol import Severity, all_records

OLD, NEW = ("k1", b"1" * 32), ("k2", b"2" * 32)
BOTH, NEWEST = Keyring([NEW, OLD]), Keyring([NEW])
READY_FOR_BOTH = Keyring([OLD, NEW, OLD])
ROUNDS = 12  # of enqueues in each phase


@pytest.fixture(params=sample(["sqlite", "valkey"], sorted({*STORES} - {"sqlite", "valkey"})))
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    where = MEMORY if MEMORY.is_dir() else None
    with (
        TemporaryDirectory(prefix="windlass-", dir=where) as folder,
        STORES[request.param](Path(folder)) as kept,
    ):
        yield kept


class Shop:
    """A program whose handlers return the secret that they get, and count their runs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.runs: Counter[str] = Counter()
        self.wrong: list[object] = []
        self.gate = asyncio.Event()
        self.held = 0

    def app(self, keyring: Keyring) -> App:
        app = App(self._url, encryption=keyring, backoff=Backoff(base=0, jitter=0))

        @app.task(name="pay", secret=["card"])
        async def pay(card: str) -> dict[str, str]:
            self.runs[card] += 1
            self.wrong += [] if card.startswith(PREFIX) and MARKER.decode() not in card else [card]
            return {"card": card, "text": f"paid with {card}"}

        @app.task(name="hold", secret=["card"])
        async def hold(card: str) -> dict[str, str]:
            self.held += 1
            await self.gate.wait()
            return await pay(card)

        @app.task(name="join")
        async def join(taken: Any) -> dict[str, Any]:
            self.wrong += [] if PREFIX in str(taken) and MARKER.decode() not in str(taken) else [taken]
            return {"all": taken}

        return app

    @asynccontextmanager
    async def working(self, keyring: Keyring) -> AsyncIterator[App]:
        """A worker with these keys, until the end of the block; what it holds then, it finishes."""
        app = self.app(keyring)
        worker = app.worker(settings(keeper=True, poll=0.1))
        running = asyncio.create_task(worker.run())
        try:
            yield app
        finally:
            worker.stop()
            await asyncio.wait_for(running, 20)
            await app.close()


def step(app: App, type_name: str, card: str) -> Any:
    return app.builder.step(type_name, b'{"card":"%s"}' % card.encode(), {}, app.types[type_name].defaults)


async def enqueue(app: App, card: str, first: str = "pay") -> None:
    """Enqueue chains and groups, whose members pass their results on."""
    join = replace(app.builder.step("join", b"{}", {}, app.types["join"].defaults), result_into="taken")
    await app.client.enqueue(
        chain(step(app, first, f"{PREFIX}{card}-a"), join, step(app, "pay", f"{PREFIX}{card}-b"))
    )
    await app.client.enqueue_group([step(app, "pay", f"{PREFIX}{card}-{one}") for one in "cd"], join)


async def keys_in(url: str) -> set[str]:
    """The ids of the keys that stored values need, as a program without keys sees them."""
    plain = App(url, encryption=None)
    found: list[bytes | None] = []
    async for one in plain.operator.every():
        found += [one.payload, one.next, one.result]
    for schedule in await all_records(plain.store, Schedule):
        found += [schedule.payload, schedule.next]
    await plain.close()
    return {*key_ids(*found)}


async def is_done(app: App) -> bool:
    """Whether nothing is left to run."""
    counts = await app.operator.count(Filter(states=tuple(State(one) for one in {*State} - ENDED)))
    return sum(one.number for one in counts) == 0


async def test_nothing_is_lost_or_left_while_workers_run(kept: Kept) -> None:
    url, places = kept
    shop = Shop(url)

    async def produce(app: App, phase: str) -> None:
        for n in range(ROUNDS):
            await enqueue(app, f"{phase}{n}")
            await asyncio.sleep(0)

    async with shop.working(RING) as app:
        await app.publish()
        await app.operator.schedules.add("nightly", "pay", "0 3 * * *", {"card": f"{PREFIX}nightly"})
        await produce(app, "old")
        async with shop.working(READY_FOR_BOTH) as ready:  # beside each other
            await asyncio.gather(produce(app, "beside"), produce(ready, "ready"))
    async with shop.working(READY_FOR_BOTH) as ready, shop.working(BOTH) as both:
        await asyncio.gather(produce(ready, "still"), produce(both, "new"))
    async with shop.working(BOTH) as both:
        rotating = asyncio.create_task(both.operator.encryption.rotate())
        await produce(both, "during")
        done = await rotating
        assert done.rewritten > 0
        assert done.locked == 0
    async with shop.working(BOTH) as both:
        await both.operator.encryption.rotate()
    async with shop.working(NEWEST) as newest:
        await produce(newest, "after")
        await newest.operator.schedules.trigger("nightly")
        await eventually(lambda: is_done(newest), within=40)
        assert await keys_in(url) == {"k2"}
        assert [
            one for one in await newest.operator.encryption.check() if one.severity is not Severity.OK
        ] == []
        ended = [one async for one in newest.operator.every(Filter(types=("pay",)))]

    phases = 7
    assert shop.wrong == []
    assert shop.runs.total() == len(shop.runs) == phases * ROUNDS * 4 + 1
    assert len(ended) == phases * ROUNDS * 4 + 1
    assert all(PREFIX.encode() in (one.result or b"") for one in ended)
    assert {
        place: found for place, data in (await asyncio.to_thread(places)).items() if (found := hits(data))
    } == {}


async def test_what_ran_during_a_rotation_does_not_need_the_former_key(kept: Kept) -> None:
    """Its steps and predecessors were read with the former key, and are stored after the rotation."""
    url, _ = kept
    shop = Shop(url)
    old = shop.app(RING)
    await old.publish()
    for n in range(2):
        await enqueue(old, f"held{n}", "hold")
    await old.close()
    async with shop.working(BOTH) as both:
        await eventually(lambda: shop.held == 2, within=20)
        await both.operator.encryption.rotate()
        shop.gate.set()
        await eventually(lambda: is_done(both), within=20)
        assert await keys_in(url) == {"k2"}
    newest = shop.app(NEWEST)
    await drained(newest)
    assert await is_done(newest)
    await newest.close()
    assert shop.wrong == []
