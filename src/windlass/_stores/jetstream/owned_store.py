"""The store of a reigning owner: the SQLite store, with its commits in the log."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import NoReturn, TypeVar

from ..._model.task import Enqueued, NewTask
from ..._store.clock import Clock, SystemClock
from ..._store.protocol import Capability, Finding, Migration
from ..rules.admission import is_plain
from ..sqlite.read.find import Reader
from ..sqlite.rows import instant
from ..sqlite.store import SQLiteStore
from ..sqlite.transaction import Transaction, Wakes
from .checks import Servers
from .commits import LogCommits
from .entry import Base
from .log import Appender

A = TypeVar("A")


class ReignClock:
    """The clock of an owner: never behind what the log has seen.

    Where the machine's clock is behind that of an earlier owner, time runs at half speed until it is not:
    an instant must never come twice, and a lease must not stand still.
    """

    def __init__(self, clock: Clock | None, floor: datetime) -> None:
        self._clock = clock or SystemClock()
        self._floor = floor
        self._began = time.monotonic()

    def now(self) -> datetime:
        passed = timedelta(seconds=(time.monotonic() - self._began) / 2)
        return max(self._clock.now(), self._floor + passed)

    def microseconds(self) -> int:
        return instant(self.now())


def at(microseconds: int) -> datetime:
    """Return the instant of an entry."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


class OwnedStore(SQLiteStore):
    """The SQLite store of one reign. An answer leaves when an entry stands that was appended after it."""

    capabilities = Capability.SHARE

    def __init__(
        self,
        path: Path,
        *,
        appender: Appender,
        depth: int,
        wake: Callable[[Wakes], None],
        clock: Clock,
        servers: Servers,
    ) -> None:
        super().__init__(path, clock=clock)
        self.promise = servers.promise
        self._findings = servers.findings()
        self._appender = appender
        self._commits = LogCommits(appender, depth, wake)
        self._waiting: list[asyncio.Future[None]] = []
        self._confirming: asyncio.Task[None] | None = None

    def _make_commits(self) -> LogCommits:
        return self._commits

    def another(self) -> NoReturn:
        raise AssertionError("one process owns a store once")

    async def _read(self, work: Callable[[Reader], A], thread: str = "read") -> A:
        try:
            return await super()._read(work, thread)
        finally:
            await self.confirm()  # A refusal is an answer, too.

    async def confirm(self) -> None:
        """Wait until it is certain that this was still the owner when it was called."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._confirming is None or self._confirming.done():
            self._confirming = asyncio.create_task(self._confirm())
        await future

    async def _confirm(self) -> None:
        """Append an entry for all that wait, one at a time: what is asked meanwhile shares the next."""
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            try:
                await asyncio.shield(self._appender.nothing())
            except BaseException as error:
                for future in waiting:
                    if not future.done():
                        future.set_exception(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
                continue
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def enqueue_together(self, batches: Sequence[Sequence[NewTask]]) -> list[Sequence[Enqueued]] | None:
        """Enqueue batches that came together by one statement; None if each must be judged by itself.

        Plain tasks are independent of each other, so that it is the same as one batch after another.
        """
        if not all(is_plain(new) for batch in batches for new in batch):
            return None
        try:
            enqueued = iter(await self.enqueue([new for batch in batches for new in batch]))
        except Exception:  # noqa: BLE001 - raised again to the batch that caused it, and to no other
            return None
        return [list(islice(enqueued, len(batch))) for batch in batches]

    async def extend_leases(self, silence: timedelta) -> None:
        """Lengthen every lease by the time during which nobody owned the store: no heartbeat could arrive."""
        microseconds = round(silence / timedelta(microseconds=1))

        def extend(tx: Transaction) -> None:
            tx.run("extend_sessions", {"microseconds": microseconds})

        if microseconds > 0:
            await self._write(extend)

    async def freeze(self, token: str) -> Base | None:
        """Keep the file as it is at one place of the log, until `thaw`; None if a reader prevents that."""
        self._commits.freeze_next(token)
        await self._write(lambda _: None)
        return self._commits.frozen

    def thaw(self) -> None:
        self._commits.thaw()

    async def migrations(self) -> Sequence[Migration]:
        """Return an empty sequence: owners migrate the schema by themselves."""
        return ()

    async def check(self) -> Sequence[Finding]:
        await self.confirm()
        return self._findings
