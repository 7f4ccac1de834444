"""A handle on the database: its connections, what it has learnt, and its opening and closing."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Self, TypeVar
from weakref import WeakSet

from ..._clock import Clock
from ..._model.limit import Limit
from ..._model.queue import QueueSettings
from ..._store.protocol import Promise
from ...errors import StoreError
from ..rules.claim_planner import ClaimRules
from . import schema
from .claim import relayout as laying
from .claim.fifo import Claiming
from .connection.address import Address, parse
from .connection.client import Connections
from .connection.server import UNKNOWN
from .enqueue.coalesce import Together
from .enqueue.plain import Terms
from .enqueue.repeats import Tries
from .notify import Switchboard
from .own_transaction import PsycopgPool
from .queue_layout import ALL, Layout
from .script import Ask, Row, Script
from .upkeep.keep import Horizons

T = TypeVar("T")

_MANY = 100_000


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
        self._own = Connections(address, tuned=False)
        self._blocking = PsycopgPool(address)
        self._layout = Layout()
        self._claiming = Claiming(self._layout)
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
        return UNKNOWN if server is None else server.promise

    async def now(self) -> datetime:
        """The database's clock, unless a test has its own."""
        if self.clock is not None:
            return self.clock.now()
        now: datetime = (await self.fetch(Ask("now", (None,))))[0][0]
        return now

    # -- open and close ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; make the schema where there is none."""
        self._closed = False
        if not self._ready:
            with self._connections.translated_errors():
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
        return Terms(schema=self.address.schema, clock=self._now, layout=self._layout)

    async def know(self) -> None:
        """Ask how queues are laid out: anew now and then, for somebody may change it."""
        self._layout.asking()
        self._layout.learn(await self.fetch(Ask("layout")))

    async def _lay_anew(self, queues: Sequence[str]) -> None:
        """Put the ready tasks of these queues where they belong now, some at a time."""
        rules = ClaimRules(self._layout.settings, self._layout.limits)
        ready = await self.fetch(Ask("ready_queues", (_MANY,))) if ALL in queues else ()
        for queue in [row[0] for row in ready] or queues:
            while await self.play(partial(laying.take_out, queue)) >= laying.AT_ONCE:
                continue
            while self._layout.is_laned(queue) and await self.play(partial(laying.lay_some, rules, [queue])):
                continue
        if queues:
            await self.fetch(Ask("settled", (list(queues),)))
            await self.know()

    async def _limits_changed(self, moved: Sequence[Limit]) -> None:
        """Have what runs count for the limits as they are, and lay anew what these move."""
        await self.play(partial(laying.count_running, await self.now()))
        await self.know()
        await self._lay_anew(laying.queues_of(moved))

    async def _tidy_lanes(self, settings: Sequence[QueueSettings]) -> None:
        """Queues that need no lanes any more are lines again; what limits count no longer is forgotten."""
        await self.play(lambda: laying.straighten(self._now, settings))
        await self.know()
        # From queues that were straightened just now; or from long ago: by a transaction that began before.
        laned = [row[0] for row in await self.fetch(Ask("laned_queues"))]
        unsettled = [row[0] for row in await self.fetch(Ask("unsettled"))]
        await self._lay_anew([*unsettled, *(queue for queue in laned if not self._layout.is_laned(queue))])
        while await self.play(lambda: laying.forget_unused(self._now)):
            continue

    async def fetch(self, ask: Ask) -> Sequence[Row]:
        """One statement's rows."""
        if self._closed or not self._ready:
            await self._opened()
        with self._connections.translated_errors():
            return await self._connections.fetch(ask)

    async def play(self, make: Callable[[], Script[T]]) -> T:
        """A script, in a transaction."""
        await self._opened()
        with self._connections.translated_errors():
            return await self._connections.play(make)

    async def _opened(self) -> None:
        if self._closed:
            raise StoreError(f"the store at {self.address.display} is closed; open it again to use it")
        if not self._ready:
            await self.open()


_handles: "WeakSet[Handle]" = WeakSet()


def _after_fork() -> None:
    for handle in list(_handles):
        handle.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
