"""ForwardingStore: passes every verb of the seam on to another store; the base class of wrappers."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from .._model.attempt import Attempt
from .._model.filter import Action, By, Count, Dimension, Filter, Page, Slice
from .._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from .._model.queue import Retention
from .._model.record import Record
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.verdict import Settled, Settlement
from .protocol import Capability, Finding, Join, Migration, Promise, Promoted, Store, Transaction, Wake

P = ParamSpec("P")
R = TypeVar("R", bound=Record)
T = TypeVar("T")


class ForwardingStore:
    """A store that forwards to `inner`.

    Override a verb to change it, or `_forward` to do something around every verb that moves or reads data.
    `another` is left to the wrapper, which knows how to wrap the new handle.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def _forward(
        self,
        verb: str,  # noqa: ARG002  for wrappers
        method: Callable[P, Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, T]:
        """Call a method of the inner store; `verb` is its name, for wrappers that report or count by it."""
        return method(*args, **kwargs)

    # -- the handle: not passed through `_forward` ---------------------------------------------------

    @property
    def capabilities(self) -> Capability:
        return self.inner.capabilities

    @property
    def promise(self) -> Promise:
        return self.inner.promise

    def open(self) -> Coroutine[Any, Any, None]:
        return self.inner.open()

    def close(self) -> Coroutine[Any, Any, None]:
        return self.inner.close()

    def now(self) -> Coroutine[Any, Any, datetime]:
        return self.inner.now()

    def join(self, connection: object) -> Join:
        return self.inner.join(connection)

    def transaction(self) -> Transaction:
        return self.inner.transaction()

    def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        return self.inner.wakes(queues)

    # -- the verbs -----------------------------------------------------------------------------------

    def enqueue(self, batch: Sequence[NewTask]) -> Coroutine[Any, Any, Sequence[Enqueued]]:
        return self._forward("enqueue", self.inner.enqueue, batch)

    def claim(self, claim: Claim) -> Coroutine[Any, Any, Sequence[Claimed]]:
        return self._forward("claim", self.inner.claim, claim)

    def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Coroutine[Any, Any, Settled]:
        return self._forward("settle", self.inner.settle, batch, claim)

    def heartbeat(self, beat: Heartbeat) -> Coroutine[Any, Any, HeartbeatReply]:
        return self._forward("heartbeat", self.inner.heartbeat, beat)

    def once(self, lease: Lease, key: str) -> Coroutine[Any, Any, bool]:
        return self._forward("once", self.inner.once, lease, key)

    def lead(self, holder: str, lease_for: timedelta) -> Coroutine[Any, Any, bool]:
        return self._forward("lead", self.inner.lead, holder, lease_for)

    def promote(self, limit: int) -> Coroutine[Any, Any, Promoted]:
        return self._forward("promote", self.inner.promote, limit)

    def rescue(self, session: str, limit: int) -> Coroutine[Any, Any, Sequence[Claimed]]:
        return self._forward("rescue", self.inner.rescue, session, limit)

    def prune(self, retention: Retention, limit: int, by: By | None = None) -> Coroutine[Any, Any, int]:
        return self._forward("prune", self.inner.prune, retention, limit, by)

    def find(self, where: Filter, page: Page) -> Coroutine[Any, Any, Slice[Task]]:
        return self._forward("find", self.inner.find, where, page)

    def count(self, where: Filter, by: Sequence[Dimension]) -> Coroutine[Any, Any, Sequence[Count]]:
        return self._forward("count", self.inner.count, where, by)

    def attempts(self, task_id: TaskId) -> Coroutine[Any, Any, Sequence[Attempt]]:
        return self._forward("attempts", self.inner.attempts, task_id)

    def apply(self, action: Action, where: Filter, limit: int) -> Coroutine[Any, Any, Sequence[TaskId]]:
        return self._forward("apply", self.inner.apply, action, where, limit)

    def put(self, record: Record, by: By | None = None) -> Coroutine[Any, Any, None]:
        return self._forward("put", self.inner.put, record, by)

    def records(self, kind: type[R], page: Page) -> Coroutine[Any, Any, Slice[R]]:
        return self._forward("records", self.inner.records, kind, page)

    def remove(self, kind: type[Record], name: str, by: By | None = None) -> Coroutine[Any, Any, bool]:
        return self._forward("remove", self.inner.remove, kind, name, by)

    def migrations(self) -> Coroutine[Any, Any, Sequence[Migration]]:
        return self._forward("migrations", self.inner.migrations)

    def migrate(self, target: int | None = None) -> Coroutine[Any, Any, Sequence[Migration]]:
        return self._forward("migrate", self.inner.migrate, target)

    def check(self) -> Coroutine[Any, Any, Sequence[Finding]]:
        return self._forward("check", self.inner.check)
