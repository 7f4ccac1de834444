"""Runs the real SQLite store on a watched file and writes down all that reached the disk, in order.

`python -m tests.power.record FOLDER SEED STEPS [SYNCHRONOUS]` leaves FOLDER/trace. It is a process of its
own, because what watches beneath SQLite cannot be taken away again.
"""

import asyncio
import hashlib
import itertools
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from tests.power.disk import Deleted, DirectorySynced, Opened, Operation, Synced, Truncated, Wrote
from tests.power.vfs import Beneath
from windlass import Retention
from windlass._model.lease import Claimed
from windlass._stores.sqlite import SQLiteStore
from windlass.errors import SessionLost
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    ENDINGS,
    ManualWorker,
    a_task,
    cancel,
    complete,
    replay,
    retry,
    some_tasks,
    worker_on,
)

DATABASE = "windlass.db"
NOTHING = "nothing"


class Began(Struct, frozen=True, tag="began"):
    """A request was handed to the store."""

    number: int
    what: str


class Acknowledged(Struct, frozen=True, tag="acknowledged"):
    """The store has answered. `digest` is all that the file then said; empty if others were under way.

    `enqueued` must be there from now on, `ended` must stay ended.
    """

    number: int
    what: str
    digest: str = ""
    enqueued: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


Event: TypeAlias = Operation | Began | Acknowledged


