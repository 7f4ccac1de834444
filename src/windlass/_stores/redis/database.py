"""The resources of one Redis store: connections, keys, clock and queue rules; and units of work on them."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from time import monotonic_ns
from typing import Any, TypeVar

from msgspec import Struct

from ..._model.limit import Limit
from ..._model.queue import QueueSettings
from ..._model.record import KINDS
from ..._model.task import TaskId
from ..._store.clock import Clock
from ...errors import StoreError, StoreUnavailable, WindlassError
from ..records import readable, reader
from ..rules.queue_rules import QueueRules
from . import schema
from .connection.address import Address
from .connection.client import Client, running_loop
from .keys import Keys
from .rows import Stored, instant, moment
from .unit_of_work import UnitOfWork

T = TypeVar("T")

TRIES = 100
"""How often a unit of work is tried again because others changed what it read."""

_PAUSE_SECONDS = 0.002
_read_settings = reader(QueueSettings)
_read_limit = reader(Limit)


class VersionedRules(Struct, frozen=True):
    """The rules of queues as of a version, which every commit checks."""

    version: str
    rules: QueueRules


class Database:
    """One handle's way to the server."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        self.address = address
        self.client = Client(address)
        self.keys = Keys(address.name)
        self.clock = StoreClock(clock)
        self._rules: VersionedRules | None = None

    async def now(self) -> datetime:
        """Return the server's time, or that of a test's clock."""
        if self.clock.test_clock is not None:
            return self.clock.test_clock.now()
        sent_at = monotonic_ns()
        seconds, micros = await self.client.call("TIME")
        self.clock.observe(int(seconds) * 1_000_000 + int(micros), sent_at)
        return moment(int(seconds) * 1_000_000 + int(micros))

    # -- rules ---------------------------------------------------------------------------------------

    async def rules(self) -> VersionedRules:
        """Return the rules of queues as last read. A commit on outdated ones is refused."""
        return self._rules or await self.read_rules()

    async def read_rules(self) -> VersionedRules:
        """Read the rules of queues again. Raises SchemaMismatch if the store has another schema."""
        keys = self.keys
        (version, number), queues, limits, relayouts = await self.client.call_all(
            [
                ("HMGET", keys.meta, "rules", "schema"),
                ("HVALS", keys.bodies("queue")),
                ("HVALS", keys.bodies(KINDS[Limit])),
                ("SMEMBERS", keys.relayout),
            ]
        )
        schema.require(number or await schema.create(self.client, keys), self.address.display)
        if number is None:
            return await self.read_rules()  # What was read above may be older than the rules' version.
        settings = {one.name: one for one in readable(_read_settings, queues)}
        found = sorted(readable(_read_limit, limits), key=lambda limit: limit.name)
        rules = QueueRules(settings, found, frozenset(one.decode() for one in relayouts))
        self._rules = VersionedRules(version.decode(), rules)
        return self._rules

    # -- units of work -------------------------------------------------------------------------------

    async def begin(self, seeds: Mapping[TaskId, Stored | None] | None = None) -> UnitOfWork:
        """Begin a unit of work."""
        rules = await self.rules()
        now = self.clock.now or await self.now()
        return UnitOfWork(self.client, self.keys, rules.rules, rules.version, now, seeds)

    async def transact(
        self,
        work: Callable[[UnitOfWork], Awaitable[T]],
        seeds: Mapping[TaskId, Stored | None] | None = None,
    ) -> T:
        """Do the work and commit it; again from the start if others changed what it read.

        `seeds` are tasks that need not be read at first.
        """
        for attempt in range(TRIES):
            unit = await self.begin(None if attempt else seeds)
            try:
                result = await work(unit)
            except StoreError:
                raise
            except WindlassError:
                if await self._still_holds(unit):
                    raise
            else:
                if await self.commit_changes(unit):
                    return result
            await self.pause(attempt)
        raise self.contended()

    async def _still_holds(self, unit: UnitOfWork) -> bool:
        """Whether the readings that a refusal depends on were all true at one moment."""
        unit.discard()
        return bool((await self.commit("commit", unit))[0])

    async def commit_changes(self, unit: UnitOfWork) -> bool:
        """Commit a unit of work, if it changes anything; return False if a reading is outdated.

        What was read may not have reached the replicas yet. If they are waited for, an answer that nothing
        is left to change must wait for them too: so there is a write to wait for.
        """
        if unit.is_empty:
            if not self.address.replicas:
                return True
            unit.run("HSET", self.keys.meta, "confirmed", "")
        return bool((await self.commit("commit", unit))[0])

    async def commit(self, script: str, unit: UnitOfWork, *more: Any) -> Any:
        """Run a script that commits a unit of work; return its reply."""
        keys, arguments = unit.statement()
        head = [self.clock.argument] if script == "commit" else [self.clock.argument, self.keys.prefix]
        return await self._timed(script, keys, [*head, *arguments, *more])

    async def run(self, script: str, *arguments: Any, keys: Sequence[bytes] = ()) -> Any:
        """Run a script that commits no unit of work; return its reply."""
        return await self._timed(
            script, [self.keys.meta, *keys], [self.clock.argument, self.keys.prefix, *arguments]
        )

    async def _timed(self, script: str, keys: Sequence[str | bytes], arguments: Sequence[Any]) -> Any:
        """Run a script whose reply has the server's time in the second place."""
        sent_at = monotonic_ns()
        reply = await self.client.run(script, keys, arguments)
        if self.clock.test_clock is None:
            self.clock.observe(reply[1], sent_at)
        return reply

    async def pause(self, attempt: int) -> None:
        """Prepare for another attempt: read the rules again, and wait a little so that others finish."""
        await self.read_rules()
        if attempt:
            seconds = random.random() * _PAUSE_SECONDS * min(attempt, 20)
            if running_loop() is None:
                time.sleep(seconds)  # noqa: ASYNC251  a thread without an event loop
            else:
                await asyncio.sleep(seconds)

    def contended(self) -> StoreUnavailable:
        """Return the error of work that others kept overtaking."""
        return StoreUnavailable(
            f"Redis at {self.address.display}: other clients kept changing the same tasks; retry"
        )


