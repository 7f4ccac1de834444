"""ShardHandles: the shards as one handle of the store uses them, and calls of several of them at once."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from ...._model.filter import MAX_PAGE, Filter, Page
from ...._model.record import Routes, ShardMap
from ...._model.task import TaskId
from ...._store.partial_answers import leave_out, may_leave_out
from ...._store.protocol import Store
from ....errors import StoreError, StoreUnavailable
from ..map_watch import MapWatch
from .registry import ShardRegistry
from .shard import Shard

T = TypeVar("T")


class ShardHandles:
    """The shards of one handle, each opened when it is first used."""

    def __init__(self, registry: ShardRegistry) -> None:
        self.registry = registry
        self.watch = MapWatch()
        self.places = TaskPlaces()
        self.renewals = Renewals()
        self._shards: dict[str, Shard] = {}
        self._mapped: tuple[str, ...] = ()  # the shards of the map when this handle looked at it last

    def another(self) -> "ShardHandles":
        """Return further handles on the same shards, which share what this process knows of them."""
        other = ShardHandles(self.registry)
        other.watch, other.places, other.renewals = self.watch, self.places, self.renewals
        return other

    def __getitem__(self, name: str) -> Shard:
        if name not in self._shards:
            self._shards[name] = self.registry.shard(name)
        return self._shards[name]

    def is_open(self, name: str) -> bool:
        """Whether this handle has opened a shard."""
        return name in self._shards and self._shards[name].is_open

    def opened_stores(self) -> dict[str, Store]:
        """Return the stores of this handle's shards: what they promise is known once they are open."""
        names = self.registry.names if self.watch.map is None else self.names
        return {
            name: self._shards[name].store if name in self._shards else store
            for name, store in self.registry.stores.items()
            if name in names
        }

    async def close(self) -> None:
        """Close all that are open."""
        await asyncio.gather(*(shard.close() for shard in self._shards.values()))

    # -- the map -----------------------------------------------------------------------------------

    @property
    def map(self) -> ShardMap:
        """The newest map that is known."""
        assert self.watch.map is not None, "the store has not been opened"
        return self.watch.map

    @property
    def routes(self) -> Routes:
        """The routes that new tasks follow now."""
        return self.watch.routes

    @property
    def names(self) -> tuple[str, ...]:
        """All shards, the home shard first."""
        home = self.map.home
        return (home, *(name for name in self.map.shards if name != home))

    async def known(self) -> ShardMap:
        """Return the map as it was read last; read it if it never was. Raises StoreUnavailable."""
        if self.watch.map is None:
            await self.refresh()
        await self._close_removed()
        return self.map

    async def ready(self) -> ShardMap:
        """Read the map again if it is time to, and return it. Raises StoreUnavailable if there is none."""
        if self.watch.map is None:
            await self.refresh()
        elif monotonic() >= self.watch.due:
            with suppress(StoreUnavailable):  # the verb that follows raises if it needs a shard that is down
                await self.refresh()
        await self._close_removed()
        return self.map

    async def _close_removed(self) -> None:
        """Close shards that have been removed from the map: nobody uses them any more."""
        before, self._mapped = self._mapped, self.map.shards
        if before is not self._mapped:
            for name in set(before).intersection(self._shards).difference(self._mapped):
                await self._shards.pop(name).close()

    async def refresh(self) -> None:
        """Read the map now. Raises StoreUnavailable if no shard answers."""
        names = self.registry.names if self.watch.map is None else self.names
        known = set(self.registry.names)
        await self.watch.refresh([self[name] for name in names if name in known or self._is_found(name)])

    def _is_found(self, name: str) -> bool:
        try:
            return bool(self[name])
        except StoreUnavailable:
            return False

    # -- several at once -----------------------------------------------------------------------------

    async def each(
        self, names: Iterable[str], call: Callable[[Shard], Coroutine[Any, Any, T]]
    ) -> tuple[dict[str, T], dict[str, StoreError]]:
        """Call several shards at once; return the answers, and the errors of those without one.

        Raises any other error, once all have answered.
        """
        chosen = list(dict.fromkeys(names))
        if len(chosen) == 1:  # the common case, without tasks
            results: Sequence[T | BaseException] = [await self._result(chosen[0], call)]
        else:
            results = await asyncio.gather(*(self._result(name, call) for name in chosen))
        answers: dict[str, T] = {}
        errors: dict[str, StoreError] = {}
        for name, result in zip(chosen, results, strict=True):
            if isinstance(result, StoreError):
                errors[name] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                answers[name] = result
        return answers, errors

    async def _result(self, name: str, call: Callable[[Shard], Coroutine[Any, Any, T]]) -> T | Exception:
        try:
            return await call(self[name])
        except Exception as error:  # noqa: BLE001 - `each` raises it
            return error

    async def every(
        self, names: Iterable[str], call: Callable[[Shard], Coroutine[Any, Any, T]]
    ) -> dict[str, T]:
        """Call several shards at once; raise the first error of any."""
        answers, errors = await self.each(names, call)
        for error in errors.values():
            raise error
        return answers

    async def all_but_missing(
        self, names: Iterable[str], call: Callable[[Shard], Coroutine[Any, Any, T]]
    ) -> dict[str, T]:
        """Call several shards at once; raise the first error of any, unless the answer may lack some."""
        answers, errors = await self.each(names, call)
        check_complete(answers, errors)
        return answers

    async def some(
        self, names: Iterable[str], call: Callable[[Shard], Coroutine[Any, Any, T]]
    ) -> dict[str, T]:
        """Call several shards at once; return the answers. Raises if none answers.

        What a shard did not answer is done when it is back; its outage is logged.
        """
        answers, errors = await self.each(names, call)
        if not answers:
            for error in errors.values():
                raise error
        return answers

    # -- where tasks are -----------------------------------------------------------------------------

    async def locate(self, task_ids: Collection[TaskId]) -> dict[TaskId, str | None]:
        """Return the shard of each task; None if a shard that may have it did not answer.

        Tasks that no shard has are left out.
        """
        found: dict[TaskId, str | None] = {}
        unknown: list[TaskId] = []
        for task_id in dict.fromkeys(task_ids):
            shard = self.places.get(task_id)
            if shard is None or shard not in self.map.shards:
                unknown.append(task_id)
            else:
                found[task_id] = shard
        if not unknown:
            return found
        for start in range(0, len(unknown), MAX_PAGE):
            found |= await self._search(unknown[start : start + MAX_PAGE])
        return found

    async def _search(self, task_ids: Sequence[TaskId]) -> dict[TaskId, str | None]:
        where, page = Filter(ids=tuple(task_ids)), Page(limit=len(task_ids))
        answers, errors = await self.each(
            self.names, lambda shard: shard.call_within(shard.store.find, where, page)
        )
        found: dict[TaskId, str | None] = dict.fromkeys(task_ids) if errors else {}
        for name, tasks in answers.items():
            ids = [task.id for task in tasks.items]
            self.places.add(ids, name)
            found |= dict.fromkeys(ids, name)
        return found


