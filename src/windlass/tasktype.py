"""A task type: the declaration of a kind of task, and the ways to enqueue it. What `@app.task` makes."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack

from ._client.handle import Handle
from ._client.sync import SyncHandle
from ._handler.spec import HandlerSpec
from ._ids import new_id, new_ids
from ._model.options import Options
from ._model.queue import Ordering
from ._model.task import NewTask
from ._policy.input.chain import Step, with_fresh_ids
from ._policy.input.new_task import Origin, check_options, later_step, new_step, new_task, with_payload
from .errors import InvalidOption

P = ParamSpec("P")
C = TypeVar("C")  # what calling the function gives
R = TypeVar("R")  # what the task's result is


class Door(Protocol):
    """Where a task type's tasks are handed in: the app, seen from below."""

    def enqueue_tasks(
        self, batch: list[NewTask], result_type: Any, within: object | None
    ) -> list[SyncHandle[Any]]:
        """Blocking."""
        ...

    async def aenqueue_tasks(
        self, batch: list[NewTask], result_type: Any, within: object | None
    ) -> list[Handle[Any]]:
        """For an event loop."""
        ...

    def ordering(self, queue: str) -> Ordering:
        """How a queue is ordered."""
        ...

    def origin(self) -> Origin:
        """Who is asking."""
        ...


class TaskType(Generic[P, C, R]):
    """A declared kind of task. Called, it is still the plain function it was made from."""

    def __init__(self, declared: HandlerSpec, function: Callable[P, C], door: Door) -> None:
        self.spec = declared
        self.door = door
        self._function = function
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The dotted name that tasks of this type carry."""
        return self.spec.name

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here and now; no queue is involved."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task type {self.name!r}>"

    def using(self, *, within: object | None = None, **options: Unpack[Options]) -> "Prepared[P, R]":
        """The same type with other options for what is enqueued through it.

        `within` takes an open connection of the caller's own: both commit or neither does.
        """
        check_options(options)
        return Prepared(self.spec, self.door, options, within)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Enqueue, blocking; returns a handle once the task is durable."""
        return self._plain.enqueue(*args, **kwargs)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue from an event loop; returns a handle once the task is durable."""
        return await self._plain.aenqueue(*args, **kwargs)

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[SyncHandle[R]]:
        """Enqueue one task for each payload, all or none, blocking."""
        return self._plain.enqueue_many(payloads)

    async def aenqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one task for each payload, all or none."""
        return await self._plain.aenqueue_many(payloads)

    def step(self, /, *args: P.args, **kwargs: P.kwargs) -> Step:
        """A task to be, for a chain or group. `RESULT` as an argument takes the predecessor's result."""
        return self._plain.step(*args, **kwargs)

    @functools.cached_property
    def _plain(self) -> "Prepared[P, R]":
        return Prepared(self.spec, self.door, {}, None)


class Prepared(Generic[P, R]):
    """A task type with options: what `using` gives."""

    def __init__(self, declared: HandlerSpec, door: Door, options: Options, within: object | None) -> None:
        self._declared = declared
        self._door = door
        self._options = options
        self._within = within

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Enqueue, blocking; returns a handle once the task is durable (or, within, once it is inserted)."""
        return self._hand_in([self._task(args, kwargs)])[0]

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue from an event loop."""
        return (await self._ahand_in([self._task(args, kwargs)]))[0]

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[SyncHandle[R]]:
        """Enqueue one task for each payload, all or none, blocking."""
        return self._hand_in(self._tasks(payloads))

    async def aenqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one task for each payload, all or none."""
        return await self._ahand_in(self._tasks(payloads))

    def step(self, /, *args: P.args, **kwargs: P.kwargs) -> Step:
        """A task to be, for a chain or group."""
        if self._within is not None:
            raise InvalidOption("within is for enqueueing; a step is enqueued later, when it follows")
        step, result_into = self._step(args, kwargs)
        return later_step(step, self._options, result_into)

    def _hand_in(self, batch: list[NewTask]) -> list[SyncHandle[R]]:
        return self._door.enqueue_tasks(batch, self._declared.signature.result_type, self._within)

    async def _ahand_in(self, batch: list[NewTask]) -> list[Handle[R]]:
        return await self._door.aenqueue_tasks(batch, self._declared.signature.result_type, self._within)

    def _tasks(self, payloads: Iterable[Mapping[str, Any]]) -> list[NewTask]:
        if "idempotency_key" in self._options:
            raise InvalidOption("one idempotency key cannot stand for many tasks; enqueue them one by one")
        given = [dict(payload) for payload in payloads]
        if not given:
            return []
        first = self._task((), given[0])
        if first.next is not None:  # The steps of a chain are made anew for each.
            return [first, *(self._task((), payload) for payload in given[1:])]
        ids = new_ids(len(given) - 1)
        return [
            first,
            *(
                with_payload(first, task_id, self._first_payload((), payload))
                for task_id, payload in zip(ids, given[1:], strict=True)
            ),
        ]

    def _task(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewTask:
        step = self._new_step(self._first_payload(args, kwargs))
        return new_task(
            with_fresh_ids(step, new_id) if step.next else step, self._options, self._door.origin()
        )

    def _first_payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        payload, result_into = self._declared.signature.payload(args, kwargs)
        if result_into is not None:
            raise InvalidOption(f"{result_into}=RESULT is for a step; a first task has no predecessor")
        return payload

    def _step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Step, str | None]:
        payload, result_into = self._declared.signature.payload(args, kwargs)
        return self._new_step(payload), result_into

    def _new_step(self, payload: bytes) -> Step:
        declared = self._declared
        return new_step(
            declared.name,
            payload,
            declared.defaults,
            self._options,
            id=new_id(),
            ordering=self._door.ordering,
        )
