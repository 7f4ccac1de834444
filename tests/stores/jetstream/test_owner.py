"""Owners of a store: one serves, the others follow its log and take over; nothing acknowledged is lost."""

import asyncio
import sqlite3
from datetime import timedelta
from itertools import count
from pathlib import Path

import msgspec
import pytest

from tests.loops.workers import eventually
from tests.servers.lossy import Lossy
from tests.servers.nats import Nats
from tests.servers.owners import QUICK, Owners
from tests.servers.process import free_port
from windlass._model.filter import Filter, Page
from windlass._model.lease import Claim
from windlass._store.protocol import Severity
from windlass._stores.jetstream import JetStreamStore
from windlass._stores.jetstream.address import parse
from windlass._stores.jetstream.checks import presence
from windlass._stores.jetstream.client import connect
from windlass._stores.jetstream.follower import Follower
from windlass._stores.jetstream.owner import _unless
from windlass._stores.jetstream.snapshots import Snapshots
from windlass._stores.jetstream.stream import StreamLog
from windlass.errors import InvalidOption, SessionLost, StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task, worker_on


async def ids_in(store: JetStreamStore) -> set[str]:
    found: set[str] = set()
    page = Page(limit=1000)
    while True:
        slice_ = await store.find(Filter(), page)
        found |= {task.id for task in slice_.items}
        if slice_.cursor is None:
            return found
        page = Page(limit=1000, cursor=slice_.cursor)


