"""ForwardingStore: passes every verb of the seam on to another store; the base class of wrappers."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .._model.filter import Page, Slice
from .._model.record import Record
from .protocol import Capability, Join, Promise, Store, Transaction, Wake

P = ParamSpec("P")
R = TypeVar("R", bound=Record)
T = TypeVar("T")


def _forwarded(
    verb: Callable[Concatenate[Store, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["ForwardingStore", P], Coroutine[Any, Any, T]]:
    """Return a verb of the seam as a method that calls the same verb of the inner store."""
    name = verb.__name__

    @wraps(verb)
    def forward(self: "ForwardingStore", /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return self._forward(name, getattr(self.inner, name), *args, **kwargs)

    return forward


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

    enqueue = _forwarded(Store.enqueue)
    claim = _forwarded(Store.claim)
    settle = _forwarded(Store.settle)
    heartbeat = _forwarded(Store.heartbeat)
    once = _forwarded(Store.once)
    lead = _forwarded(Store.lead)
    promote = _forwarded(Store.promote)
    rescue = _forwarded(Store.rescue)
    prune = _forwarded(Store.prune)
    find = _forwarded(Store.find)
    count = _forwarded(Store.count)
    ended = _forwarded(Store.ended)
    attempts = _forwarded(Store.attempts)
    apply = _forwarded(Store.apply)
    put = _forwarded(Store.put)
    remove = _forwarded(Store.remove)
    migrations = _forwarded(Store.migrations)
    migrate = _forwarded(Store.migrate)
    check = _forwarded(Store.check)

    def records(self, kind: type[R], page: Page) -> Coroutine[Any, Any, Slice[R]]:
        return self._forward("records", self.inner.records, kind, page)
