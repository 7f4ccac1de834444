"""Client: enqueue tasks and follow them. Handle: one of these tasks. LoopThread: for blocking callers."""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Generic, TypeVar, Unpack

from .._model.filter import By, CancelTasks, Filter, Page
from .._model.options import Options
from .._model.state import ENDED, State
from .._model.task import CANCELLED, Documented, Enqueued, NewTask, Predecessor, Progress, Task, TaskId
from .._observe.tracing import send_span
from .._policy.input.chain import Step, all_ids, decode_steps
from .._policy.input.new_task import check_first_options
from .._policy.input.options import parse_duration
from .._policy.input.payload import decode
from .._policy.secrets.encrypted import HINT, MARKER, key_ids, refuse_marked
from .._store.protocol import Capability, Join, Store, require
from ..errors import (
    InvalidOption,
    NotFinished,
    NotFound,
    Refused,
    StoreUnavailable,
    TaskCancelled,
    TaskDead,
    TaskFinished,
)
from .blocking_calls import is_on_event_loop, run_without_loop, warn_on_event_loop
from .builder import TaskBuilder, encoded_payload
from .published_types import KnownTypes
from .tasks.predecessors import look_up
from .tasks.unserved import is_first, tell_enqueuer, told_if_unserved
from .tasks.waiter import wait_for_end

R = TypeVar("R")  # the result of a task
T = TypeVar("T")

MAX_BATCH = 100_000  # the most tasks that one call enqueues


class Handle(Documented, Generic[R]):
    """One task, for the program that enqueued it.

        handle = await welcome.aenqueue(user_id=1)
        await handle.result(timeout=10)

    Every method reads from the store, except `as_dict`: the id, `created` and `following`.
    """

    id: TaskId
    """The task's id."""

    created: bool
    """False if the task existed before: it was enqueued earlier with the same idempotency key."""

    following: tuple[TaskId, ...]
    """The ids of the tasks that follow in its chain; each exists once the one before it has completed."""

    def __init__(
        self,
        store: Store,
        task_id: TaskId,
        created: bool = True,  # noqa: FBT001, FBT002
        following: tuple[TaskId, ...] = (),
        known: tuple[TaskId, str, tuple[str, ...]] | None = None,
        types: KnownTypes | None = None,
    ) -> None:
        self._store = store
        self._types = types
        self.id = task_id
        self.created = created
        self.following = following
        self._known = known  # root, tenant and secrets; None if the task existed before

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    def as_predecessor(self) -> Predecessor | TaskId:
        """Return what is known of the task, for one that waits for it: at least its id."""
        return self.id if self._known is None else Predecessor(self.id, *self._known)

    async def task(self) -> Task:
        """Return the task as it is now; raises NotFound once its record has been pruned."""
        await self._store.open()
        found = await self._store.find(Filter(ids=(self.id,)), Page(limit=1))
        if not found.items:
            raise NotFound(
                f"there is no task {self.id}: it was never enqueued here, or its record was pruned"
            )
        return await self._with_secrets(found.items[0])

    async def _with_secrets(self, task: Task) -> Task:
        return task if self._types is None else (await self._types.with_result_secrets([task]))[0]

    async def state(self) -> State:
        """Return the task's state; raises NotFound once its record has been pruned."""
        return (await self.task()).state

    async def progress(self) -> Progress | None:
        """Return what the handler last reported with `ctx.progress`; None if it has reported nothing."""
        return (await self.task()).progress

    async def wait(self, timeout: timedelta | float | str | None = None) -> Task:
        """Wait until the task has ended and return it: completed, dead or cancelled.

        `timeout`: seconds, a timedelta or text such as "30s" [default: wait for ever; a warning is logged if
        no live worker would run it]. Raises NotFinished when it is over; the task continues.
        """
        if timeout is None:
            async with told_if_unserved(self._store, self.task):
                return await self._wait(None)
        return await self._wait(parse_duration(timeout, "timeout").total_seconds())

    async def _wait(self, limit: float | None) -> Task:
        loop = asyncio.get_running_loop()
        deadline = None if limit is None else loop.time() + limit
        task = await self.task()
        while task.state not in ENDED:
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                what_to_do = (
                    f"; check that a worker serves queue {task.queue!r}" if task.state is State.READY else ""
                )
                raise NotFinished(
                    f"task {self.id} is still {task.state} after {limit:g} s; the timeout does not cancel it"
                    f"{what_to_do}"
                )
            ended = await wait_for_end(self._store, self.id, left)
            task = await (self.task() if ended is None else self._with_secrets(ended))
        return task

    async def result(self, timeout: timedelta | float | str | None = None) -> R:
        """Wait for the task to complete and return what its handler returned.

        `timeout`: as in `wait`. Raises TaskDead, TaskCancelled, or NotFinished if it has not ended in time.
        """
        task = await self.wait(timeout)
        if task.state is State.DEAD:
            raise TaskDead(f"task {self.id} died: {_described(task)}; see `windlass tasks show {self.id}`")
        if task.state is State.CANCELLED:
            raise TaskCancelled(f"task {self.id} was cancelled: {_described(task)}")
        result: R = self._decoded(task)
        return result

    def _decoded(self, task: Task) -> Any:
        """Return a task's result as its handler declares it, if this program has the handler."""
        if task.result is None:
            return None
        if MARKER in task.result:
            keys = ", ".join(key_ids(task.result))
            raise Refused(f"the result needs the encryption key {keys}, which is missing here")
        spec = None if self._types is None else self._types.declared.find(task.type)
        return decode(task.result) if spec is None else spec.signature.result.decode(task.result)

    async def cancel(self, *, by: str = "client", why: str = "") -> None:
        """Cancel the task; ask a running one to stop. `by`, `why`: for the audit log. Raises TaskFinished."""
        await self._store.open()
        action = CancelTasks(by=By(who=by, why=why))
        if not (await self._store.apply(action, Filter(ids=(self.id,)), 1)).ids:
            task = await self.task()
            raise TaskFinished(f"task {self.id} has already ended: it is {task.state}")


