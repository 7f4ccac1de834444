"""Client: what programs call to have work done later."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from .._ids import new_id
from .._model.options import Defaults, Options
from .._model.queue import Ordering
from .._model.task import Enqueued, NewTask, TaskId
from .._observe.tracing import send_span
from .._policy.input.chain import Step, all_ids, decode_steps, with_fresh_ids
from .._policy.input.new_task import Origin, check_first_options, group, new_step, new_task
from .._policy.input.payload import encode_payload
from .._store.protocol import Capability, Join, Store, require
from ..errors import InvalidOption, StoreUnavailable
from .handle import Handle

MAX_BATCH = 100_000


class Client:
    """Enqueue tasks and follow them. One client serves any number of event loops."""

    def __init__(
        self, store: Store, *, ordering: Callable[[str], Ordering], origin: Callable[[], Origin]
    ) -> None:
        self._store = store
        self._ordering = ordering
        self._origin = origin

    async def enqueue(
        self, step: Step, *, within: object | None = None, **options: Unpack[Options]
    ) -> Handle[Any]:
        """Enqueue a step, with the chain that hangs on it. The options are those of a first task alone."""
        check_first_options(options)
        return (await self.enqueue_tasks([self.task(step, options)], within=within))[0]

    async def enqueue_many(self, steps: Iterable[Step], *, within: object | None = None) -> list[Handle[Any]]:
        """Enqueue several steps, all or none."""
        return await self.enqueue_tasks([self.task(step) for step in steps], within=within)

    async def enqueue_group(
        self, steps: Iterable[Step], then: Step, *, within: object | None = None
    ) -> list[Handle[Any]]:
        """Enqueue several steps and one that waits until all of them have completed; its handle is last."""
        return await self.enqueue_tasks(self.group(steps, then), within=within)

    async def send(
        self,
        type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        within: object | None = None,
        **options: Unpack[Options],
    ) -> Handle[Any]:
        """Enqueue by the type's name alone, for programs that do not have its handler."""
        return (await self.enqueue_tasks([self.named(type, payload, options)], within=within))[0]

    async def get(self, task_id: TaskId) -> Handle[Any]:
        """A handle on a task that exists; NotFound otherwise."""
        await self._store.open()
        handle: Handle[Any] = Handle(self._store, task_id, created=False)
        await handle.task()
        return handle

    # -- making tasks --------------------------------------------------------------------------------

    def task(self, step: Step, options: Options | None = None) -> NewTask:
        """The first task of a request."""
        if not isinstance(step, Step):
            raise InvalidOption(f"a step is enqueued, not {step!r}; make one with a task type's step()")
        return new_task(with_fresh_ids(step, new_id), options or {}, self._origin())

    def group(self, steps: Iterable[Step], then: Step) -> tuple[NewTask, ...]:
        """The tasks of a group, the waiting one last."""
        return group([self.task(step) for step in steps], self.task(then))

    def named(self, type: str, payload: Mapping[str, Any] | None, options: Options) -> NewTask:
        """A task of a type that this program only knows by name."""
        data = encode_payload(payload or {})
        step = new_step(type, data, Defaults(), options, id=new_id(), ordering=self._ordering)
        return self.task(step, options)

    # -- handing them in -----------------------------------------------------------------------------

    async def enqueue_tasks(
        self, batch: Sequence[NewTask], *, result_type: Any = Any, within: object | None = None
    ) -> list[Handle[Any]]:
        """Enqueue tasks that are made already, all or none."""
        _check_size(batch)
        with send_span(batch) as span:
            if within is None:
                answers = await self._enqueue_surely(span.batch)
            else:
                joined = self._join(within).enqueue(span.batch)
                answers = await joined if isinstance(joined, Awaitable) else joined
            span.enqueued(answers)
        return self._handles(batch, answers, result_type)

    def insert(
        self, batch: Sequence[NewTask], within: object, *, result_type: Any = Any
    ) -> list[Handle[Any]]:
        """Insert tasks in the caller's own transaction, in the caller's own thread."""
        _check_size(batch)
        with send_span(batch) as span:
            answers = self._join(within).enqueue(span.batch)
            if isinstance(answers, Awaitable):
                raise InvalidOption("this connection is async: use aenqueue within its transaction")
            span.enqueued(answers)
        return self._handles(batch, answers, result_type)

    def _join(self, connection: object) -> Join:
        require(self._store, Capability.JOIN, "enqueue inside your own transaction")
        return self._store.join(connection)

    def _handles(
        self, batch: Sequence[NewTask], answers: Iterable[Enqueued], result_type: Any
    ) -> list[Handle[Any]]:
        return [
            Handle(
                self._store,
                answer.id,
                created=answer.created,
                following=all_ids(decode_steps(new.next)) if new.next and answer.created else (),
                result_type=result_type,
            )
            for new, answer in zip(batch, answers, strict=True)
        ]

    async def _enqueue_surely(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Enqueue, asking once more if the store faltered: the ids are ours, so a repeat is harmless."""
        await self._store.open()
        try:
            return await self._store.enqueue(batch)
        except StoreUnavailable:
            again = await self._store.enqueue(batch)
            # What stands under our own fresh id was created by the call whose reply was lost.
            ours = {task.id for task in batch}
            return [Enqueued(id=answer.id, created=answer.created or answer.id in ours) for answer in again]


def _check_size(batch: Sequence[NewTask]) -> None:
    if len(batch) > MAX_BATCH:
        raise InvalidOption(f"a batch holds at most {MAX_BATCH:,} tasks, not {len(batch):,}; split it")
