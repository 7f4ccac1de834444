"""The resources of one Postgres store: connections, queue layout and clock."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self, TypeVar

from ..._model.lease import Heartbeat
from ..._model.task import Enqueued, NewTask
from ..._store.clock import Clock
from ..._store.protocol import Promise
from ...errors import StoreError
from ..forks import leave_in_children, never_free
from . import schema
from .claim.ranks import rerank
from .connection.address import Address, parse
from .connection.client import Connections
from .connection.server import UNKNOWN
from .enqueue.coalesce import Coalescer
from .enqueue.plain import RecentIds
from .join.home import HomeDatabase
from .notify import WakeHub
from .own_transaction import PsycopgPool
from .queue_layout import Environment, QueueLayout
from .rows import Row
from .script import Query, Script

T = TypeVar("T")


class Database:
    """A pool of connections for each event loop that uses it, and a connection to listen.

    It opens itself at first use; once closed it must be opened again. A forked child opens its own
    connections.
    """

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self.clock = clock
        self.layout = QueueLayout(lambda: self._now)
        self._closed = False
        self._ready = False
        self.connections = Connections(address)
        self.home = HomeDatabase(self.connections)
        self._untuned = Connections(address, tuned=False)  # for ctx.transaction()
        self._psycopg = PsycopgPool(address)  # the same for sync handlers
        self._recent_ids = RecentIds()
        self._hubs: dict[asyncio.AbstractEventLoop, WakeHub] = {}
        self._enqueues: dict[asyncio.AbstractEventLoop, Coalescer[NewTask, Enqueued]] = {}
        self._heartbeats: dict[asyncio.AbstractEventLoop, Coalescer[Heartbeat, list[Row]]] = {}
        leave_in_children(self)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        return cls(parse(url), clock=clock)

    def another(self) -> Self:
        return type(self)(self.address, clock=self.clock)

    @property
    def promise(self) -> Promise:
        server = self.connections.server
        return UNKNOWN if server is None else server.promise

    # -- open and close ------------------------------------------------------------------------------

    async def open(self) -> None:
        self._closed = False
        if not self._ready:
            with self.connections.translated_errors():
                await schema.ensure(self.connections, self._now)
            self._ready = True

    async def close(self) -> None:
        self._closed = True
        self._ready = False
        hub = self._hubs.pop(asyncio.get_running_loop(), None)
        if hub is not None:
            await hub.close()
        self._hubs.clear()
        self._enqueues.clear()
        self._heartbeats.clear()
        self._psycopg.close()
        await self._untuned.close()
        await self.connections.close()

    async def _ensure_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store at {self.address.display} is closed; open it again to use it")
        if not self._ready:
            await self.open()

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections without touching them."""
        self.connections.leave_to_parent()
        self._untuned.leave_to_parent()
        self._psycopg.leave_to_parent()
        never_free(self._hubs, self._enqueues, self._heartbeats)
        self._hubs = {}
        self._enqueues = {}
        self._heartbeats = {}

    # -- time and layout -----------------------------------------------------------------------------

    async def now(self) -> datetime:
        """Return the time of a test's clock, or else of the database's."""
        if self.clock is not None:
            return self.clock.now()
        now: datetime = (await self.fetch(Query("now", (None,))))[0][0]
        return now

    @property
    def _now(self) -> datetime | None:
        """The time of a test's clock; None stands for the database's."""
        return None if self.clock is None else self.clock.now()

    @property
    def env(self) -> Environment:
        """What statements depend on besides their parameters, as of now."""
        return Environment(
            schema=self.address.schema,
            clock=self._now,
            layout=self.layout,
            awaits_standbys=self.connections.awaits_standbys,
        )

    async def refresh_layout(self) -> None:
        """Read how queues are laid out; other processes may change it."""
        self.layout.mark_fresh()
        self.layout.update(await self.fetch(Query("layout", (self._now,))))
        for queue, body, opening in self.layout.roll_openings():
            await self.fetch(Query("roll_window", (queue, body, opening.opens_at, opening.closes_at)))
        for queue in self.layout.take_reranked():
            await rerank(self.fetch, self.address.schema, queue, self.layout.head_start(queue))

    # -- statements ----------------------------------------------------------------------------------

    async def fetch(self, query: Query) -> Sequence[Row]:
        if self._closed or not self._ready:
            await self._ensure_open()
        with self.connections.translated_errors():
            return await self.connections.fetch(query)

    async def play(self, make: Callable[[], Script[T]]) -> T:
        """Run a script in a transaction; a new one is made for each attempt."""
        await self._ensure_open()
        with self.connections.translated_errors():
            return await self.connections.play(make)