class Recorder:
    """Writes down what happens to the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.events: list[Event] = []

    def allows(self, path: str, end: int) -> bool:
        return True

    def opened(self, path: str) -> None:
        self._note(Opened(path))

    def wrote(self, path: str, offset: int, data: bytes) -> None:
        self._note(Wrote(path, offset, data))

    def truncated(self, path: str, size: int) -> None:
        self._note(Truncated(path, size))

    def synced(self, path: str) -> None:
        self._note(Synced(path))

    def deleted(self, path: str) -> None:
        self._note(Deleted(path))

    def directory_synced(self, path: str) -> None:
        self._note(DirectorySynced(path))

    def _note(self, operation: Operation) -> None:
        if operation.path.startswith(self.folder):
            self.events.append(operation)


def digest(file: Path) -> str:
    """All that the tables of a file say, and how they are made, as one short string."""
    found = hashlib.sha256()
    with closing(sqlite3.connect(file)) as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        for name, sql in tables:
            found.update(f"{name} {sql}\n".encode())
            if sql is not None and sql.startswith("CREATE TABLE"):
                for row in connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2"):
                    found.update(repr(row).encode())
    return found.hexdigest()[:16] if tables else NOTHING


class Story:
    """A life for a store: every kind of write there is, at random."""

    def __init__(self, store: SQLiteStore, clock: ManualClock, recorder: Recorder, random: Random) -> None:
        self.store = store
        self.clock = clock
        self.random = random
        self._recorder = recorder
        self._numbers = itertools.count()
        self._workers: list[ManualWorker] = []
        self._held: list[Claimed] = []
        self._dead: list[str] = []

    async def tell(self, steps: int) -> None:
        """First one request at a time, each with a digest; then several at once, which share commits."""
        file = self.store.path
        await self._told("open", self.store.open, lambda _: {"digest": digest(file)})
        for _ in range(steps):
            choice = self._start if len(self._workers) < 2 else self.random.choice(self._choices())
            what, request, facts = choice()
            await self._told(
                what, request, lambda answer, facts=facts: facts(answer) | {"digest": digest(file)}
            )
        for _ in range(steps // 8):
            batches = [some_tasks(self.random.choice((1, 1, 5, 20)), queue="together") for _ in range(6)]
            await asyncio.gather(*(self._enqueue_together(batch) for batch in batches))

    async def _told(
        self, what: str, request: Callable[[], Awaitable[Any]], facts: Callable[[Any], dict[str, Any]]
    ) -> None:
        number = next(self._numbers)
        self._recorder.events.append(Began(number, what))
        answer = await request()
        found = facts(answer)
        self._recorder.events.append(Acknowledged(number, what, **found))

    async def _enqueue_together(self, batch: list[Any]) -> None:
        ids = tuple(task.id for task in batch)
        await self._told("together", lambda: self.store.enqueue(batch), lambda _: {"enqueued": ids})

    # -- the steps -----------------------------------------------------------------------------------

    def _choices(self) -> list[Callable[[], Any]]:
        enough = len(self._held) > 3
        choices = [
            self._enqueue,
            self._enqueue,
            self._group,
            self._claim,
            self._claim,
            self._beat,
            self._keep,
        ]
        return choices + [self._settle] * (5 if enough else 0) + [self._operate] * bool(self._dead)

    def _start(self) -> Any:
        return "start", lambda: worker_on(self.store), lambda worker: self._workers.append(worker) or {}

    def _enqueue(self) -> Any:
        size = self.random.choice((1, 1, 1, 4, 60))
        payload = self.random.choice((b"{}", b'{"x":"' + b"y" * 6000 + b'"}'))
        options: dict[str, Any] = {"delay": self.random.choice((None, None, timedelta(seconds=2)))}
        if size == 1 and self.random.random() < 0.5:
            options["idempotency_key"] = f"k{self.random.randrange(10**6)}"
        batch = some_tasks(size, payload=payload, max_attempts=2, **options)
        ids = tuple(task.id for task in batch)
        return "enqueue", lambda: self.store.enqueue(batch), lambda _: {"enqueued": ids}

    def _group(self) -> Any:
        first = some_tasks(2)
        batch = [*first, a_task(after=tuple(task.id for task in first))]
        ids = tuple(task.id for task in batch)
        return "group", lambda: self.store.enqueue(batch), lambda _: {"enqueued": ids}

    def _claim(self) -> Any:
        worker = self.random.choice(self._workers)
        return (
            "claim",
            lambda: self._unless_lost(worker, worker.claim(self.random.choice((1, 10)))),
            self._take,
        )

    def _take(self, claimed: Any) -> dict[str, Any]:
        self._held += claimed
        return {}

    async def _unless_lost(self, worker: ManualWorker, request: Awaitable[Any]) -> Any:
        try:
            return await request
        except SessionLost:  # The clock was turned too far: another worker takes its place.
            self._workers.remove(worker)
            return ()

    def _settle(self) -> Any:
        held = [self._held.pop() for _ in range(self.random.randint(1, len(self._held)))]
        batch, ended = [], []
        for one in held:
            verdict = self.random.choice(("complete", "complete", "successor", "retry", *ENDINGS))
            if verdict == "successor":
                batch.append(complete(one, b"1", a_task()))
            else:
                batch.append(retry(one) if verdict == "retry" else ENDINGS[verdict](one))
            if verdict in ("complete", "successor", "cancel", "bury"):
                ended.append(one.lease)
            if verdict == "bury":
                self._dead.append(one.task.id)
        worker = self.random.choice(self._workers)

        def facts(settled: Any) -> dict[str, Any]:
            self._held += settled.claimed
            # A stale lease of the same task may be in the batch: what it asks for is not done.
            pairs = zip(batch, settled.receipts, strict=True)
            return {"ended": tuple(s.lease.task_id for s, r in pairs if r == "applied" and s.lease in ended)}

        return "settle", lambda: self.store.settle(batch, worker.next_claim(5)), facts

    def _beat(self) -> Any:
        worker = self.random.choice(self._workers)
        return "heartbeat", lambda: worker.beat(*[one.lease for one in self._held]), lambda _: {}

    def _keep(self) -> Any:
        """Promote, rescue and prune, after some time has gone by."""
        self.clock.advance(self.random.choice((0.5, 3, 10)))
        match self.random.choice(("promote", "rescue", "prune", "lead")):
            case "promote":
                return "promote", lambda: self.store.promote(100), lambda _: {}
            case "lead":
                return "lead", lambda: self.store.lead("me", timedelta(seconds=5)), lambda _: {}
            case "prune":
                kept = Retention(completed=timedelta(days=1), cancelled=timedelta(days=1), dead=None)
                return "prune", lambda: self.store.prune(kept, 100), lambda _: {}
        worker = self.random.choice(self._workers)
        return "rescue", lambda: self._unless_lost(worker, self.store.rescue(worker.session, 100)), self._take

    def _operate(self) -> Any:
        task_id = self._dead[-1]
        if self.random.random() < 0.5:
            return "replay", lambda: replay(self.store, task_id), lambda _: self._dead.pop() and {}
        return "cancel", lambda: cancel(self.store, task_id), lambda _: {}


class Lax(sqlite3.Connection):
    """A connection that syncs less than it was told to."""

    synchronous = "EXTRA"

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute(
            sql.replace("synchronous=EXTRA", f"synchronous={self.synchronous}"), *parameters
        )


def connect_laxly(synchronous: str) -> None:
    """From now on every connection of this process gets another `synchronous` than it asks for."""
    plain, Lax.synchronous = sqlite3.connect, synchronous

    def connect(
        *args: Any, factory: type[sqlite3.Connection] = sqlite3.Connection, **options: Any
    ) -> sqlite3.Connection:
        kinds = (Lax,) if factory is sqlite3.Connection else (Lax, factory)
        return plain(*args, factory=type("Laxer", kinds, {}), **options)

    sqlite3.connect = connect


async def main(folder: Path, seed: int, steps: int, synchronous: str) -> None:
    recorder = Recorder(folder)
    Beneath(recorder).install()
    if synchronous != "EXTRA":
        connect_laxly(synchronous)
    clock = ManualClock()
    store = SQLiteStore(folder / DATABASE, clock=clock)
    story = Story(store, clock, recorder, Random(seed))
    await story.tell(steps)
    events, recorder.events = recorder.events, []
    await store.close()
    (folder / "trace").write_bytes(msgspec.msgpack.encode(events))


def read_trace(folder: Path) -> list[Event]:
    """What `main` has left."""
    return msgspec.msgpack.decode((folder / "trace").read_bytes(), type=list[Event])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or ["EXTRA"])[0]))
