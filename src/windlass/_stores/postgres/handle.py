"""A handle on the database: its connections, what it has learnt, and its opening and closing."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self, TypeVar
from weakref import WeakSet

from ..._clock import Clock
from ..._store import Promise
from ...errors import StoreError
from . import schema
from .address import Address, parse
from .claiming import Claiming
from .connections import Connections
from .durability import UNKNOWN, promise
from .enqueueing import Terms
from .keeping import Horizons
from .scripts import Ask, Row, Script
from .striping import Striping
from .together import Together
from .transacting import Blocking
from .tries import Tries
from .wakes import Switchboard

T = TypeVar("T")


class Handle:
    """A pool of connections for each event loop that uses it, and one more where somebody listens.

    It opens itself at first use; once closed it must be opened again. A forked child opens its own.
    """

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        self.address = address
        self.clock = clock
        self._closed = False
        self._ready = False
        self._connections = Connections(address)
        self._own = Connections(address, planned=False)
        self._blocking = Blocking(address)
        self._striping = Striping()
        self._claiming = Claiming(self._striping)
        self._tries = Tries()
        self._horizons = Horizons()
        self._boards: dict[asyncio.AbstractEventLoop, Switchboard] = {}
        self._together: dict[asyncio.AbstractEventLoop, Together] = {}
        _handles.add(self)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """The store for a postgresql:// URL."""
        return cls(parse(url), clock=clock)

    def another(self) -> Self:
        """A further handle on the same database, with connections of its own."""
        return type(self)(self.address, clock=self.clock)

    @property
    def promise(self) -> Promise:
        """What an acknowledged write survives, as the server is set up."""
        server = self._connections.server
        return UNKNOWN if server is None else promise(server)

    async def now(self) -> datetime:
        """The database's clock, unless a test has its own."""
        if self.clock is not None:
            return self.clock.now()
        now: datetime = (await self._fetch(Ask("now", (None,))))[0][0]
        return now

    # -- open and close ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; make the schema where there is none."""
        self._closed = False
        if not self._ready:
            with self._connections.told():
                await schema.ensure(self._connections, self._now)
            self._ready = True

    async def close(self) -> None:
        """Let go of every connection."""
        self._closed = True
        self._ready = False
        board = self._boards.pop(asyncio.get_running_loop(), None)
        if board is not None:
            await board.close()
        self._boards.clear()
        self._together.clear()
        self._blocking.close()
        await self._own.close()
        await self._connections.close()

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's connections, without touching them."""
        self._connections.leave_to_parent()
        self._own.leave_to_parent()
        self._blocking.leave_to_parent()
        self._boards = {}
        self._together = {}

    @property
    def _now(self) -> datetime | None:
        """A test's clock; None: the database's."""
        return None if self.clock is None else self.clock.now()

    @property
    def _terms(self) -> Terms:
        return Terms(schema=self.address.schema, clock=self._now, striping=self._striping)

    async def _know_stripes(self) -> None:
        """Ask which queues are striped: anew now and then, for somebody may change it."""
        self._striping.asking()
        self._striping.learn(await self._fetch(Ask("stripes")))

    async def _fetch(self, ask: Ask) -> Sequence[Row]:
        if self._closed or not self._ready:
            await self._opened()
        with self._connections.told():
            return await self._connections.fetch(ask)

    async def _play(self, make: Callable[[], Script[T]]) -> T:
        await self._opened()
        with self._connections.told():
            return await self._connections.play(make)

    async def _opened(self) -> None:
        if self._closed:
            raise StoreError(f"the store at {self.address.place} is closed; open it again to use it")
        if not self._ready:
            await self.open()


_handles: "WeakSet[Handle]" = WeakSet()


def _after_fork() -> None:
    for handle in list(_handles):
        handle.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