# -- the store's time ----------------------------------------------------------------------------------


_FRESH_NS = 60_000_000_000


class StoreClock:
    """Scripts read the server's clock; what is decided here uses an estimate of it.

    A reply with the server's time bounds the distance between its clock and our monotonic one: it was read
    after the request was sent, and before the reply arrived. The estimate is the highest lower bound so far,
    unless a newer upper bound is below it. So it is behind the server by the way of the quickest reply, it
    is never before the time in any reply that has arrived, and being held up for seconds does not spoil it.
    """

    def __init__(self, test_clock: Clock | None) -> None:
        self.test_clock = test_clock
        self._offset: int | None = None  # microseconds that the server's clock is ahead of ours
        self._observed_at = 0

    @property
    def argument(self) -> str | int:
        """What scripts take as the time: "" for the server's."""
        return "" if self.test_clock is None else instant(self.test_clock.now())

    def observe(self, microseconds: bytes | int, sent_at: int) -> None:
        """Note the server's time of a reply that has just arrived, and when the request was sent."""
        self._observed_at = monotonic_ns()
        lower = int(microseconds) - self._observed_at // 1000
        upper = int(microseconds) - sent_at // 1000
        self._offset = lower if self._offset is None else min(max(self._offset, lower), upper)

    @property
    def now(self) -> datetime | None:
        """The present time; None if no reply of the last minute had it."""
        if self.test_clock is not None:
            return self.test_clock.now()
        present = monotonic_ns()
        if self._offset is None or present - self._observed_at > _FRESH_NS:
            return None
        return moment(self._offset + present // 1000)