async def test_a_standby_takes_over_when_the_owner_leaves(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    first = owners.start(url, tmp_path)
    second = owners.stand_by(url, tmp_path)
    before = await store.enqueue([a_task() for _ in range(300)])
    owners.stop(first)

    assert await ids_in(store) == {one.id for one in before}
    assert second.owns.is_set()
    await store.enqueue([a_task()])
    assert len(await ids_in(store)) == 301


async def test_an_owner_that_is_usurped_answers_nothing_more(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    """Two processes take the store from each other all the time, while tasks are enqueued and claimed."""
    usurping = msgspec.structs.replace(QUICK, usurp_after=0.15, depth=6)
    owners.start(url, tmp_path, settings=usurping)
    owners.stand_by(url, tmp_path, settings=usurping)
    worker = await worker_on(store)
    enqueued: set[str] = set()
    claimed: list[str] = []
    numbers = count(1)

    async def produce() -> None:
        for _ in range(25):
            enqueued.update(one.id for one in await store.enqueue([a_task() for _ in range(20)]))

    async def all_claimed() -> bool:
        wish = Claim(session=worker.session, queues=("default",), limit=50, number=next(numbers))
        claimed.extend(one.task.id for one in await store.claim(wish))
        return len(claimed) == 1000

    async with asyncio.timeout(50):
        await asyncio.gather(produce(), produce(), eventually(all_claimed, within=45))

    assert len(enqueued) == 1000
    assert sorted(claimed) == sorted(enqueued)
    assert await ids_in(store) == enqueued


async def test_what_is_too_large_for_a_message_goes_in_parts(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    first = owners.start(url, tmp_path)
    large = [a_task(payload=b'{"text":"%s"}' % (str(n).encode() * 50_000)) for n in range(100, 140)]
    await store.enqueue(large)
    owners.stand_by(url, tmp_path)
    owners.stop(first)

    found = (await store.find(Filter(), Page(limit=100))).items
    assert {task.id: bytes(task.payload) for task in found} == {new.id: new.payload for new in large}


async def test_a_snapshot_replaces_the_log(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(QUICK, snapshot_bytes=200_000)
    first = owners.start(url, tmp_path, settings=settings)
    address = parse(url)
    client = await connect(address)
    log = StreamLog(client, address)
    for _ in range(40):
        await store.enqueue([a_task() for _ in range(25)])

    async def was_cut() -> bool:
        await store.enqueue([a_task()])
        extent = await log.extent()
        return extent is not None and extent.first > 20

    await eventually(was_cut, within=20)
    ids = await ids_in(store)
    owners.stand_by(url, tmp_path, settings=settings)
    owners.stop(first)

    assert await ids_in(store) == ids
    manifests = await Snapshots(client, address).manifests()
    assert len(manifests) <= 2  # the last, and one that was being written
    await client.close()


async def test_a_cold_replay_is_the_live_store(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    owners.start(url, tmp_path, settings=msgspec.structs.replace(QUICK, snapshot_bytes=300_000))
    for _ in range(30):
        await store.enqueue([a_task() for _ in range(20)])
    ids = await ids_in(store)
    address = parse(url)
    client = await connect(address)
    follower = Follower(StreamLog(client, address), Snapshots(client, address), tmp_path / "cold")
    await follower.follow(30.0, usurp_after=1.0)
    replayed = sqlite3.connect(f"file:{follower.path}?mode=ro&immutable=1", uri=True)

    assert replayed.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert {row[0] for row in replayed.execute("SELECT id FROM windlass_task")} == ids
    replayed.close()
    follower.close()
    await client.close()


async def test_no_lease_runs_out_while_nobody_owns_the_store(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    clock = ManualClock()
    first = owners.start(url, tmp_path, clock=clock)
    await store.enqueue([a_task()])
    worker = await worker_on(store)
    assert len(await worker.claim(1)) == 1
    owners.stop(first)
    clock.advance(timedelta(hours=1))
    owners.start(url, tmp_path, clock=clock)

    keeper = await worker_on(store)
    assert await store.rescue(keeper.session, 10) == ()
    assert (await worker.beat()).alive
    clock.advance(timedelta(hours=1))
    with pytest.raises(SessionLost):
        await store.claim(Claim(session=worker.session, queues=("default",), limit=1, number=9))


async def test_the_clock_is_never_behind_that_of_an_earlier_owner(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    early, late = ManualClock(), ManualClock()
    late.advance(timedelta(minutes=10))
    first = owners.start(url, tmp_path, clock=late)
    before = await store.now()
    owners.stop(first)
    owners.start(url, tmp_path, clock=early)

    assert await store.now() >= before


async def test_without_an_owner_a_request_says_so(
    store: JetStreamStore, nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._stores.jetstream.client.NOBODY_SECONDS", 0.3)
    with pytest.raises(StoreUnavailable, match=r"no process owns .*: start a worker"):
        await store.count(Filter(), ())


async def test_others_can_see_who_owns_the_store_and_who_stands_by(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    first = owners.start(url, tmp_path)
    alone = {one.subject: one for one in await store.check()}["owner"]
    assert alone.severity is Severity.WARNING
    assert "no process stands by" in alone.message
    second = owners.stand_by(url, tmp_path)
    client = await connect(parse(url))

    async def both() -> dict[str, str]:
        found = await presence(client, parse(url))
        return found if len(found) == 2 else {}

    assert await eventually(both, within=20) == {first.name: "owner", second.name: "standby"}
    assert {one.subject: one.severity for one in await store.check()}["owner"] is Severity.OK
    await client.close()


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "with a key"])
async def test_enqueues_that_travel_together_are_judged_each(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path, key: str | None
) -> None:
    owners.start(url, tmp_path)
    await store.open()
    tasks = [a_task() for _ in range(20)]
    too_late = a_task(delay=timedelta(days=5000))
    keyed = [a_task(idempotency_key=key) for _ in range(2)]
    calls = [store.enqueue([new]) for new in (*tasks, tasks[0], *keyed, too_late)]

    *done, refused = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(refused, InvalidOption)
    created = [one.created for found in done if not isinstance(found, BaseException) for one in found]
    assert created == [*[True] * 20, False, True, key is None]
    assert len(await ids_in(store)) == (22 if key is None else 21)


async def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass._stores.jetstream.client.CONNECT_SECONDS", 0.5)
    store = JetStreamStore.from_url(f"nats://127.0.0.1:{free_port()}/shop")
    with pytest.raises(StoreUnavailable, match=r"cannot connect to NATS at .*Connect call failed"):
        await store.count(Filter(), ())
    await store.close()


async def test_a_request_that_is_lost_with_the_connection_of_the_owner_is_repeated_at_once(
    store: JetStreamStore,
    url: str,
    owners: Owners,
    tmp_path: Path,
    nats: Nats,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "windlass._stores.jetstream.client._REPEAT_SECONDS", 1000.0
    )  # A request fails after 30 s.
    with Lossy.start(nats.port) as way:
        owners.start(url.replace(f":{nats.port}/", f":{way.port}/"), tmp_path)
        await store.open()
        way.block()
        asked = asyncio.create_task(store.enqueue([a_task()]))
        line = await store._lines.line()
        await asyncio.sleep(0)
        await line.client.flush()
        way.cut()
        way.unblock()

        assert await asked
        owners.clear()


async def test_work_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As asyncio.wait_for does on Python 3.11 if what it waits for is done at the same time."""
    monkeypatch.setattr("windlass._stores.jetstream.owner.CANCEL_SECONDS", 0.01)
    event, swallowed = asyncio.Event(), 0

    async def stubborn() -> None:
        nonlocal swallowed
        event.set()
        while swallowed < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.Event().wait()

    async with asyncio.timeout(20):
        assert not await _unless(event, stubborn())
