"""Load on a store, straight at its seam: producers and workers that remember everything they were told."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from time import monotonic

from tests.loops.workers import pause
from tests.system.jetstream.account import Account
from windlass._ids import new_id, new_ids
from windlass._model.filter import Filter, Page
from windlass._model.lease import Claim, Claimed, Heartbeat, Lease
from windlass._model.record import Worker
from windlass._model.task import Error, NewTask, TaskId
from windlass._model.verdict import Bury, Complete, Postpone, Reason, Settlement, Verdict
from windlass._store.protocol import Store
from windlass.errors import SessionLost, StoreUnavailable

QUEUES = ("a", "b")
LEASE = timedelta(seconds=40)
BEAT_SECONDS = 1.5
KEEP_SECONDS = 0.5
FAILED = Error(type="E", message="m")
READ_SHARE = 0.1  # of enqueues that are read back
KEYS = 500  # of each producer: most are asked for several times


@dataclass
class Load:
    """Producers and workers, each with a handle of its own, until `until`; then what they have is settled."""

    handle: Callable[[], Store]
    random: Random
    account: Account
    until: float  # by the monotonic clock
    batch: int = 40
    pause: float = 0.02

    async def run(self, producers: int = 4, workers: int = 4) -> None:
        clients = [self._produce(number) for number in range(producers)]
        clients += [self._work(number) for number in range(workers)]
        async with asyncio.TaskGroup() as group:
            for client in [*clients, self._keep()]:
                group.create_task(client)

    @property
    def _is_on(self) -> bool:
        return monotonic() < self.until

    async def _produce(self, number: int) -> None:
        async with opened(self.handle()) as store:
            while self._is_on:
                batch = list(self._new_tasks(number))
                told = None
                while told is None:  # the same ids until it is known: repeating an enqueue is harmless
                    with suppress(StoreUnavailable):
                        told = await store.enqueue(batch)
                self.account.heard()
                self.account.enqueued(batch, told)
                if self.random.random() < READ_SHARE:
                    await self._read_back(store, [one.id for one in told])
                await pause(self.random.uniform(0, self.pause))

    async def _read_back(self, store: Store, ids: list[TaskId]) -> None:
        """What was acknowledged is there for every later read, whoever owns the store by then."""
        with suppress(StoreUnavailable):
            found = await store.find(Filter(ids=tuple(set(ids))), Page(limit=len(ids)))
            self.account.read(ids, [task.id for task in found.items])

    def _new_tasks(self, producer: int) -> Iterator[NewTask]:
        for task_id in new_ids(self.random.randint(1, self.batch)):
            has_key = self.random.random() < 0.1
            delay = timedelta(seconds=self.random.choice((0.5, 2.0)))
            yield NewTask(
                id=task_id,
                type="t",
                payload=b'{"n":1}',
                root=task_id,
                queue=self.random.choice(QUEUES),
                idempotency_key=f"{producer}.{self.random.randrange(KEYS)}" if has_key else None,
                idempotency_digest="same" if has_key else "",
                delay=delay if self.random.random() < 0.1 else None,
                max_attempts=1000,
            )

    async def _work(self, number: int) -> None:
        async with opened(self.handle()) as store:
            await Worked(self, store, number).run()

    async def _keep(self) -> None:
        """Promote and rescue, as a keeper does."""
        session = new_id()
        beat = Heartbeat(session=session, worker=Worker(name="keeper"), lease_for=LEASE, opening=True)
        async with opened(self.handle()) as store:
            while self._is_on:
                with suppress(StoreUnavailable, SessionLost):
                    await store.heartbeat(beat)
                    await store.promote(1000)
                    rescued = await store.rescue(session, 100)
                    self.account.claimed("keeper", rescued)
                    released = Postpone(delay=timedelta(0), reason=Reason.RETRY, error=FAILED)
                    batch = [settlement(one, released, "crashed") for one in rescued]
                    if batch:
                        self.account.settled(batch, (await store.settle(batch)).receipts)
                await pause(KEEP_SECONDS)


class Worked:
    """A worker: claims, settles what it has together with the next claim, and keeps its session alive."""

    def __init__(self, load: Load, store: Store, number: int) -> None:
        self._load, self._store, self._name = load, store, f"worker {number}"
        self._session = new_id()
        self._held: dict[Lease, Settlement] = {}
        self._number = self._through = 0

    async def run(self) -> None:
        beating = asyncio.create_task(self._beat())
        try:
            while self._load._is_on or self._held:
                await self._turn()
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating

    async def _turn(self) -> None:
        self._number += 1
        batch = list(self._held.values())
        claim = Claim(session=self._session, queues=QUEUES, limit=self._load.batch, number=self._number)
        try:
            settled = await self._store.settle(batch, claim if self._load._is_on else None)
        except StoreUnavailable:
            self._through = self._number  # what it claimed is abandoned; a heartbeat releases it
            return
        except SessionLost:
            await pause(BEAT_SECONDS)  # the next heartbeat opens the session again
            self._through = self._number
            return
        self._load.account.heard()
        self._load.account.settled(batch, settled.receipts)
        for one in batch:
            self._held.pop(one.lease, None)
        self._load.account.claimed(self._name, settled.claimed)
        for claimed in settled.claimed:
            self._held[claimed.lease] = settlement(claimed, self._verdict(), "returned")
        self._through = self._number
        await pause(self._load.random.uniform(0, self._load.pause))

    def _verdict(self) -> Verdict:
        draw = self._load.random.random()
        if draw < 0.9:
            return Complete(result=b"1")
        if draw < 0.98:
            delay = timedelta(seconds=self._load.random.choice((0.0, 1.0)))
            return Postpone(delay=delay, reason=Reason.RETRY, error=FAILED)
        return Bury(error=FAILED)

    async def _beat(self) -> None:
        while True:
            beat = Heartbeat(
                session=self._session,
                worker=Worker(name=self._name, slots=self._load.batch),
                lease_for=LEASE,
                opening=True,
                held=tuple(self._held),
                through=self._through,
            )
            with suppress(StoreUnavailable):
                await self._store.heartbeat(beat)
            await pause(BEAT_SECONDS)


class opened:  # noqa: N801 - reads as a function
    """A store, open until the end of the block; closing it may fail while no server answers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __aenter__(self) -> Store:
        while True:
            with suppress(StoreUnavailable):
                await self._store.open()
                return self._store

    async def __aexit__(self, *_: object) -> None:
        with suppress(StoreUnavailable):
            await self._store.close()


def settlement(claimed: Claimed, verdict: Verdict, outcome: str) -> Settlement:
    return Settlement(lease=claimed.lease, verdict=verdict, outcome=outcome, duration=0.01)