def check_complete(answers: Mapping[str, object], errors: Mapping[str, StoreError]) -> None:
    """Raise the first error, unless the answer may lack some shards."""
    if errors and not (answers and may_leave_out()):
        raise next(iter(errors.values()))
    leave_out(errors)


class OnShards:
    """What every role of the store has: the shards of its handle."""

    def __init__(self, shards: ShardHandles) -> None:
        self._shards = shards


# -- when sessions were last renewed on each shard -----------------------------------------------------


STOP_AT = 0.8  # of the lease, without a renewal, as workers do when the whole store does not answer
_MAX_SESSIONS = 10_000


class Renewals:
    """The sessions that this process renews. Shared by its handles."""

    def __init__(self) -> None:
        self._renewed: dict[str, dict[str, float]] = {}

    def note(self, session: str, shards: Iterable[str], at: float) -> None:
        """Note that these shards have renewed a session, by a heartbeat that was sent at this time."""
        renewed = self._renewed.pop(session, {})
        renewed |= dict.fromkeys(shards, at)
        self._renewed[session] = renewed  # the newest last
        if len(self._renewed) > _MAX_SESSIONS:
            self._renewed.pop(next(iter(self._renewed)), None)

    def silent(self, session: str, lease_for: timedelta) -> set[str]:
        """Return the shards that have not renewed it for so long that its leases there may soon run out."""
        oldest = monotonic() - lease_for.total_seconds() * STOP_AT
        return {name for name, at in self._renewed.get(session, {}).items() if at < oldest}


# -- which shard recent tasks are on -------------------------------------------------------------------


MAX_PLACES = 100_000


class TaskPlaces:
    """The shards of the tasks that this process enqueued, claimed or found last. A task never moves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: dict[TaskId, str] = {}

    def get(self, task_id: TaskId) -> str | None:
        """Return the shard of a task, if it is known."""
        return self._shards.get(task_id)

    def add(self, task_ids: Iterable[TaskId], shard: str) -> None:
        """Note the shard of tasks; the oldest notes are forgotten."""
        with self._lock:
            self._shards.update(dict.fromkeys(task_ids, shard))
            excess = len(self._shards) - MAX_PLACES
            if excess > 0:
                for task_id in list(islice(self._shards, excess + MAX_PLACES // 10)):
                    del self._shards[task_id]