class LoopThread:
    """Runs coroutines for threads without a loop. Starts at first use, and again after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inherited: list[asyncio.AbstractEventLoop] = []
        self._end: weakref.finalize[Any, Any] | None = None
        _loop_threads.add(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, in the caller's context, and wait for its result."""
        warn_on_event_loop()
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the caller was interrupted: nobody waits for the result
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine there; return the future of its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def reset(self) -> None:
        """Start afresh in a forked child, which has neither the thread nor, perhaps, a free lock."""
        self._lock = threading.Lock()
        if self._loop is not None:
            self._inherited.append(self._loop)  # never closed here: its pipes are the parent's
            self._loop = None
        if self._end is not None:
            self._end.detach()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_run_loop, args=(self._loop,), name="windlass-sync", daemon=True
                ).start()
                self._end = weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
                self._end.atexit = False
            return self._loop


class Twin(Generic[T]):
    """The blocking twin of an async object, whose coroutines it runs in a loop thread."""

    def __init__(self, inner: T, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop


class Client:
    """Enqueue tasks and follow them: `app.client`. It can be used from any thread.

    An enqueue returns once the tasks are durable. If the store does not respond the call is repeated once,
    which cannot enqueue anything twice; then it raises StoreUnavailable.
    """

    def __init__(self, store: Store, builder: TaskBuilder, types: KnownTypes) -> None:
        self._store = store
        self.builder = builder
        self.types = types

    async def enqueue(
        self, step: Step, *, within: object | None = None, **options: Unpack[Options]
    ) -> Handle[Any]:
        """Enqueue a step, made by a task type's `step()`, with the chain that follows it.

            await app.client.enqueue(chain(charge.step(amount=9), ship.step(order_id=8)))

        The options are those of a first task: `after`, `run_at`, `expires`, `idempotency_key`,
        `idempotency_for`, `unique`, `unique_for` and `trace`; give the others with `using(…).step(…)`.
        `within` is an open connection of your own: the task is inserted in its transaction, so that both
        commit or neither does.

        Raises InvalidOption, NotFound, DuplicateTask, IdempotencyConflict or StoreUnavailable.
        """
        check_first_options(options)
        ready = await self.resolved(options) if "after" in options else options
        return (await self.enqueue_tasks([self.builder.task(step, ready)], within=within))[0]

    async def enqueue_many(self, steps: Iterable[Step], *, within: object | None = None) -> list[Handle[Any]]:
        """Enqueue several steps, all or none, at most 100,000; returns their handles in the same order."""
        return await self.enqueue_tasks([self.builder.task(step) for step in steps], within=within)

    async def enqueue_group(
        self, steps: Iterable[Step], then: Step, *, within: object | None = None
    ) -> list[Handle[Any]]:
        """Enqueue several steps and `then`, which waits until all of them have completed.

        Returns their handles, that of `then` last; its parameter given as `RESULT` gets the list of results.
        Where a step is a chain, `then` waits for the end of it and gets the end's result.
        """
        return await self.enqueue_tasks(self.builder.group(steps, then), within=within)

    async def send(
        self,
        type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        within: object | None = None,
        **options: Unpack[Options],
    ) -> Handle[Any]:
        """Enqueue a task by the name of its type, also from a program that does not have the handler.

            await app.client.send("mail.welcome", {"user_id": 1})

        If this app declares the type, its options apply and the payload is checked, as in `enqueue`. Else the
        options apply that an app has published to the store; this program may see a change of them some
        seconds late. A type that no app has published goes into the queue "default", with 8 attempts and no
        timeout. Raises InvalidPayload, InvalidOption, DuplicateTask, IdempotencyConflict or StoreUnavailable.
        """
        if (spec := self.types.declared.find(type)) is None:
            await self.refresh_types()
        encoded = encoded_payload(payload or {}, spec)
        self.types.check_secret(type, options)
        ready = await self.resolved(options) if "after" in options else options
        task = self.builder.build(type, encoded, ready, self.types.defaults(type))
        return (await self.enqueue_tasks([task], within=within))[0]

    async def refresh_types(self) -> None:
        """Read the task types that apps have published, unless that was done in the last seconds."""
        await self.types.refresh()

    async def get(self, task_id: TaskId) -> Handle[Any]:
        """Return a handle on a task that was enqueued before; raises NotFound if there is none."""
        await self._store.open()
        handle: Handle[Any] = Handle(self._store, task_id, created=False, types=self.types)
        await handle.task()
        return handle

    async def resolved(self, options: Options) -> Options:
        """Return these options with the tasks of `after` as a builder takes them. Raises NotFound.

        Tasks that are given by their ids are looked up.
        """
        return {**options, "after": await look_up(self._store, options.get("after", ()))}

    async def enqueue_tasks(
        self, batch: Sequence[NewTask], *, within: object | None = None
    ) -> list[Handle[Any]]:
        """Enqueue tasks that are already built, all or none."""
        _check(batch)
        if within is None:
            await self.types.require_keys(batch)
        else:
            self.types.check_all_keys(batch)
        with send_span(batch) as span:
            if within is None:
                enqueued = await self._enqueue(span.batch)
            else:
                inserted = self._join(within).enqueue(span.batch)
                enqueued = await inserted if isinstance(inserted, Awaitable) else inserted
            await tell_enqueuer(self._store, batch)
            span.enqueued(enqueued)
        return self._handles(batch, enqueued)

    def enqueue_tasks_sync(
        self, loop: LoopThread, batch: Sequence[NewTask], *, within: object | None = None
    ) -> list[Handle[Any]]:
        """Do the same for a thread without an event loop. Its connection is only used in that thread."""
        if within is None:
            can_block = Capability.BLOCK in self._store.capabilities and not is_on_event_loop()
            return (run_without_loop if can_block else loop.run)(self.enqueue_tasks(batch))
        _check(batch)
        self.types.check_all_keys(batch)
        with send_span(batch) as span:
            enqueued = self._join(within).enqueue(span.batch)
            if isinstance(enqueued, Awaitable):
                raise InvalidOption("this connection is async: use aenqueue within its transaction")
            if is_first(self._store, batch):
                loop.run(tell_enqueuer(self._store, batch))
            span.enqueued(enqueued)
        return self._handles(batch, enqueued)

    def _join(self, connection: object) -> Join:
        require(self._store, Capability.JOIN, "enqueue inside your own transaction")
        return self._store.join(connection)

    def _handles(self, batch: Sequence[NewTask], enqueued: Iterable[Enqueued]) -> list[Handle[Any]]:
        store, types = self._store, self.types
        return [
            Handle(
                store,
                one.id,
                one.created,
                all_ids(decode_steps(new.next)) if new.next and one.created else (),
                (new.root, new.tenant, new.secret) if one.created else None,
                types,
            )
            for new, one in zip(batch, enqueued, strict=True)
        ]

    async def _enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Enqueue, with one repeat if the store does not respond: the ids are ours, so that is harmless."""
        await self._store.open()
        try:
            enqueued = await self._store.enqueue(batch)
        except StoreUnavailable:
            enqueued = await self._store.enqueue(batch)
        if all(one.created for one in enqueued):
            return enqueued
        # A task that exists under our own fresh id was created by a call whose reply was lost. Stores repeat
        # calls themselves, too, as while a JetStream store gets another owner.
        ours = {task.id for task in batch}
        return [Enqueued(id=one.id, created=one.created or one.id in ours) for one in enqueued]


def _described(task: Task) -> str:
    if task.error is None:
        return "no reason was recorded"
    return task.error.message if task.error.type == CANCELLED else f"{task.error.type}: {task.error.message}"


def _check(batch: Sequence[NewTask]) -> None:
    if len(batch) > MAX_BATCH:
        raise InvalidOption(f"a batch holds at most {MAX_BATCH:,} tasks, not {len(batch):,}; split it")
    for new in batch:
        if HINT in new.payload or new.next is not None:
            refuse_marked(new.payload, new.next)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run until the LoopThread is garbage-collected."""
    try:
        loop.run_forever()
    finally:
        loop.close()


def _reset_after_fork() -> None:
    for one in _loop_threads:
        one.reset()


_loop_threads: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_reset_after_fork)
