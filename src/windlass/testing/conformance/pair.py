"""Compare a store with the memory store: every step is applied to both, with equal results."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..._model.filter import Slice
from ..._model.lease import Claimed, HeartbeatReply
from ..._model.record import Audit
from ..._model.task import Task
from ..._model.transition import Applied, Pruned, TaskTransition
from ..._model.verdict import Settled
from ..._store.clock import Clock
from ..._store.protocol import Store
from ..._stores.memory import MemoryStore
from ...errors import WindlassError
from ..clock import ManualClock
from .steps import Dump, dump

T = TypeVar("T")
Factory = Callable[[Clock], Store]
"""Makes an unopened, empty store; called once for every pair."""


class Refusal(Struct, frozen=True):
    """An error that both stores must raise; the message may differ."""

    code: str
    standing: str | None


class Pair:
    """The memory store and the one it is compared with, on one clock and one loop."""

    def __init__(self, factory: Factory) -> None:
        self.clock = ManualClock()
        self._loop = asyncio.new_event_loop()
        self._seen: frozenset[Task] = frozenset()
        self._stores = (MemoryStore(clock=self.clock), factory(self.clock))
        for store in self._stores:
            self._loop.run_until_complete(store.open())

    def both(self, verb: Callable[[Store], Awaitable[T]]) -> T | Refusal:
        """Apply a verb to both; return the result, which must be equal."""
        expected, actual = (self._loop.run_until_complete(_result(verb, store)) for store in self._stores)
        assert actual == expected, f"memory returned {expected!r}, the other store {actual!r}"
        return expected

    def compare(self, *, thoroughly: bool = False) -> None:
        """Assert that everything visible is equal in both.

        Unless `thoroughly`, attempts are only compared for tasks that have changed since the last comparison.
        """
        skip = frozenset[Task]() if thoroughly else self._seen
        expected, actual = (self._loop.run_until_complete(dump(store, skip)) for store in self._stores)
        for name in Dump.__struct_fields__:
            assert _plain(getattr(actual, name)) == _plain(getattr(expected, name)), f"{name} differ"
        self._seen = frozenset((*expected.tasks, *actual.tasks))

    def close(self) -> None:
        """Compare once more, then close both stores and their event loop."""
        try:
            self.compare(thoroughly=True)
        finally:
            self._close()

    def _close(self) -> None:
        for store in self._stores:
            self._loop.run_until_complete(store.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _result(verb: Callable[[Store], Awaitable[T]], store: Store) -> T | Refusal:
    try:
        result: T = _plain(await verb(store))
    except WindlassError as error:
        return Refusal(error.code, getattr(error, "standing", None))
    return result


def _plain(value: Any) -> Any:
    """Remove what may differ between stores: messages and the ids of audit entries."""
    match value:
        case Claimed(task=task):
            return Claimed(_plain(task))
        case Settled():
            return replace(value, claimed=_plain(value.claimed), transitions=_in_order(value.transitions))
        case HeartbeatReply():
            lost, cancel = frozenset(value.lost), frozenset(value.cancel)
            return (value.alive, lost, cancel, _in_order(value.transitions))
        case Applied() | Pruned():
            return replace(value, transitions=_in_order(value.transitions))
        case list() | tuple():
            return tuple(_plain(one) for one in value)
        case Slice(items=items):
            return replace(value, items=_plain(items))
        case Audit(detail=detail):
            return replace(value, id="", detail="some" if detail else "")
        case _:
            return value


def _in_order(transitions: Sequence[TaskTransition]) -> tuple[Any, ...]:
    """Sort transitions: stores may cancel the successors of a task in any order."""
    return _plain(sorted(transitions, key=lambda step: (step.task_id, step.verb)))  # type: ignore[no-any-return]
